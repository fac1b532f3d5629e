"""Policies as weights: those of other libraries, and for them."""
