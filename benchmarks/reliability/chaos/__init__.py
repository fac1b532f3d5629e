"""A training with a fault every few seconds beside the same one left in peace."""
