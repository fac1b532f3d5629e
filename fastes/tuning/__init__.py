"""Search for settings with Optuna."""
