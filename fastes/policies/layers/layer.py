"""The attributes of every kind of layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fastes import _core

Float32 = npt.NDArray[np.float32]
IDENTITY = "identity"  # outputs as they are: the last layer's, and those that another layer turns into activations
ACTIVATIONS = tuple(name for name in _core.ACTIVATIONS if name != IDENTITY)
MOST_VALUES = 2**31 - 1  # that a layer reads or writes: the core counts them as int32


class Layer(Protocol):
    """A frozen dataclass whose fields are ints, bools and names: a file describes it by these.

    kind: its name, in `_core.LAYER_KINDS` and in files.
    inputs, outputs: values that it reads and writes.
    activation: of the outputs, one of `_core.ACTIVATIONS`.
    state_size: values that it remembers within an episode: `begin_episode` makes them 0.
    reads_image: whether it reads an image in the observation itself, and not what the layer before it writes.
    scratch_size: values that it needs room for on the way where these are more than inputs and outputs, else 0.
    """

    kind: ClassVar[str]
    reads_image: ClassVar[bool]

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def activation(self) -> str: ...

    @property
    def state_size(self) -> int: ...

    @property
    def scratch_size(self) -> int: ...

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:
        """Turn standard normals into first parameters, in place. gain: of its weights."""

    def check(self) -> None:
        """ValueError for sizes that the core must not see."""


class Feedforward:
    """Base of layers that remember nothing, and read the outputs of the layer before them."""

    reads_image: ClassVar[bool] = False
    state_size: ClassVar[int] = 0
    scratch_size: ClassVar[int] = 0


class Weighted(Feedforward):
    """Base of layers of weights, whose last dimension is the outputs, and biases if they are used."""

    use_bias: bool

    @property
    def weight_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        shapes = {"weight": self.weight_shape}
        return {**shapes, "bias": self.weight_shape[-1:]} if self.use_bias else shapes

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:
        """Turn standard normals into first parameters, in place: weights N(0, gain^2 / inputs of an output), biases zero."""
        weight = parameters["weight"]
        weight *= np.float32(gain * (1.0 / math.sqrt(math.prod(self.weight_shape[:-1]))))
        if self.use_bias:
            parameters["bias"][:] = 0.0


def check_sizes(layer: Any, *names: str) -> None:
    """ValueError unless these are ints from 1 to MOST_VALUES."""
    for name in names:
        value = getattr(layer, name)
        if type(value) is not int or not 1 <= value <= MOST_VALUES:
            raise ValueError(f"{name} = {value!r:.100} of a {layer.kind} layer is out of range: expected 1 to {MOST_VALUES}")
