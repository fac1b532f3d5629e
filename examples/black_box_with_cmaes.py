"""The same loop around FastES's strategy and CMA-ES of the package cmaes. Needs cmaes."""

import cmaes
import numpy as np

from fastes import EvolutionStrategy


def loss(x: np.ndarray) -> float:
    return float(np.sum(np.arange(1.0, 11.0) * (x - 0.5) ** 2))


fast = EvolutionStrategy(np.zeros(10), sigma=0.05, learning_rate=0.05, population_size=40, seed=0)
for _ in range(200):
    fast.tell([-loss(x) for x in fast.ask()])  # a whole population at once; more is better

cma = cmaes.CMA(mean=np.zeros(10), sigma=0.3, population_size=40, seed=0)
for _ in range(200):
    cma.tell([(x, loss(x)) for x in (cma.ask() for _ in range(cma.population_size))])  # one by one; less is better

print(f"loss {loss(fast.theta):.1e} of FastES, {loss(cma.mean):.1e} of CMA-ES, whose covariance suits 10 parameters")
