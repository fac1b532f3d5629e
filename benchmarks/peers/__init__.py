"""The algorithms that FastES is compared with: RL Zoo's settings, Stable-Baselines3's models, their fastest use of cores."""
