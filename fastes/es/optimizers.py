"""Optimisers: a gradient of the expected return in, a step of theta out. They climb. And a measure of how far steps may go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import suggest
from fastes.es.fitness_shaping import num_kept

Float32 = npt.NDArray[np.float32]
AnyFloat = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Arrays = dict[str, AnyFloat]

_EPSILON = np.float32(1e-8)  # Adam's, the paper's value
LONGEST_WINDOW = 10_000  # generations
SHORTEST = 0.1  # factor of a step: what was measured is noisy, too
_AGREEMENT = "agreement"  # name of an array among the strategy's


class Optimizer(Protocol):
    """State is a dict of arrays, so that a checkpoint needs to know no optimiser. Defaults are those of hyperparameters.py."""

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        """The step to add to theta, float32 (num_params,)."""

    def state(self) -> Arrays: ...

    def load_state(self, state: Mapping[str, AnyFloat]) -> None: ...


class SGD:
    """v <- momentum * v + gradient; step = learning_rate * v."""

    def __init__(self, num_params: int, momentum: float) -> None:
        self.momentum = np.float32(momentum)
        self.velocity = np.zeros(num_params, dtype=np.float32)

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        self.velocity = self.momentum * self.velocity + gradient
        step: Float32 = np.float32(learning_rate) * self.velocity
        return step

    def state(self) -> Arrays:
        return {"velocity": self.velocity.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.velocity = np.array(state["velocity"], dtype=np.float32)


class Adam:
    """m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; step = learning_rate m' / (sqrt(v') + epsilon).

    m' = m / (1 - beta1^t), v' = v / (1 - beta2^t): Kingma and Ba 2015, algorithm 1. The powers of beta are kept as running
    products: no libm, the same bits.
    """

    def __init__(self, num_params: int, beta1: float, beta2: float) -> None:
        self.beta1, self.beta2 = beta1, beta2
        self.m = np.zeros(num_params, dtype=np.float32)
        self.v = np.zeros(num_params, dtype=np.float32)
        self.powers = np.ones(2, dtype=np.float64)  # beta1^t, beta2^t

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        self.powers = self.powers * np.array([self.beta1, self.beta2])
        self.m = np.float32(self.beta1) * self.m + np.float32(1.0 - self.beta1) * gradient
        self.v = np.float32(self.beta2) * self.v + np.float32(1.0 - self.beta2) * (gradient * gradient)
        m_hat = self.m / np.float32(1.0 - self.powers[0])
        v_hat = self.v / np.float32(1.0 - self.powers[1])
        step: Float32 = np.float32(learning_rate) * m_hat / (np.sqrt(v_hat) + _EPSILON)
        return step

    def state(self) -> Arrays:
        return {"m": self.m.copy(), "v": self.v.copy(), "powers": self.powers.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.m = np.array(state["m"], dtype=np.float32)
        self.v = np.array(state["v"], dtype=np.float32)
        self.powers = np.array(state["powers"], dtype=np.float64)


class ClipUp:
    """Toklu et al. 2020 (arXiv 2008.02387), algorithm 1: steps of a length that does not depend on the gradient's.

    v <- momentum * v + learning_rate * gradient / |gradient|, shortened to |v| <= max_speed; step = v. So learning_rate and
    max_speed are lengths in the space of parameters. max_speed 0: twice the learning rate, the paper's rule of thumb, which
    follows a schedule. A gradient of zeros pushes nowhere.
    """

    def __init__(self, num_params: int, momentum: float, max_speed: float) -> None:
        self.momentum, self.max_speed = np.float32(momentum), max_speed
        self.velocity = np.zeros(num_params, dtype=np.float32)

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        velocity = self.momentum * self.velocity
        length = math.sqrt(_core.sum_squares(gradient))
        if length != 0.0:
            # in float64: what a gradient near the ends of float32 is multiplied by lies outside of it
            velocity += (gradient.astype(np.float64) * (learning_rate / length)).astype(np.float32)
        speed, limit = math.sqrt(_core.sum_squares(velocity)), self.max_speed or 2.0 * learning_rate
        self.velocity = velocity * np.float32(limit / speed) if speed > limit else velocity
        step: Float32 = self.velocity.copy()
        return step

    def state(self) -> Arrays:
        # not by SGD's name, velocity: that is no step, and one must not be taken for the other on loading
        return {"step": self.velocity.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.velocity = np.array(state["step"], dtype=np.float32)


# number of parameters, momentum, beta2, max_speed -> optimiser
_MAKERS: dict[str, Callable[[int, float, float, float], Optimizer]] = {
    "adam": lambda num_params, momentum, beta2, _: Adam(num_params, momentum, beta2),
    "sgd": lambda num_params, momentum, *_: SGD(num_params, momentum),
    "clipup": lambda num_params, momentum, _, max_speed: ClipUp(num_params, momentum, max_speed),
}
OPTIMIZERS = tuple(_MAKERS)


def make_optimizer(name: str, num_params: int, momentum: float, beta2: float, max_speed: float) -> Optimizer:
    """An optimiser at its beginning.

    name: one of OPTIMIZERS.
    momentum: that of SGD and ClipUp, or Adam's beta1.
    beta2: Adam's.
    max_speed: ClipUp's.

    Raises ValueError for another name.
    """
    if name not in _MAKERS:
        raise ValueError(f"unknown optimizer {name!r}: expected one of {OPTIMIZERS}{suggest(name, OPTIMIZERS)}")
    return _MAKERS[name](num_params, momentum, beta2, max_speed)


@dataclass(frozen=True)
class StepAgreement:
    """The factor of a step: signal / length, at least SHORTEST and at most 1; 1 before anything was measured.

    signal: average of <g_e, g_o>, the gradients that the even and the odd ones of a generation's pairs estimate. Their noise is
        independent, so the expectation is the squared length of what both estimate.
    length: average of |g|^2, g the estimate of all pairs: that squared length and the variance.
    window: generations that both averages reach back, by x <- x + (new - x) / window.

    Of all multiples of g, the one by this quotient is expected to be closest to what g estimates (Wiener's filter).
    """

    window: int
    signal: float = 0.0
    length: float = 0.0

    @property
    def factor(self) -> float:
        return min(max(self.signal / self.length, SHORTEST), 1.0) if self.length > 0.0 else 1.0

    def after(self, even: Float32, odd: Float32, pairs: int) -> StepAgreement:
        """With one generation more, unless it was a single pair, or says nothing since no pair made a difference.

        even, odd: what both halves of its pairs add to g, float32 (num_params,), before weight decay.
        pairs: of both.
        """
        half = pairs // 2
        length, difference = _core.sum_squares(even + odd), _core.sum_squares(even - odd)
        if not half or length + difference == 0.0:
            return self
        signal = 0.25 * (length - difference) * pairs * pairs / (half * (pairs - half))
        return StepAgreement(
            self.window,
            self.signal + (signal - self.signal) / self.window,
            self.length + (length - self.length) / self.window,
        )

    def state(self) -> Arrays:
        """signal and length, float64 (2,), under its name."""
        return {_AGREEMENT: np.array([self.signal, self.length])}

    def loaded(self, state: Mapping[str, AnyFloat]) -> StepAgreement:
        """As it was when `state` was taken."""
        return StepAgreement(self.window, *state[_AGREEMENT].tolist())


def check_agreement(window: int, population_size: int, top_fraction: float) -> None:
    """ValueError where there are no two halves to compare."""
    if window and num_kept(population_size // 2, top_fraction) < 2:
        raise ValueError(
            f"step_agreement = {window} compares two halves of the pairs that count, and with population_size = "
            f"{population_size} and top_fraction = {top_fraction:g} only one does: expected a larger population_size or "
            "top_fraction, or step_agreement=0"
        )
