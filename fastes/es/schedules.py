"""Schedules of the learning rate, sigma, the alive bonus and episodes: a value as a function of the progress that remains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastes.errors import check_int, shown, whole
from fastes.es.portable_math import exp, log
from fastes.setting_fields import plain

Schedule = Callable[[float], float]
ScheduleSetting = float | str | Schedule


class Allowed(NamedTuple):
    """The numbers that a schedule may have, and their words in messages."""

    above: float
    number: str
    forms: str

    def has(self, number: float) -> bool:
        return math.isfinite(number) and number > self.above


class Whole(NamedTuple):
    """The whole numbers that a setting may have, and the ends of a schedule that messages show; schedules stay above 0."""

    low: int
    high: int
    example: str

    @property
    def forms(self) -> str:
        return (
            f"a whole number of at least {self.low}, 'lin_{self.example}' (goes from the first to the second), or "
            f"'exp_{self.example}' (the same, by equal factors in equal times); each value of a schedule is at least 1, and "
            "rounded to a whole number"
        )


FORMS = (
    "a positive number, 'lin_0.02' (falls to zero), 'lin_0.02_0.005' (falls to the second), 'exp_0.02_0.001' (the same, by "
    "equal factors in equal times), or a function"
)
ANY_FORMS = (
    "a number, 'lin_1' (goes to zero), 'lin_0_1' (goes from the first to the second), 'exp_0.1_1' (the same, by equal factors "
    "in equal times, both above zero), or a function"
)
POSITIVE = Allowed(0.0, "positive finite number", FORMS)
ANY_NUMBER = Allowed(-math.inf, "finite number", ANY_FORMS)
_NUMBERS = {"lin": (1, 2), "exp": (2,)}  # how many each kind of schedule may have


@dataclass(frozen=True)
class _Checked:
    """A user's function, whose values are checked."""

    name: str
    function: Schedule
    allowed: Allowed

    def __call__(self, remaining: float) -> float:
        found = self.function(remaining)
        try:
            return checked_value(self.name, found, self.allowed)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{self.name} is a function, which returned {shown(found)} when {remaining:.4g} of the progress remained: "
                f"expected a {self.allowed.number}"
            ) from None


@dataclass(frozen=True)
class _Constant:
    value: float

    def __call__(self, remaining: float) -> float:  # noqa: ARG002
        return self.value


@dataclass(frozen=True)
class _Linear:
    first: float
    last: float

    def __call__(self, remaining: float) -> float:
        return self.last + (self.first - self.last) * remaining


@dataclass(frozen=True)
class _Exponential:
    """first^r last^(1 - r), r the progress that remains, within [0, 1]; both ends are positive and exact."""

    first: float
    last: float

    def __call__(self, remaining: float) -> float:
        first, last = self.first, self.last
        if not 0.0 < remaining < 1.0:
            return first if remaining >= 1.0 else last
        low, high = min(first, last), max(first, last)
        rate = float(log(np.array([high]))[0] - log(np.array([low]))[0])
        from_high = 1.0 - remaining if first >= last else remaining
        return max(high * exp(-rate * from_high), low)


def make_schedule(name: str, value: ScheduleSetting, allowed: Allowed = POSITIVE) -> Schedule:
    """Return a schedule as in SB3: called with the progress that remains, from 1 at the start to 0 at the end of the budget.

    Args:
        name: The setting's name, for messages.
        value: An allowed number, 'lin_A' (from A to zero), 'lin_A_B' (from A to B), 'exp_A_B' (from A to B, both above zero,
            along an exponential), or such a function.
        allowed: The numbers that it may have.

    Raises:
        TypeError, ValueError: The value is not a schedule, or has other numbers.
    """
    if callable(value):
        return _Checked(name, value, allowed)
    if isinstance(value, str):
        parts = value.split("_")
        try:
            numbers = [float(part) for part in parts[1:]]
        except ValueError:
            numbers = []
        if len(numbers) not in _NUMBERS.get(parts[0], ()):
            raise ValueError(f"{name} = {value!r} is not a schedule: expected {allowed.forms}")
        if parts[0] == "exp":
            if not all(POSITIVE.has(number) for number in numbers):
                raise ValueError(
                    f"{name} = {value!r} does not go between two positive finite numbers: expected {allowed.forms}"
                )
            if math.isinf(max(numbers) / min(numbers)):
                raise ValueError(
                    f"{name} = {value!r} has ends whose ratio is more than a float can hold: bring them closer together"
                )
            return _Exponential(*numbers)
        first = checked_value(name, numbers[0], allowed)
        last = checked_value(name, numbers[1], allowed) if len(numbers) == 2 else 0.0
        if not math.isfinite(first - last):
            raise ValueError(f"{name} = {value!r} goes over more than a float can hold: expected {allowed.forms}")
        return _Linear(first, last)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected {allowed.forms}")
    return _Constant(checked_value(name, value, allowed))


def scheduled(allowed: Allowed | Whole) -> dict[str, Any]:
    """Return the arguments of `setting` for a setting that takes a number or a schedule."""

    def check(name: str, value: Any) -> Any:
        if isinstance(allowed, Whole):
            return checked_count(name, value, allowed)
        make_schedule(name, value, allowed)
        return plain(value)

    functions = {} if isinstance(allowed, Whole) else {"missing": missing_schedule}
    return {"schedule": allowed, "check": check, **functions}


def missing_schedule(name: str) -> Schedule:
    """Return a stand-in for a user's function in a model that was loaded without it."""

    def schedule(_: float) -> float:
        raise ValueError(f"{name} was a function, which a checkpoint does not hold: pass it, as in load(path, {name}=function)")

    return schedule


def checked_value(name: str, value: float, allowed: Allowed = POSITIVE) -> float:
    """Return the value as a float; ValueError if it is not allowed."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected {allowed.forms}") from None
    if not allowed.has(number):
        raise ValueError(f"{name} = {value!r} is not a {allowed.number}: expected {allowed.forms}")
    return number


def checked_count(name: str, value: object, allowed: Whole) -> int | str:
    """Return a whole number that is allowed, or a schedule of such from 1 on.

    A function is refused: its largest value is unknown.

    Raises:
        TypeError, ValueError: Anything else.
    """
    if not isinstance(value, str):
        if callable(value):
            raise TypeError(f"{name} = {shown(value)} is a function: expected {allowed.forms}")
        try:
            return check_int(name, whole(value), allowed.low, allowed.high)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}, or a schedule such as 'exp_{allowed.example}'") from None
    schedule = make_schedule(name, value, ANY_NUMBER._replace(forms=allowed.forms))
    if not all(1 <= schedule(end) <= allowed.high for end in (1.0, 0.0)):
        raise ValueError(f"{name} = {value!r} does not stay between 1 and {allowed.high}: expected {allowed.forms}")
    return value


def count_at(value: int | str, remaining: float) -> int:
    """Return the value of a checked count or schedule of counts at the progress that remains, within [0, 1]."""
    return math.floor(make_schedule("count", value)(remaining) + 0.5) if isinstance(value, str) else value
