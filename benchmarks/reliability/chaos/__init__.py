"""A training with a fault every few seconds and the same training left in peace."""
