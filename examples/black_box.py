"""Maximise a function of a vector without an environment."""

import numpy as np

from fastes import EvolutionStrategy


def negative_rosenbrock(x: np.ndarray) -> float:
    return -float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))


es = EvolutionStrategy(np.zeros(4), sigma=0.02, learning_rate=0.02, population_size=40, seed=0)
for _ in range(2000):
    update = es.tell([negative_rosenbrock(x) for x in es.ask()])
print("found", es.theta.round(2), "value", round(negative_rosenbrock(es.theta), 4))
