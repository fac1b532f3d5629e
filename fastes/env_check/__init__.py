"""Checks of a task before a training: random episodes, the same ones again, in C, and with new policies."""
