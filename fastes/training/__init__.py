"""Trainings as records, the loop that advances them, and the choice among several."""
