"""Arrays of another shape than their space that can mean one thing only: channels elsewhere, axes of length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

CHANNELS_FIRST = "its channels come first and are moved to the end"


class Layout(NamedTuple):
    """How an array comes into the shape of its space, and what that is in words."""

    arrange: Callable[[Array], Array]
    said: str


def layout_of(given: Shape, shape: Shape) -> Layout | None:
    """The layout of an array of a given shape for a space of this shape; None where its values have no certain place."""
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
