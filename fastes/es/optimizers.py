"""Optimisers: a gradient of the expected return in, a step of theta out. All of them ascend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.errors import suggest

Float32 = npt.NDArray[np.float32]
AnyFloat = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Arrays = dict[str, AnyFloat]

_EPSILON = np.float32(1e-8)  # Adam's, the paper's value


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
