"""Spaces that hypothesis draws, of every kind that can be trained on or has to be refused, and settings to try them with."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st

modest = settings(max_examples=60, deadline=None, derandomize=True)
SMALL: dict[str, Any] = {
    "population_size": 4,
    "seed": 5,
    "preset": "default",
    "target_return": "none",
    "noise_table_size": 20_000,
}
BIG = float(np.finfo(np.float32).max)


@st.composite
def float_boxes(draw: Any, dtypes: tuple[Any, ...], largest: float, unbounded: bool = True) -> spaces.Box:
    """Bounds are drawn for each component: equal, infinite, far away or on one side only."""
    shape = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 2), (1, 3, 2)]))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    width = 8 * dtype.itemsize
    one = st.floats(-largest, largest, width=width) | st.sampled_from([-1.0, 0.0, 1.0])
    size = int(np.prod(shape))
    pairs = [sorted((draw(one), draw(one))) for _ in range(size)]
    if unbounded:
        open_ends = [draw(st.sampled_from([0, 0, 0, 1, 2, 3])) for _ in range(size)]
        pairs = [
            [-np.inf if e & 1 else low, np.inf if e & 2 else high] for (low, high), e in zip(pairs, open_ends, strict=True)
        ]
    low, high = (np.array([pair[k] for pair in pairs], dtype=dtype).reshape(shape) for k in (0, 1))
    return spaces.Box(low, high, shape, dtype)


@st.composite
def int_boxes(draw: Any) -> spaces.Box:
    dtype = np.dtype(draw(st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])))
    info = np.iinfo(dtype)
    low, high = sorted(draw(st.integers(max(info.min, -(2**30)), min(info.max, 2**30))) for _ in range(2))
    return spaces.Box(low, high, draw(st.sampled_from([(), (1,), (4,), (2, 3)])), dtype.type)


STARTS = st.integers(-1000, 1000)
DISCRETE_HAS_DTYPE = "dtype" in inspect.signature(spaces.Discrete).parameters  # not in every Gymnasium 1


@st.composite
def discretes(draw: Any) -> spaces.Discrete:
    kind = {"dtype": draw(st.sampled_from([np.int64, np.int32, np.int16]))} if DISCRETE_HAS_DTYPE else {}
    return spaces.Discrete(draw(st.integers(1, 6)), start=draw(STARTS), **kind)


@st.composite
def multi_discretes(draw: Any) -> spaces.MultiDiscrete:
    """Without uint64, which Gymnasium itself cannot flatten."""
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    dtype = draw(st.sampled_from([np.int64, np.int32, np.int16, np.int8, np.uint8]))
    size = int(np.prod(shape))
    nvec = np.reshape([draw(st.integers(1, 5)) for _ in range(size)], shape)
    lowest = 0 if np.dtype(dtype).kind == "u" else -100
    start = np.reshape([draw(st.integers(lowest, 100)) for _ in range(size)], shape)
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


MULTI_BINARIES = st.sampled_from([1, 4, [2], [2, 3]]).map(spaces.MultiBinary)
CHOICES = discretes() | multi_discretes() | MULTI_BINARIES
HALF = st.just(spaces.Box(-2.0, 2.0, (3,), np.float16))  # Gymnasium cannot sample from every float16 box
LEAVES = float_boxes((np.float32, np.float64), 1000.0) | HALF | int_boxes() | CHOICES
OBSERVATIONS = LEAVES | st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=4,
)
ACTIONS = float_boxes((np.float32, np.float64), BIG) | float_boxes((np.float32, np.float64), 10.0) | CHOICES
NO_LENGTH = st.sampled_from([spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)])
EMPTY = st.sampled_from([spaces.Box(-1.0, 1.0, (0,)), spaces.Box(0, 255, (4, 0), np.uint8)])
BAD_OBSERVATIONS = (
    EMPTY
    | NO_LENGTH
    | st.tuples(LEAVES, NO_LENGTH).map(lambda pair: spaces.Tuple(list(pair)))
    | st.tuples(LEAVES, NO_LENGTH).map(lambda pair: spaces.Dict(dict(zip("ab", pair, strict=True))))
)
BAD_ACTIONS = (
    EMPTY
    | NO_LENGTH
    | st.just(spaces.Text(4))
    | int_boxes()
    | float_boxes((np.float16,), 100.0)
    | st.lists(LEAVES, min_size=1, max_size=2).map(spaces.Tuple)
    | st.dictionaries(st.sampled_from("ab"), LEAVES, min_size=1, max_size=2).map(spaces.Dict)
    | st.lists(LEAVES, min_size=1, max_size=2).map(spaces.OneOf)
)
