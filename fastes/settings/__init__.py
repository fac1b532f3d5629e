"""What can be set, and tuned values."""
