"""The one place that says which class users get: the agent with Stable-Baselines3's names around it."""

from fastes.sb3.adapter import FastES as FastES
