"""Environments in C: the user's as Gymnasium environments, and which of Gymnasium's own have a twin in C."""
