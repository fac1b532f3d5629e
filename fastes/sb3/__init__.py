"""What lets FastES take the place of a Stable-Baselines3 algorithm. Imports SB3 only where its own objects are given."""
