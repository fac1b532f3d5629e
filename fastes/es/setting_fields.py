"""A field of settings: its default, what it is for, what it may be, and the check of all that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from fastes.errors import check_int, shown, suggest

_REAL = (int, float, np.integer, np.floating)


def setting(default: Any, text: str, group: str, **kind: Any) -> Any:
    """A dataclass field. kind: low, high (inclusive), above, below (exclusive), choices."""
    metadata = {"help": text, "group": group, **kind}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def checked_number(name: str, value: object, expected: str) -> float:
    """A number that is none of NaN, or an error that says what was expected."""
    if isinstance(value, str):
        raise ValueError(f"{name} = {shown(value)}: expected {expected}")
    if isinstance(value, bool) or not isinstance(value, _REAL):
        raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected {expected}")
    try:
        number = float(value)
    except OverflowError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"{name} = {repr(value)[:100]}: expected {expected}")
    return number


def checked(name: str, value: Any, kind: object, limits: Mapping[str, Any]) -> Any:
    """The value as a plain one, checked by a field's type and metadata."""
    if kind == "int" and "low" in limits:
        return check_int(name, value, limits["low"], limits.get("high", 2**62))
    if kind == "bool":
        if not isinstance(value, bool):
            raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected True or False")
    elif kind == "float":
        return _checked_float(name, value, limits)
    elif "choices" in limits and (not isinstance(value, str) or value not in limits["choices"]):
        raise ValueError(f"{name} = {shown(value)}: expected one of {limits['choices']}{suggest(value, limits['choices'])}")
    elif isinstance(value, np.generic):
        return value.item()
    return value


def _checked_float(name: str, value: Any, limits: Mapping[str, Any]) -> float:
    if isinstance(value, str):
        raise TypeError(f"{name} = {value!r} is a str: expected a number")
    value = checked_number(name, value, "a number")
    low, above = limits.get("low", -math.inf), limits.get("above", -math.inf)
    high, below = limits.get("high", math.inf), limits.get("below", math.inf)
    if not (math.isfinite(value) and low <= value <= high and above < value < below):
        raise ValueError(f"{name} = {shown(value)} is out of range: {limits['help']}")
    return float(value)
