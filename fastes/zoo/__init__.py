"""FastES as an algorithm of RL Baselines3 Zoo: `python -m fastes.zoo train --env CartPole-v1`. Needs rl_zoo3."""
