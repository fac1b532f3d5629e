"""The setting obs_columns, the values of an observation that a policy sees: indices and ranges, checked, and as columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces

from fastes.system.limits import check_memory

ALL = "all"
_NUMBER = re.compile("[0-9]{1,10}")
_EXPECTED = f"expected {ALL!r}, indices and ranges such as '0:45,60,100:', or a list of these such as [*range(45), 60, '100:']"
COLUMN_BYTES = 36  # memory of a column: an int and a pointer

ObsColumns = str | Sequence[int | str]
Range = tuple[int, int | None]  # from the first column to before the second; None for no end


def checked_columns(value: object) -> str:
    """Return indices and ranges as one string, each run of columns as a range, in their order; ALL for all columns.

    Args:
        value: Such a string, or a list, tuple, range or array of ints and strings.

    Raises:
        TypeError: Another type.
        ValueError: An index that is not a column, or is given twice, or no index at all.
    """
    if isinstance(value, str):
        items = value.split(",") if value.strip() else []
    elif isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        items = [part for item in value for part in _parts(value, item)]
    else:
        raise TypeError(f"obs_columns = {value!r:.100} is a {type(value).__name__}: {_EXPECTED}")
    if [item.strip() for item in items] == [ALL]:
        return ALL
    ranges = _joined([_range(value, item.strip()) for item in items])
    if not ranges:
        raise ValueError(f"obs_columns = {value!r:.100} is empty, and a policy has to see something: {_EXPECTED}")
    _check_once(value, ranges)
    return ALL if ranges == [(0, None)] else ",".join(map(_written, ranges))


def columns_of(value: object, size: int) -> tuple[int, ...]:
    """Return the columns of an observation of `size` values, in their order; () for all of them in order.

    Raises:
        TypeError, ValueError: As `checked_columns`, and for a column that such an observation does not have.
        OSError: More columns than fit into memory.
    """
    text = checked_columns(value)
    if text == ALL:
        return ()
    found = []
    for first, past in (_range(text, item) for item in text.split(",")):
        last = size - 1 if past is None else past - 1
        if max(first, last) >= size:
            raise ValueError(
                f"obs_columns = {text!r:.100} is out of range at {first if past is None else last}: observations have {size} "
                f"values, so that expected are columns from 0 to {size - 1}"
            )
        found.append((first, last + 1))
    if found == [(0, size)]:
        return ()
    count = sum(past - first for first, past in found)
    check_memory({f"{count:,} columns of observations": COLUMN_BYTES * count}, "choose fewer (obs_columns)")
    return tuple(column for first, past in found for column in range(first, past))


def columns_in(value: object, space: spaces.Space[Any], size: int) -> tuple[int, ...]:
    """Return `columns_of` for a space of flat observations of `size` values; ValueError unless it is a row of features."""
    text = checked_columns(value)
    if text == ALL:
        return ()
    if isinstance(space, spaces.Box) and len(space.shape) != 1:
        raise ValueError(
            f"obs_columns = {text!r:.100} chooses among the values of flat observations, and these have shape {space.shape}: "
            "leave it out, or flatten them (gymnasium.wrappers.FlattenObservation)"
        )
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        raise ValueError(
            f"obs_columns = {text!r:.100} chooses among numbers, and an observation of {space} is a choice: leave it out"
        )
    return columns_of(text, size)


def _parts(value: object, item: object) -> list[str]:
    """Return an item of a list as strings."""
    if isinstance(item, str):
        return item.split(",")
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return [str(int(item))]
    raise TypeError(f"obs_columns = {value!r:.100} has the item {item!r:.50}, a {type(item).__name__}: {_EXPECTED}")


def _range(value: object, item: str) -> Range:
    """Parse '60', '0:45', '100:', ':45' or ':'."""
    first, colon, past = item.partition(":")
    numbers = [first or "0", past or "0"] if colon else [first]
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        raise ValueError(f"obs_columns = {value!r:.100} has the item {item!r:.50}: {_EXPECTED}")
    begin = int(numbers[0])
    end: int | None = begin + 1
    if colon:
        end = int(past) if past else None
    if end is not None and end <= begin:
        raise ValueError(f"obs_columns = {value!r:.100} has the range {item!r:.50}, in which nothing is: {_EXPECTED}")
    return begin, end


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges, with adjacent ones joined."""
    joined: list[Range] = []
    for first, past in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], past)
        else:
            joined.append((first, past))
    return joined


def _check_once(value: object, ranges: Sequence[Range]) -> None:
    """Raise ValueError if a column is in two ranges."""
    ordered = sorted(ranges, key=lambda each: each[0])
    for (_, past), (first, _) in pairwise(ordered):
        if past is None or first < past:
            raise ValueError(f"obs_columns = {value!r:.100} has column {first} twice: {_EXPECTED}")


def _written(columns: Range) -> str:
    first, past = columns
    if past is None:
        return f"{first}:"
    return str(first) if past == first + 1 else f"{first}:{past}"
