"""One observation or several: how the two are distinguished for flattened spaces, and become rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from fastes.errors import shown
from fastes.rollout.observations.layout import layout_of

Space = spaces.Space[Any]
_ONE = -1  # stands for a single observation where others have the length of a batch


class _Misfit(ValueError):
    """Names the part of an observation that does not fit."""


def observation_rows(space: Space, observation: Any) -> tuple[list[Any], bool]:
    """The observations that are meant, each as ObservationReader takes it, and whether it was just one.

    Shapes decide, in this order: one observation of the space; a batch, stacked along a new first axis in every array (a
    dict of arrays (n, ...), a tuple of such arrays, an int array (n,) for Discrete, as SB3's and Gymnasium's vector
    environments return them); a list, or an array of objects, of observations. For a Tuple space only a tuple is read
    as stacked: a list of tuples is a list of observations.

    Layouts are those of `layout_of`. Choices (Discrete, MultiDiscrete) have to be whole numbers; those outside of the space are
    the reader's to tell of. Raises ValueError that names the part that does not fit.
    """
    try:
        if _is_listed(space, observation):
            for index, item in enumerate(observation):
                if _lengths(space, item, f"observation[{index}]") - {_ONE}:
                    raise _Misfit(f"observation[{index}] is a batch itself")
            return [_row(space, item, ...) for item in observation], False
        lengths = _lengths(space, observation, "observation") or {_ONE}
    except _Misfit as misfit:
        raise ValueError(
            f"{misfit}; the observation space is {space}: expected one observation of it, a batch stacked along a new first "
            "axis of each array, or a list of observations"
        ) from None
    if lengths == {_ONE}:
        return [_row(space, observation, ...)], True
    return [_row(space, observation, index) for index in range(lengths.pop())], False


def misfit(space: Space, observation: Any) -> str:
    """Why an observation is not a single one of a space, and at which part; '' if it is one."""
    try:
        lengths = _lengths(space, observation, "observation") or {_ONE}
    except _Misfit as found:
        return str(found).partition(", or (n")[0]
    return "" if lengths == {_ONE} else f"observation is {_short(observation)}, a batch of {lengths.pop()}"


def _is_listed(space: Space, observation: Any) -> bool:
    """Whether each item is an observation of a Dict or Tuple space."""
    if not _has_items(observation) or not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return False
    if isinstance(space, spaces.Dict) or isinstance(observation, tuple):
        return isinstance(space, spaces.Dict)
    try:
        return _lengths(space, tuple(observation), "observation") != {_ONE}
    except _Misfit:
        return True


def _has_items(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _lengths(space: Space, value: Any, where: str) -> set[int]:
    """The length of the batch that value is, or _ONE; nothing for a space without parts. Raises _Misfit."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or not set(space.spaces) <= set(value):
            got = f"has keys {sorted(map(str, value))}" if isinstance(value, Mapping) else f"is {_short(value)}"
            raise _Misfit(f"{where} {got}: expected a dict with keys {sorted(space.spaces)}")
        parts = [_lengths(part, value[key], f"{where}[{key!r}]") for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        if not _has_items(value) or len(value) != len(space.spaces):
            raise _Misfit(f"{where} is {_short(value)}: expected a tuple of {len(space.spaces)} parts")
        parts = [_lengths(part, value[k], f"{where}[{k}]") for k, part in enumerate(space.spaces)]
        if not isinstance(value, tuple) and any(part - {_ONE} for part in parts):
            raise _Misfit(f"{where} is a {type(value).__name__} of batches: expected a tuple of them")
    else:
        return {_length_of_leaf(space, value, where)}
    found = set[int]().union(*parts)
    if len(found) > 1:
        words = sorted("one observation" if n == _ONE else f"a batch of {n}" for n in found)
        raise _Misfit(f"{where} mixes {' and '.join(words)}")
    return found


def _length_of_leaf(space: Space, value: Any, where: str) -> int:
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        if space.contains(value):
            return _ONE
        if _has_items(value) and all(space.contains(item) for item in value):
            return len(value)
        raise _Misfit(f"{where} is {_short(value)}, which is not in {space}")
    try:
        array = np.asarray(value)
    except ValueError:
        raise _Misfit(f"{where} is {_short(value)}: expected numbers of one shape") from None
    if array.dtype.kind not in "fiub":
        raise _Misfit(f"{where} is {_short(value)} with dtype {array.dtype}: expected numbers")
    shape = space.shape or ()
    if array.shape == shape:
        length = _ONE
    elif array.ndim and array.shape[1:] == shape:
        length = len(array)
    elif layout_of(array.shape, shape) is not None:
        length = _ONE
    elif array.ndim and layout_of(array.shape[1:], shape) is not None:
        length = len(array)
    else:
        rows = f"(n, {', '.join(map(str, shape))})" if shape else "(n,)"
        raise _Misfit(f"{where} has shape {array.shape}: expected {shape}, or {rows} for a batch of n")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and array.dtype.kind == "f":
        odd = array[~(np.floor(array) == array)]
        if odd.size:
            raise _Misfit(f"{where} has the value {odd.flat[0]}, which is not in {space}")
    return length


def _row(space: Space, value: Any, index: Any) -> Any:
    """One observation of a batch; with `...` the value is one itself."""
    if isinstance(space, spaces.Dict):
        return {**value, **{key: _row(part, value[key], index) for key, part in space.spaces.items()}}  # more keys are told of
    if isinstance(space, spaces.Tuple):
        return tuple(_row(part, value[k], index) for k, part in enumerate(space.spaces))
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.asarray(value)[index]
    return value if index is ... else value[index]


def _short(value: Any) -> str:
    return f"the {type(value).__name__} {shown(value, 100)}"
