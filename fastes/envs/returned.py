"""Checks of the rewards, flags and infos that reset and step return."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.errors import shown

# types of rewards that need no further check
NUMBERS = (float, np.floating, int, np.integer, np.bool_)
NUMPY_TRUE, NUMPY_FALSE = np.True_, np.False_  # there is one of each
TIMED_OUT = "TimeLimit.truncated"  # SB3's key in an info: the episode has not ended by itself
_PLAIN_KINDS = "biuf"  # of NumPy's dtypes


def scalar_of(value: Any) -> float | None:
    """Return the number in a real scalar or a 0-d array (NumPy's, torch's); None for anything else."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "O" and value.shape == ():
        return scalar_of(value.item())
    shape = getattr(value, "shape", None)
    known = isinstance(value, numbers.Number) if shape is None else tuple(shape) == ()
    if not known or (kind and kind not in _PLAIN_KINDS):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def reward_of(value: Any) -> float:
    """Return a reward as a float. Raises TypeError for anything but a scalar or a 0-d array."""
    if (number := scalar_of(value)) is None:
        raise TypeError(
            f"env.step returned the reward {described(value)}: expected one number; return float(reward), of several for "
            "instance their sum"
        )
    return number


def is_over(terminated: Any, truncated: Any) -> bool:
    """Return whether one of both is true. Raises TypeError for anything but True, False, 1 and 0, as scalars or 0-d arrays."""
    return _flag("terminated", terminated) | _flag("truncated", truncated)


def _flag(name: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    if value is NUMPY_TRUE or value is NUMPY_FALSE:
        return value is NUMPY_TRUE
    if (number := scalar_of(value)) is None or number not in (0.0, 1.0):
        raise TypeError(
            f"env.step returned {name} = {described(value)}: expected True or False; return bool({name}), of several for "
            f"instance any({name})"
        )
    return bool(number)


def success_of(info: Any) -> float:
    """Return 1.0 or 0.0 by the last step's info['is_success'], which goal environments have; NaN if it is missing or None.

    Raises TypeError for anything but a scalar or a 0-d array.
    """
    success = info.get("is_success") if isinstance(info, Mapping) else None
    if success is None:
        return math.nan
    if (number := scalar_of(success)) is None:
        raise TypeError(
            f"env.step returned info['is_success'] = {described(success)}: expected True or False; return bool(is_success), "
            "of several for instance all(is_success)"
        )
    return number if math.isnan(number) else float(number != 0.0)


def observation_and_info(returned: Any) -> tuple[Any, Any]:
    """Return the result of reset as a pair. Raises TypeError if it is not one, or if its info is neither a dict nor None."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TypeError(f"env.reset returned {_kind_of(returned)}: expected (observation, info), as Gymnasium has it")
    if not isinstance(returned[1], (Mapping, type(None))):
        raise TypeError(
            f"env.reset returned a {type(returned).__name__} of 2 whose second item is {described(returned[1])}: expected "
            "(observation, info), as Gymnasium has it, where info is a dict"
        )
    return returned[0], returned[1]


def rewards_of(values: Any, count: int) -> npt.NDArray[Any]:
    """Return the rewards of a vector environment's step, an array (count,). Raises TypeError for anything else."""
    array = values if isinstance(values, np.ndarray) else _array_of(values)
    if array is None or array.shape != (count,) or array.dtype.kind not in _PLAIN_KINDS:
        raise TypeError(
            f"the vector environment's step returned the rewards {described(values)}: expected an array of {count} numbers, "
            f"of shape ({count},), one for each environment"
        )
    return array


def flags_of(name: str, values: Any, count: int) -> npt.NDArray[np.bool_]:
    """Return flags of a vector environment's step, bool (count,). Raises TypeError for anything else."""
    array = values if isinstance(values, np.ndarray) else _array_of(values)
    if array is not None and array.shape == (count,):
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind in _PLAIN_KINDS and np.isin(array, (0, 1)).all():
            return array.astype(bool)
    raise TypeError(
        f"the vector environment's step returned {name} = {described(values)}: expected an array of {count} flags, of shape "
        f"({count},), one for each environment"
    )


def _array_of(values: Any) -> npt.NDArray[Any] | None:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a torch tensor is on a GPU or has a gradient
        return None


def described(value: Any) -> str:
    """Return a value in a few words: how it prints, its type and its shape."""
    try:
        printed = " ".join(shown(value, 100).split())
    except Exception as error:  # a value may be anything
        printed = f"(its repr raises {type(error).__name__})"
    return f"{printed}, {_kind_of(value)}"


def _kind_of(value: Any) -> str:
    sizes = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    if not sizes and isinstance(value, (tuple, list)):
        sizes = f" of {len(value)}"
    return f"a {type(value).__name__}{sizes}"
