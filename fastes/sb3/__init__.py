"""Stable-Baselines3's names, callbacks, logger and policies around FastES, without importing SB3."""
