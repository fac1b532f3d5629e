"""Turns an environment's observation into the one array that a policy reads, and warns once about odd ones."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import level_outside
from fastes.rollout.observations.layout import layout_of

Array = npt.NDArray[Any]
Space = spaces.Space[Any]
Read = Callable[[Any], Array]


Notify = Callable[[str, str], None]  # takes what kind of thing is said, which is said once, and the text


def warn(_: str, said: str) -> None:
    warnings.warn(said, RuntimeWarning, stacklevel=level_outside())


class ObservationReader:
    """Reads observations of a space, in training and in `predict` alike.

    read: the one of both that there is.
    arrange: an array of the space's shape, of one of a Box, for what arrives in another layout or dtype.
    flatten: the array (n,) of any observation; None for a Box, whose arrays are read as they are.

    A layout that can only mean one thing is taken. Choices outside of their space set none of its places, and numbers outside
    of it are taken as they are; both are said once. TypeError, ValueError or LookupError for anything else.
    Bounds are compared with the first observation alone: most environments leave them now and then, and nothing else uses them.

    notify: receives it.
    bounded: False where a wrapper shows other values than the space has, as SB3's VecNormalize does; bounds are not compared.
    """

    def __init__(self, space: Space, notify: Notify = warn, bounded: bool = True) -> None:
        self.space, self.notify, self.bounded = space, notify, bounded
        self._said: set[tuple[str, str]] = set()
        is_box = isinstance(space, spaces.Box)
        self.read: Read = (
            self._box(space, "observation") if isinstance(space, spaces.Box) else self._reader(space, "observation")
        )
        self.arrange: Read | None = self.read if is_box else None
        self.flatten: Read | None = None if is_box else self.read

    def say(self, where: str, kind: str, said: str) -> None:
        """Once of each kind for each part of the space."""
        if (where, kind) not in self._said:
            self._said.add((where, kind))
            self.notify(f"{where}: {kind}", said)

    def _reader(self, space: Space, where: str) -> Read:
        if isinstance(space, spaces.Dict):
            return self._dict(space, where)
        if isinstance(space, spaces.Tuple):
            parts = [self._reader(part, f"{where}[{number}]") for number, part in enumerate(space.spaces)]
            return lambda values: np.concatenate([read(value) for read, value in zip(parts, values, strict=True)])
        if isinstance(space, spaces.Box):
            as_array, dtype = self._box(space, where), space.dtype
            return lambda value: _cast(as_array(value), dtype).ravel()
        if isinstance(space, spaces.Discrete):
            return self._discrete(space, where)
        if isinstance(space, spaces.MultiDiscrete):
            return self._multi_discrete(space, where)
        if isinstance(space, spaces.MultiBinary):
            return self._multi_binary(space, where)
        return lambda value: np.asarray(spaces.flatten(space, value))

    def _dict(self, space: spaces.Dict, where: str) -> Read:
        parts = [(key, self._reader(part, f"{where}[{key!r}]")) for key, part in space.spaces.items()]

        def read(values: Any) -> Array:
            if len(values) > len(parts):
                more = sorted(str(key) for key in values if key not in space.spaces)
                self.say(where, "keys", f"{where} has the keys {more}, which its space lacks: they are left out")
            return np.concatenate([read_part(values[key]) for key, read_part in parts])

        return read

    def _laid_out(self, value: Any, shape: tuple[int, ...], where: str) -> Array:
        """An array of this shape, if there is one certain way to read it so."""
        array = np.asarray(value)
        if array.shape == shape:
            return array
        if (layout := layout_of(array.shape, shape)) is None:
            raise ValueError(f"{where} has shape {array.shape}: expected {shape}")
        self.say(where, layout.said, f"{where} has shape {array.shape} where its space has {shape}: {layout.said}")
        return layout.arrange(array)

    def _box(self, space: spaces.Box, where: str) -> Read:
        shape, unseen = space.shape, [True] if self.bounded else []

        def read(value: Any) -> Array:
            array = value if type(value) is np.ndarray and value.shape == shape else self._laid_out(value, shape, where)
            if unseen:
                unseen.clear()
                self._compare(space, array, where)
            return array

        return read

    def _compare(self, space: spaces.Box, array: Array, where: str) -> None:
        """Say what of the first observation is outside of the space."""
        if array.dtype.kind not in "fiub":
            return
        with np.errstate(invalid="ignore"):
            outside = (array < space.low) | (array > space.high)
            if np.dtype(space.dtype).kind in "iu":
                outside |= np.floor(array) != array
        if outside.any():
            self.say(
                where,
                "values",
                f"{where} has the value {array[outside].flat[0]!s} with dtype {array.dtype}, which is not in {space}: values "
                "outside of a Box are taken as they are",
            )

    def _discrete(self, space: spaces.Discrete, where: str) -> Read:
        start, count = int(space.start), int(space.n)

        def read(value: Any) -> Array:
            choice = np.zeros(count, np.float32)
            number = _whole(value if type(value) is int else self._laid_out(value, (), where)[()], space, where) - start
            if 0 <= number < count:
                choice[number] = 1.0
            else:
                odd = number + start
                self.say(where, "values", f"{where} has the value {odd}, which is not in {space}: all its places are 0")
            return choice

        return read

    def _multi_discrete(self, space: spaces.MultiDiscrete, where: str) -> Read:
        counts, start = space.nvec.ravel().astype(np.int64), np.asarray(space.start).ravel().astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])

        def read(value: Any) -> Array:
            array = self._laid_out(value, space.nvec.shape, where)
            choices = np.zeros(offsets[-1], np.float32)
            with np.errstate(invalid="ignore"):
                whole = array.astype(np.int64).ravel()
                if array.dtype.kind not in "iu" and not (array.ravel() == whole).all():
                    raise ValueError(f"{where} has values that are no choices of {space}")
            numbers = whole - start
            inside = (numbers >= 0) & (numbers < counts)
            choices[(offsets[:-1] + numbers)[inside]] = 1.0
            if not inside.all():
                odd = whole[~inside][0]
                self.say(where, "values", f"{where} has the value {odd}, which is not in {space}: its places are 0")
            return choices

        return read

    def _multi_binary(self, space: spaces.MultiBinary, where: str) -> Read:
        shape = space.shape

        def read(value: Any) -> Array:
            array = _cast(self._laid_out(value, shape, where), np.float32).ravel()
            if not ((array == 0.0) | (array == 1.0)).all():
                odd = array[(array != 0.0) & (array != 1.0)][0]
                self.say(where, "values", f"{where} has the value {odd:g}, which is not in {space}: it is taken as it is")
            return array

        return read


def _whole(value: Any, space: Space, where: str) -> int:
    """A choice as an int."""
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
        if not number.is_integer():
            raise ValueError(f"{where} has the value {value}, which is not in {space}") from None
        return int(number)


def _cast(array: Array, dtype: Any) -> Array:
    """Numbers in the dtype of their space, as they are where it cannot hold them. TypeError for anything but numbers."""
    dtype = np.dtype(dtype)
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "O":
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"values with dtype {array.dtype}: expected numbers")
    if dtype.kind == "f":
        return array.astype(dtype)
    with np.errstate(invalid="ignore"):
        cast = array.astype(dtype)
    return cast if (cast == array).all() else array
