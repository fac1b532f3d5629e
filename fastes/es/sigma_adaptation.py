"""Adaptation of sigma as in PGPE: one for all parameters, or one for each."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.es.fitness_shaping import Shaped
from fastes.es.perturbations import Perturbations
from fastes.es.schedules import ScheduleSetting
from fastes.number_array import Float32

Sigma = npt.NDArray[Any]  # float32, one for each parameter, or float64 (1,)

LEAST_CHANGE, LARGEST_CHANGE = 0.8, 1.2  # factors of a generation
FLOOR, CEILING = 0.01, 10.0  # of the initial sigma


class SigmaAdaptation:
    """sigma <- sigma * clip(1 + rate / n * sum_j s_j (eps_j^2 - 1), 0.8, 1.2), within 0.01 and 10 times the initial sigma.

    s_j is the mean of a pair's two shaped returns, whose mean over the n pairs that count is zero. 'per_parameter' does this
    for each parameter; 'scalar' takes the mean of eps_j^2 - 1 over the parameters. If pairs perturb a fraction of the
    parameters, the sum is over those that perturb this one, divided by the fraction.

    Sources: Sehnke et al. 2010, "Parameter-exploring policy gradients", section 3.3 (symmetric sampling); the largest change
    is that of Toklu et al. 2020 (ClipUp, arXiv 2008.02387).
    """

    def __init__(self, kind: str, initial: float, rate: float, num_params: int) -> None:
        """Begin with `initial`, the setting sigma. kind: "scalar" or "per_parameter"."""
        self.rate, self.bounds = rate, (FLOOR * initial, CEILING * initial)
        self._each = {"scalar": False, "per_parameter": True}[kind]
        self._values: Sigma = np.full(num_params if self._each else 1, initial, np.float32 if self._each else np.float64)
        self._mean = _mean(self._values)

    @property
    def values(self) -> Sigma:
        """float32 (num_params,), or float64 (1,) if there is one for all. Each change makes a new array."""
        return self._values

    @values.setter
    def values(self, values: Sigma) -> None:
        """Set the values of a checkpoint, within the bounds of today's initial sigma."""
        self._values = np.clip(values, *self.bounds)
        self._mean = _mean(self._values)

    @property
    def mean(self) -> float:
        return self._mean

    @property
    def each(self) -> Float32 | None:
        """A sigma for each parameter, float32 (num_params,); None if there is one for all."""
        return self._values if self._each else None

    def adapted(self, perturbations: Perturbations, shaped: Shaped) -> SigmaAdaptation:
        """Return an adaptation with the next values, from a generation's shaped returns; this one stays as it is."""
        middle = (0.5 * (shaped.shaped[:, 0] + shaped.shaped[:, 1])).astype(np.float32)
        index, size = perturbations.noise_index, len(perturbations.theta)
        spread = perturbations.table.weighted_sum(index, middle, size, perturbations.windows, squares=True)
        rate = self.rate / shaped.num_kept * perturbations.inverse_fraction
        if self._each:
            factor: Sigma = np.float32(1.0) + np.float32(rate) * spread
        else:
            factor = np.array([1.0 + rate * math.fsum(spread.tolist()) / len(spread)])
        new = copy.copy(self)
        new.values = self._values * np.clip(factor, LEAST_CHANGE, LARGEST_CHANGE)
        return new


def make_adaptation(kind: str, sigma: ScheduleSetting, rate: float, num_params: int) -> SigmaAdaptation | None:
    """Return the adaptation of a sigma, None if it does not adapt; Hyperparameters have checked the arguments."""
    return None if kind == "none" else SigmaAdaptation(kind, float(sigma), rate, num_params)  # type: ignore[arg-type]


def _mean(values: Sigma) -> float:
    return math.fsum(values.tolist()) / len(values)
