"""Vectors in, vectors out: no process, no environment."""
