"""Arrays of numbers: their types, and numbers from a user as an array, or an error that says which value is not a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.errors import shown

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_NONE = (str, bytes, complex, type(None))  # no real numbers, though NumPy turns some into floats


def number_array(name: str, value: Any, expected: str, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return a new array of real numbers; numbers beyond the largest of the dtype become infinite.

    Args:
        name: Name of the argument, for errors.
        value: An array, a tensor, or lists of numbers, of any shape.
        expected: The expected value, for errors.
        dtype: Of the new array.

    Raises:
        ValueError: Nested lists have different lengths.
        TypeError: A value is not a number, such as None or a text.
    """
    try:
        array = np.asarray(_without_gradient(value))
    except ValueError as error:
        raise ValueError(f"{name} differ in shape: expected {expected}") from error
    if array.dtype.kind == "O" and _first_odd(array) is None:
        array = np.array([_as_float(item) for item in array.ravel()]).reshape(array.shape)
    if array.dtype == dtype:
        return np.array(array)
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            return array.astype(dtype)
    given = np.asarray(value, dtype=object)  # text makes text of the numbers beside it
    place, item = _first_odd(given) or ((), value)
    where = f"have {shown(item, 100)} at {', '.join(map(str, place))}" if place else f"are {shown(item, 100)}"
    raise TypeError(f"{name} {where}, a {type(item).__name__}: expected {expected}")


def _without_gradient(value: Any) -> Any:
    """Return torch's tensors, alone or in a list, in a form that NumPy takes: without gradients, bfloat16 as float32."""
    if isinstance(value, (list, tuple)):
        return [_without_gradient(item) if hasattr(item, "detach") else item for item in value]
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return tensor.float() if str(getattr(tensor, "dtype", "")) == "torch.bfloat16" else tensor


def _first_odd(array: npt.NDArray[Any]) -> tuple[tuple[int, ...], Any] | None:
    """Return place and value of the first item that is not a number."""
    for place, item in np.ndenumerate(array):
        try:
            if isinstance(item, _NONE) or not isinstance(_as_float(item), float):
                return place, item
        except (TypeError, ValueError):
            return place, item
    return None


def _as_float(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:  # a whole number beyond the largest float
        return math.copysign(math.inf, 1 if item > 0 else -1)
