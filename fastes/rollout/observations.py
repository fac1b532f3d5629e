"""Turns an observation into the one array that a policy reads, tells one from a batch, and describes one that does not fit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import shown, warn_user

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Space = spaces.Space[Any]
Read = Callable[[Any], Array]
Notify = Callable[[str, str], None]  # takes what kind of thing is said, which is said once, and the text

CHANNELS_FIRST = "its channels come first and are moved to the end"
_ONE = -1  # stands for a single observation where others have the length of a batch


class Layout(NamedTuple):
    """A function that brings an array into the shape of its space, and a description of that."""

    arrange: Callable[[Array], Array]
    said: str


def layout_of(given: Shape, shape: Shape) -> Layout | None:
    """Return the layout that brings an array into a space's shape; None if it could be read in several ways, or in none."""
    if given == shape:
        return Layout(lambda array: array, "")
    if len(given) == len(shape) == 3:
        if (*given[1:], given[0]) == shape:
            return Layout(lambda array: array.transpose(1, 2, 0), CHANNELS_FIRST)
        if (given[2], *given[:2]) == shape:
            return Layout(lambda array: array.transpose(2, 0, 1), "its channels come last and are moved to the front")
    if [n for n in given if n != 1] == [n for n in shape if n != 1]:
        return Layout(lambda array: array.reshape(shape), "axes of length 1 are left out or added")
    return None


def is_single(given: Shape, shape: Shape) -> bool | None:
    """Whether an array holds one observation of a shape, and not a batch of them; None if neither could be.

    An array with one axis more is a batch, also of one: (1, 1, 84, 84) for (84, 84, 1).
    """
    if given == shape:
        return True
    is_batch = len(given) > 0 and layout_of(given[1:], shape) is not None
    if is_batch and len(given) == len(shape) + 1:
        return False
    if layout_of(given, shape) is not None:
        return True
    return False if is_batch else None


def warn(_: str, said: str) -> None:
    warn_user(said)


class ObservationReader:
    """Reads observations of a space, in training and in `predict` alike.

    A layout that can mean one thing only is accepted. A choice outside of its space becomes all zeros, and a number outside is
    read as it is; each is reported once. Anything else raises TypeError, ValueError or LookupError. Bounds are compared with
    the first observation only: many environments leave them now and then, and nothing else uses them.

    Args:
        space: The observation space.
        notify: Receives the reports.
        bounded: False if a wrapper changes the values, as SB3's VecNormalize does, so that bounds are not compared.

    Attributes:
        read: Turns an observation into an array: `arrange` or `flatten`.
        arrange: For a Box: brings an array of another layout into the space's shape; else None.
        flatten: For any other space: turns an observation into an array (n,); else None.
    """

    def __init__(self, space: Space, notify: Notify = warn, bounded: bool = True) -> None:
        self.space, self.notify, self.bounded = space, notify, bounded
        self._said: set[tuple[str, str]] = set()
        self.read: Read
        self.arrange: Read | None = None
        self.flatten: Read | None = None
        if isinstance(space, spaces.Box):
            self.read = self.arrange = self._box(space, "observation")
        else:
            self.read = self.flatten = self._reader(space, "observation")

    def say(self, where: str, kind: str, said: str) -> None:
        """Report something, once for each kind and each part of the space."""
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
        """Return the value as an array of this shape, if there is only one way to read it so."""
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
        """Report a value of the first observation that is outside of the space."""
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
                    raise ValueError(f"{where} has values that are not choices of {space}")
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
    """Return a choice as an int."""
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
        if not number.is_integer():
            raise ValueError(f"{where} has the value {value}, which is not in {space}") from None
        return int(number)


def _cast(array: Array, dtype: Any) -> Array:
    """Return numbers in the dtype of their space, or unchanged if it cannot hold them.

    Raises:
        TypeError: If the values are not numbers.
    """
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


class _Misfit(ValueError):
    """Names the part of an observation that does not fit."""


def observation_rows(space: Space, observation: Any) -> tuple[list[Any], bool]:
    """Split what was passed into single observations, as ObservationReader reads them.

    Shapes decide, in this order: one observation of the space; a batch, stacked along a new first axis in every array (a
    dict of arrays (n, ...), a tuple of such arrays, an int array (n,) for Discrete, as SB3's and Gymnasium's vector
    environments return them); a list, or an array of objects, of observations. For a Tuple space only a tuple is read
    as stacked: a list of tuples is a list of observations.

    Returns:
        The observations, and whether one was passed instead of a batch.

    Raises:
        ValueError: If a part does not fit; the message names it. Choices outside of the space are left to the reader.
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
    """Return the reason why this is not a single observation of the space, with the part; '' if it is one."""
    try:
        lengths = _lengths(space, observation, "observation") or {_ONE}
    except _Misfit as found:
        return str(found).partition(", or (n")[0]
    return "" if lengths == {_ONE} else f"observation is {_short(observation)}, a batch of {lengths.pop()}"


def _is_listed(space: Space, observation: Any) -> bool:
    """Whether each item is an observation of a Dict or Tuple space."""
    if not _has_items(observation):
        return False
    if isinstance(space, spaces.Dict):
        return True
    if not isinstance(space, spaces.Tuple) or isinstance(observation, tuple):
        return False
    try:
        return _lengths(space, tuple(observation), "observation") != {_ONE}
    except _Misfit:
        return True


def _has_items(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _lengths(space: Space, value: Any, where: str) -> set[int]:
    """Return the length of the batch, or _ONE; {} for a space without parts.

    Raises:
        _Misfit: If a part does not fit.
    """
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
    if (single := is_single(array.shape, shape)) is not None:
        length = _ONE if single else len(array)
    else:
        rows = f"(n, {', '.join(map(str, shape))})" if shape else "(n,)"
        raise _Misfit(f"{where} has shape {array.shape}: expected {shape}, or {rows} for a batch of n")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and array.dtype.kind == "f":
        odd = array[~(np.floor(array) == array)]
        if odd.size:
            raise _Misfit(f"{where} has the value {odd.flat[0]}, which is not in {space}")
    return length


def _row(space: Space, value: Any, index: Any) -> Any:
    """Return one observation of a batch; the value itself if the index is `...`."""
    if isinstance(space, spaces.Dict):
        parts = {key: _row(part, value[key], index) for key, part in space.spaces.items()}
        return {**value, **parts}  # the reader reports other keys
    if isinstance(space, spaces.Tuple):
        return tuple(_row(part, value[k], index) for k, part in enumerate(space.spaces))
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.asarray(value)[index]
    return value if index is ... else value[index]


def _short(value: Any) -> str:
    return f"the {type(value).__name__} {shown(value, 100)}"


def advice_on_step(space: Any, flatten: Any, size: int, returned: Any) -> str:
    """Describe the fault of an observation that may have caused an exception.

    Args:
        space: The observation space.
        flatten: See ObservationReader.
        size: Values of a flattened observation.
        returned: The observation.

    Returns:
        A text; '' if the observation fits, so that the exception has another cause.
    """
    if flatten is None:
        return ""
    try:
        if len(flatten(returned)) == size:
            return ""
    except Exception:  # `misfit` says why
        pass
    what = misfit(space, returned)
    return f"env returned an observation that is not one of its observation_space: {what}; the space is {space}" if what else ""
