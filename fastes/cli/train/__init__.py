"""fastes train."""
