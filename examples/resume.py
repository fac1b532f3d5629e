"""Stop a training, and go on from its file: the result is the same, bit for bit, as without the stop."""

import tempfile
from pathlib import Path

import numpy as np

from fastes import FastES

BUDGET = 30_000
settings = {"seed": 0, "target_return": "none"}

with FastES("CartPole-v1", **settings) as whole:
    whole.learn(BUDGET)

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "half"
    with FastES("CartPole-v1", **settings) as first:
        first.learn(BUDGET, callback=lambda model, record: record.timesteps < BUDGET / 2)  # False stops it
        first.save(file)
    with FastES.load(file, n_workers=1) as second:  # also with another number of workers
        second.learn(BUDGET - second.num_timesteps, reset_num_timesteps=False)

print("the same parameters:", np.array_equal(second.theta, whole.theta), f"after {second.num_timesteps} timesteps")
