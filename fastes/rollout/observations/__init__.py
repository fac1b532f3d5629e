"""Observations: the layouts that are recognised, what a policy reads of them, and one or several of them."""
