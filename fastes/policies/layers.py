"""The layers that the core runs: what each is, where its parameters lie, how they begin, and how a file describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fastes import _core

Float32 = npt.NDArray[np.float32]
ACTIVATIONS = tuple(_core.ACTIVATIONS)
_MAX_LAYERS = 10_000  # each costs memory, and a file can list millions


@dataclass(frozen=True)
class Dense:
    """outputs = inputs . weight (inputs, outputs) + bias (outputs,).

    activation: 'tanh' or 'relu', of the outputs where another layer follows; the last layer's reach the action head as
    they are.
    """

    kind: ClassVar[str] = "dense"
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


Layer = Dense  # of all kinds that there are


def dense_layers(sizes: Sequence[int], activation: str, use_bias: bool) -> tuple[Layer, ...]:
    """Dense layers between inputs, hidden sizes and outputs."""
    return tuple(Dense(inputs, outputs, activation, use_bias) for inputs, outputs in pairwise(sizes))


def layer_sizes(layers: Sequence[Layer]) -> tuple[int, ...]:
    """How many values there are before, between and after the layers."""
    return (layers[0].inputs, *(layer.outputs for layer in layers))


def describe_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """What a checkpoint says of the layers (docs/reference/checkpoint-format.md)."""
    first = layers[0]
    if dense_layers(layer_sizes(layers), first.activation, first.use_bias) != tuple(layers):
        raise ValueError(f"version 1 of the file describes dense layers that are all alike, these are {layers}")
    return {"layer_sizes": layer_sizes(layers), "activation": first.activation, "use_bias": first.use_bias}


def described_layers(stored: Mapping[str, Any]) -> tuple[Layer, ...]:
    """The layers that a checkpoint describes; KeyError or ValueError for some that the core must not see."""
    sizes, activation, use_bias = stored["layer_sizes"], stored["activation"], stored["use_bias"]
    listed = isinstance(sizes, (list, tuple)) and 2 <= len(sizes) <= _MAX_LAYERS
    if not listed or not all(type(n) is int and n > 0 for n in sizes):
        raise ValueError(f"layer sizes {sizes!r:.1000}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r}")
    if not isinstance(use_bias, bool):
        raise ValueError(f"use_bias {use_bias!r}")
    return dense_layers(sizes, activation, use_bias)
