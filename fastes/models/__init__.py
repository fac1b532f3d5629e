"""A model around its trainings: its arguments, its parameters by name, how it acts, its checkpoint and its copies."""
