"""The description of a network: layers, an action head, the place of each parameter in theta, and the first theta."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.policies.action_head import ActionHead
from fastes.policies.layers import ImageConvolution, Join, Layer, VirtualBatchNorm, layer_sizes

DTYPES = "floats (float16 to float64), integers (8 to 64 bits) or bool"  # that observations may have
_LONGEST = 1000  # characters of `parts`


@dataclass(frozen=True)
class PolicySpec:
    """A network: layers and an action head. Theta is layer after layer, in each parameter after parameter, row by row.

    Attributes:
        layers: From the observation to the outputs.
        head: How outputs become actions.
        obs_shape: Shape of one observation; spaces other than Box are flattened.
        flattened: Whether observations are flattened.
        columns: Indices of the values that are observed, in this order. They reach the first layer, or, if that reads an
            image, a layer that appends them. Empty: all values, or, if the first layer reads an image, none.
        parts: The parts of a flattened observation in their order, as `parts_of` says them; "" for others, and in older files.
    """

    layers: tuple[Layer, ...]
    head: ActionHead
    obs_shape: tuple[int, ...]
    flattened: bool = False
    columns: tuple[int, ...] = ()
    parts: str = ""

    @property
    def images(self) -> tuple[ImageConvolution, ...]:
        """The layers that read an image, each another one; () for a policy without images."""
        return tuple(layer for layer in self.layers if isinstance(layer, ImageConvolution))

    @property
    def obs_size(self) -> int:
        """Number of values that are observed, and normalised by statistics; those of an image are not among them."""
        return len(self.columns) if self.layers[0].reads_image else self.layers[0].inputs

    @property
    def needs_reference(self) -> bool:
        """Whether it needs a reference batch to act."""
        return self.values_kept > 0

    @property
    def values_kept(self) -> int:
        """Number of activations that virtual batch normalisation keeps per observation of a reference batch, 0 without it."""
        most = max((layer.inputs for layer in self.layers if isinstance(layer, VirtualBatchNorm)), default=0)
        return most + self.joined if most else 0

    @property
    def joined(self) -> int:
        """Number of features of all images that layers join, 0 with a single image, or none."""
        return max((layer.outputs for layer in self.layers if isinstance(layer, Join)), default=0)

    @property
    def activations(self) -> int:
        """Number of values that an actor has room for.

        They are twice the most that a layer reads or writes, a strip of an image, and the features of several images.
        """
        ends = (size for layer in self.layers for size in (layer.outputs, layer.scratch_size))
        read = (layer.inputs for layer in self.layers if not layer.reads_image)
        strip = max((image.strip_size for image in self.images), default=0)
        return 2 * max(*ends, *read, self.obs_size) + strip + self.joined

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Number of values before, between and after the layers."""
        return layer_sizes(self.layers)

    @property
    def num_params(self) -> int:
        return sum(math.prod(shape) for shape in self.parameter_shapes().values())

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the parameters in the order in which they lie in theta."""
        return {
            f"layers.{i}.{name}": shape
            for i, layer in enumerate(self.layers)
            for name, shape in layer.parameter_shapes().items()
        }

    def split(self, theta: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Return views of theta (num_params,) by parameter name."""
        return split_theta(theta, self.parameter_shapes())

    def split_by_layer(self, theta: npt.NDArray[np.float32]) -> list[dict[str, npt.NDArray[np.float32]]]:
        """Return the same views per layer, by the layer's own names."""
        views = iter(self.split(theta).values())
        return [{name: next(views) for name in layer.parameter_shapes()} for layer in self.layers]

    def initial_theta(self, seed: int) -> npt.NDArray[np.float32]:
        """Return the first parameters, float32 (num_params,).

        Hidden weights are N(0, 1/fan_in), the last layer of an MLP is a hundred times smaller (Salimans et al. 2017, released
        code), biases are zero, and so is everything in a linear policy (Mania et al. 2018).
        """
        theta = np.zeros(self.num_params, dtype=np.float32)
        if len(self.layers) == 1:
            return theta
        _core.normal_fill(theta, seed, 0, _core.STREAM_INIT)
        *hidden, last = zip(self.layers, self.split_by_layer(theta), strict=True)
        for layer, parameters in hidden:
            layer.scale_normals(parameters, gain=1.0)
        last[0].scale_normals(last[1], gain=0.01)
        return theta

    def make_actor(self) -> _core.Actor:
        """Return an actor with its own parameters, zeros at first."""
        return _core.Actor(self)


def split_theta(theta: npt.NDArray[np.float32], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, npt.NDArray[np.float32]]:
    """Return views of theta (num_params,) by parameter name, one behind the other."""
    views, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        views[name] = theta[at : at + size].reshape(shape)
        at += size
    return views


def obs_shape_of(space: spaces.Space[Any]) -> tuple[tuple[int, ...], bool]:
    """Return the shape in which observations of a space reach a policy, and whether they are flattened first."""
    size = flat_size(space)
    return (space.shape, False) if isinstance(space, spaces.Box) else ((size,), True)


def parts_of(space: spaces.Space[Any]) -> str:
    """Return what a flattened observation consists of, as in "Dict('price': Box(2), 'stock': Discrete(5))"; "" for a Box.

    Spaces that say the same are flattened alike. Long texts end in their checksum.
    """
    said = "" if isinstance(space, spaces.Box) else _said(space)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}... {hashlib.sha256(said.encode()).hexdigest()}"


def _said(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Dict):
        return f"Dict({', '.join(f'{key!r}: {_said(part)}' for key, part in space.spaces.items())})"
    if isinstance(space, spaces.Tuple):
        return f"Tuple({', '.join(map(_said, space.spaces))})"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})" if space.start == 0 else f"Discrete({space.n}, start={space.start})"
    if isinstance(space, spaces.MultiDiscrete):
        start = f", start={space.start.tolist()}" if space.start.any() else ""
        return f"MultiDiscrete({space.nvec.tolist()}{start})"
    kind = next((kind.__name__ for kind in (spaces.Box, spaces.MultiBinary) if isinstance(space, kind)), type(space).__name__)
    return f"{kind}({spaces.flatdim(space)})"


def _part_without_length(space: spaces.Space[Any], where: str) -> str:
    """Return which part of a space, by its keys, cannot be flattened to a fixed length."""
    parts: list[tuple[Any, spaces.Space[Any]]] = list(space.spaces.items()) if isinstance(space, spaces.Dict) else []
    parts = list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else parts
    for key, part in parts:
        with contextlib.suppress(ValueError, NotImplementedError):
            spaces.flatdim(part)
            continue
        return _part_without_length(part, f"its part {key!r}" if where == "it" else f"{where}[{key!r}]")
    return where if where == "it" else f"{where}, {space},"


def flat_size(space: spaces.Space[Any]) -> int:
    """Return the length of a flattened observation; ValueError for a space that has none."""
    try:
        size = int(spaces.flatdim(space))
    except (ValueError, NotImplementedError):
        where = _part_without_length(space, "it")
        keys = " (gymnasium.wrappers.FilterObservation keeps those keys of a Dict that it is given)"
        raise ValueError(
            f"observation space {space} is not supported: {where} has no fixed length. Expected Box (of {DTYPES}), Discrete, "
            "MultiDiscrete, MultiBinary, or Dict and Tuple of these; wrap the environment to return one of them"
            f"{keys if isinstance(space, spaces.Dict) else ''}"
        ) from None
    if size == 0:
        raise ValueError(f"observation space {space} is empty: expected at least one value")
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind not in "fiub":
        raise ValueError(f"observation space {space} has dtype {space.dtype}: expected {DTYPES}")
    return size
