"""The layers that the core runs."""
