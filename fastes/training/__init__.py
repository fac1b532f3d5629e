"""The state of one training, and how it moves."""
