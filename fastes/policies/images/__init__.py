"""Policies that see images."""
