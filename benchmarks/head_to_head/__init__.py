"""FastES beside tuned PPO, TRPO, ARS and A2C on the same cores: `python -m benchmarks.head_to_head`."""
