"""Optimisers: a gradient of the expected return in, a step of theta out. They climb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastes.errors import suggest

Float32 = npt.NDArray[np.float32]
AnyFloat = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Arrays = dict[str, AnyFloat]


class Optimizer(Protocol):
    """State is a dict of arrays, so that a checkpoint needs to know no optimiser."""

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        """The step to add to theta, float32 (num_params,)."""

    def state(self) -> Arrays: ...

    def load_state(self, state: Mapping[str, AnyFloat]) -> None: ...


class SGD:
    """v <- momentum * v + gradient; step = learning_rate * v."""

    def __init__(self, num_params: int, momentum: float = 0.0) -> None:
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
    """Kingma and Ba 2015, algorithm 1. The powers of beta are kept as running products: no libm, the same bits."""

    def __init__(self, num_params: int, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, np.float32(epsilon)
        self.m = np.zeros(num_params, dtype=np.float32)
        self.v = np.zeros(num_params, dtype=np.float32)
        self.powers = np.ones(2, dtype=np.float64)  # beta1^t, beta2^t

    def step(self, gradient: Float32, learning_rate: float) -> Float32:
        self.powers = self.powers * np.array([self.beta1, self.beta2])
        self.m = np.float32(self.beta1) * self.m + np.float32(1.0 - self.beta1) * gradient
        self.v = np.float32(self.beta2) * self.v + np.float32(1.0 - self.beta2) * (gradient * gradient)
        m_hat = self.m / np.float32(1.0 - self.powers[0])
        v_hat = self.v / np.float32(1.0 - self.powers[1])
        step: Float32 = np.float32(learning_rate) * m_hat / (np.sqrt(v_hat) + self.epsilon)
        return step

    def state(self) -> Arrays:
        return {"m": self.m.copy(), "v": self.v.copy(), "powers": self.powers.copy()}

    def load_state(self, state: Mapping[str, AnyFloat]) -> None:
        self.m = np.array(state["m"], dtype=np.float32)
        self.v = np.array(state["v"], dtype=np.float32)
        self.powers = np.array(state["powers"], dtype=np.float64)


OPTIMIZERS = ("adam", "sgd")


def make_optimizer(name: str, num_params: int, momentum: float, beta2: float) -> Optimizer:
    """momentum is SGD's momentum or Adam's beta1."""
    if name == "adam":
        return Adam(num_params, momentum, beta2)
    if name == "sgd":
        return SGD(num_params, momentum)
    raise ValueError(f"unknown optimizer {name!r}: expected one of {OPTIMIZERS}{suggest(name, OPTIMIZERS)}")
