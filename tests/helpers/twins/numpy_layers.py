"""The NumPy twins of the layers in src/, bit for bit, and of the functions of one value that other kernels use, too.

`Actor` in numpy_kernels.py puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]  # of float32; the type stubs call it float64 after arithmetic with a Python number

LARGE_MATRIX, DENSE_INPUTS = 131072, 64  # FASTES_LARGE_MATRIX, FASTES_DENSE_INPUTS
BATCH_NORM_EPSILON = 1e-3  # FASTES_BATCH_NORM_EPSILON


def tanh(x: Array) -> Array:
    """Twin of vtanh: a rational function c p(c^2) / q(c^2) of c = clip(x, -9, 9), limited to [-1, 1]."""
    c = clip(x, -9, 9)
    z = c * c
    p = 1.0 + z * (0.13381021 + z * (3.4955828e-3 + z * (2.0608997e-5 + z * 1.3354548e-8)))
    q = 1.0 + z * (0.46714336 + z * (2.5876962e-2 + z * (3.2856263e-4 + z * 7.7765105e-7)))
    return clip(c * p / q, -1, 1)


def expm1(x: Array) -> Array:
    """Twin of vexpm1: exp(x) - 1 for x <= 0. x = k ln 2 + r: 2^k (e^r - 1) + (2^k - 1)."""
    c = np.where(x > -18, x, np.float32(-18))
    k = np.trunc(c * 1.4426950 - 0.5)
    r = (c - k * 0.693359375) + k * 2.1219444e-4
    series = 0.5 + r * (0.16666667 + r * (4.1666667e-2 + r * (8.3333333e-3 + r * (1.3888889e-3 + r * 1.9841270e-4))))
    power = ((k.astype(np.int32) + 127) << 23).view(np.float32)
    return power * (r + r * r * series) + (power - 1.0)


def clip(x: Array, low: npt.ArrayLike, high: npt.ArrayLike) -> Array:
    """low where x < low, high where x > high, else x: NaN stays."""
    low, high = np.asarray(low, dtype=x.dtype), np.asarray(high, dtype=x.dtype)
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def dense(x: Float32, weight: Float32, bias: Float32 | None) -> Float32:
    """Twin of dense: x (in,) . weight (in, out) + bias. Inputs i, i + 4, ... share a sum: ((0 + 1) + (2 + 3)) + bias.

    Of a large matrix DENSE_INPUTS inputs after each other do, without those that are 0: (0 + 1 + 2 + ...) + bias.
    """
    if weight.size > LARGE_MATRIX:
        y: Float32 = np.zeros(weight.shape[1], dtype=np.float32)
        for first in range(0, len(x), DENSE_INPUTS):
            part = np.zeros_like(y)
            for i in range(first, min(first + DENSE_INPUTS, len(x))):
                if x[i] != 0:
                    part += weight[i] * x[i]
            y += part
        return y if bias is None else y + bias
    sums = np.zeros((4, weight.shape[1]), dtype=np.float32)
    for i, row in enumerate(weight):
        sums[i % 4] += row * x[i]
    y = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return y if bias is None else y + bias


def no_values() -> Float32:
    return np.zeros(0, dtype=np.float32)


@dataclass
class Memory:
    """What an actor keeps for one layer.

    state: what it remembers within an episode, (state_size,); it may change it.
    observation: of this step, flat, for a layer that reads an image.
    observed: the values that are observed of it, (obs_size,).
    joined: what layers that join have read in this step, (all they read,), the same array for all layers.
    scale, shift: of virtual batch normalisation, (channels,).
    """

    state: Float32
    observation: Array = field(default_factory=no_values)
    observed: Float32 = field(default_factory=no_values)
    joined: Float32 = field(default_factory=no_values)
    scale: Float32 = field(default_factory=no_values)
    shift: Float32 = field(default_factory=no_values)


def dense_layer(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of run_layer for a dense one."""
    return dense(x, parameters["weight"], parameters.get("bias"))


def convolution(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of convolve: the sum over i, j, k, in order, of x[r stride + i, c stride + j, k] weight[i, j, k], plus the bias."""
    x, weight = x.reshape(layer.height, layer.width, layer.channels), parameters["weight"]
    rows, columns, stride = layer.rows, layer.columns, layer.stride
    sums = np.zeros((rows, columns, layer.filters), dtype=np.float32)
    for i, j, k in np.ndindex(weight.shape[:3]):
        under = x[i : i + rows * stride : stride, j : j + columns * stride : stride, k, np.newaxis]
        sums += under[:rows, :columns] * weight[i, j, k]
    return (sums + parameters["bias"] if layer.use_bias else sums).ravel()


def image_convolution(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of convolve_image: the same of the observation's values from `first` on, as float32 times 1 / divisor."""
    image = memory.observation[layer.first : layer.first + layer.inputs].astype(np.float32)
    image = image * (np.float32(1) / np.float32(layer.divisor))
    if layer.planes > 1:
        image = np.moveaxis(image.reshape(layer.planes, layer.height, layer.width, -1), 0, 2)
    return convolution(layer, image.ravel(), parameters, memory)


def virtual_batch_norm(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of normalize_batch: x * scale + shift, by channel."""
    y: Float32 = x.reshape(-1, layer.channels) * memory.scale + memory.shift
    return y.ravel()


def batch_scale_and_shift(layer: Any, inputs: Float32, parameters: Mapping[str, Float32]) -> tuple[Float32, Float32]:
    """Twin of add_batch_moments and fold_moments, of what the layer reads for each observation of a batch, (n, inputs)."""
    sums = np.zeros((2, layer.channels))
    for position in inputs.reshape(-1, layer.channels).astype(np.float64):
        sums += position, position * position
    count = inputs.size // layer.channels
    mean = sums[0] / count
    variance = sums[1] / count - mean * mean
    variance = np.where(variance > 0, variance, 0.0)
    scale = parameters["gamma"].astype(np.float64) / np.sqrt(variance + BATCH_NORM_EPSILON)
    return scale.astype(np.float32), (parameters["beta"] - mean * scale).astype(np.float32)


def append(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of append_observed."""
    return np.concatenate([x, memory.observed])


def join(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of join_features."""
    memory.joined[layer.before : layer.outputs] = x
    return memory.joined[: layer.outputs].copy()


def sigmoid(x: Array) -> Array:
    """Twin of vsigmoid."""
    y: Array = tanh(x * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)
    return y


def lstm(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of lstm: i, f, g, o = h . weight_h + (x . weight_x + bias)."""
    weight, (h, c) = parameters["weight"], memory.state.reshape(2, layer.outputs)
    i, f, g, o = dense(h, weight[layer.inputs :], dense(x, weight[: layer.inputs], parameters["bias"])).reshape(4, -1)
    c[:] = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h[:] = sigmoid(o) * tanh(c)
    return np.array(h)


def gru(layer: Any, x: Float32, parameters: Mapping[str, Float32], memory: Memory) -> Float32:
    """Twin of gru."""
    weight, h, (*gates, b) = parameters["weight"], memory.state, parameters["bias"].reshape(4, layer.outputs)
    r, z, n = dense(x, weight[: layer.inputs], np.concatenate(gates)).reshape(3, -1)
    of_h = dense(h, weight[layer.inputs :], None).reshape(3, -1)
    new = tanh(n + sigmoid(r + of_h[0]) * (of_h[2] + b))
    h[:] = new + sigmoid(z + of_h[1]) * (h - new)
    return np.array(h)


def relu(x: Array) -> Array:
    """Twin of vrelu: +0 where x <= 0; NaN stays."""
    return np.where(x <= 0, np.float32(0), x)


def elu(x: Array) -> Array:
    """Twin of velu."""
    return np.where(x < 0, expm1(np.where(x < 0, x, np.float32(0))), x)


# A layer, what it reads, its parameters by name, and its memory -> what it writes, before the activation.
LayerTwin = Callable[[Any, Float32, Mapping[str, Float32], Memory], Float32]

LAYERS: dict[str, LayerTwin] = {
    "dense": dense_layer,
    "convolution": convolution,
    "image_convolution": image_convolution,
    "virtual_batch_norm": virtual_batch_norm,
    "append": append,
    "lstm": lstm,
    "gru": gru,
    "join": join,
}
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"identity": lambda x: x, "tanh": tanh, "relu": relu, "elu": elu}
