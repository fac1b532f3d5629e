"""Dense layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from fastes.policies.layers.layer import IDENTITY, Float32, check_sizes


@dataclass(frozen=True)
class Dense:
    """outputs = activation(inputs . weight (inputs, outputs) + bias (outputs,))."""

    kind: ClassVar[str] = "dense"
    reads_image: ClassVar[bool] = False
    state_size: ClassVar[int] = 0
    scratch_size: ClassVar[int] = 0
    inputs: int
    outputs: int
    activation: str
    use_bias: bool

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        shapes: dict[str, tuple[int, ...]] = {"weight": (self.inputs, self.outputs)}
        return {**shapes, "bias": (self.outputs,)} if self.use_bias else shapes

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:
        """Turn standard normals into first parameters, in place: weights N(0, gain^2 / inputs), biases zero."""
        weight = parameters["weight"]
        weight *= np.float32(gain * (1.0 / math.sqrt(self.inputs)))
        if self.use_bias:
            parameters["bias"][:] = 0.0

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")


def dense_layers(sizes: Sequence[int], activation: str, use_bias: bool) -> tuple[Dense, ...]:
    """Dense layers between inputs, hidden sizes and outputs; the last one's outputs stay as they are."""
    pairs = list(pairwise(sizes))
    activations = [activation] * (len(pairs) - 1) + [IDENTITY]
    return tuple(Dense(*pair, of_pair, use_bias) for pair, of_pair in zip(pairs, activations, strict=True))
