"""Schedules of the learning rate and sigma: a value as a function of the progress that remains."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Schedule = Callable[[float], float]
ScheduleSetting = float | str | Schedule

FORMS = "a positive number, 'lin_0.02' (falls to zero), 'lin_0.02_0.005' (falls to the second), or a function"


def make_schedule(name: str, value: ScheduleSetting) -> Schedule:
    """A schedule as in SB3: called with the progress that remains, from 1 at the start to 0 at the end of the budget.

    value: a positive number, 'lin_A' (from A to zero), 'lin_A_B' (from A to B), or such a function. name: for messages.
    """
    if callable(value):
        function = value
        return lambda remaining: checked_value(name, function(remaining))
    if isinstance(value, str):
        parts = value.split("_")
        try:
            numbers = [float(part) for part in parts[1:]]
        except ValueError:
            numbers = []
        if parts[0] != "lin" or not 1 <= len(numbers) <= 2:
            raise ValueError(f"{name} = {value!r} is not a schedule: expected {FORMS}")
        first = checked_value(name, numbers[0])
        last = checked_value(name, numbers[1]) if len(numbers) == 2 else 0.0
        return lambda remaining: last + (first - last) * remaining
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} = {value!r} is a {type(value).__name__}: expected {FORMS}")
    constant = checked_value(name, value)
    return lambda _: constant


def checked_value(name: str, value: float) -> float:
    """value as a float, or ValueError when it is not positive and finite."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} = {value!r} is a {type(value).__name__}: expected {FORMS}") from None
    if not math.isfinite(number) or number <= 0.0:
        raise ValueError(f"{name} = {value!r} is not a positive finite number: expected {FORMS}")
    return number
