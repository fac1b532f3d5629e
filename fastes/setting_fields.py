"""A field of settings: its description, from which flags, checks and pages are derived, and the check of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from fastes.errors import check_int, shown, suggest

_REAL = (int, float, np.integer, np.floating)
_KEY = "setting"  # of a field's metadata


class Range(NamedTuple):
    """The numbers from which a tuner draws; whole ones if both ends are.

    Attributes:
        low, high: Inclusive ends.
        log: Whether equal factors are equally likely, not equal differences.
    """

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class SettingDescription:
    """The description of a setting. Flags, checks, reference pages and messages are derived from it.

    Attributes:
        help: One sentence for `--help` and the reference page; an error of a number out of range shows it.
        group: Heading under which both show it.
        low, high: Inclusive limits of a number.
        above, below: Exclusive limits of a number.
        choices: The only values of a text. If "on" and "off" are among them, True and False stand for these.
        check: `check(name, value)` returns the plain value or raises TypeError or ValueError. None for the check by type.
        schedule: The numbers that its schedules may have (see `fastes.es.schedules.scheduled`); None if it takes no schedule.
        gain: The tasks on which a preset or a study gains by it, with the value if one gains; '' if none does yet.
        affects_learning: False for budgets, evaluation, memory and faults.
        tried: The values that `fastes tune` and RL Zoo's search try (see settings/search_space.py); None for none.
        first: Whether it is one of the few that matter first.
        fixed: Whether it cannot change when a training is loaded.
        missing: `missing(name)` returns what stands for a function or class of the user's, which no file can hold, until it is
            passed again. None if no value can be one.
        flag: Another flag than its own name, and the value that it makes of an int; None for its name.
    """

    help: str
    group: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str, Any], Any] | None = None
    schedule: Any = None
    gain: str = ""
    affects_learning: bool = True
    tried: Range | tuple[Any, ...] | None = None
    first: bool = False
    fixed: bool = False
    flag: tuple[str, Callable[[int], Any]] | None = None
    missing: Callable[[str], Any] | None = None


def setting(default: Any, help: str, group: str = "", **described: Any) -> Any:
    """Declare a dataclass field of settings.

    Args:
        default: The default. A dict is copied for each instance.
        help: See `SettingDescription`, as for the other arguments.
        group: See `SettingDescription`.
        described: Other fields of `SettingDescription`.
    """
    metadata = {_KEY: SettingDescription(help=help, group=group, **described)}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def with_default(kind: Any, name: str, default: Any) -> Any:
    """Declare a field of a base class again, with another default."""
    (item,) = (each for each in fields(kind) if each.name == name)
    return field(default=default, metadata=item.metadata)


def described(item: Field[Any]) -> SettingDescription:
    """Return the description of a field that `setting` has declared."""
    found: SettingDescription = item.metadata[_KEY]
    return found


def default_of(item: Field[Any]) -> Any:
    """Return a field's default, a new one if it is mutable."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def checked_fields(settings: Any) -> None:
    """Replace each field of a frozen dataclass by its plain, checked value. Raises TypeError or ValueError."""
    for item in fields(settings):
        object.__setattr__(settings, item.name, checked(item, getattr(settings, item.name)))


def checked(item: Field[Any], value: Any) -> Any:
    """Return the value of a field as a plain one, or raise TypeError or ValueError that says what was expected."""
    name, description = item.name, described(item)
    if isinstance(value, np.bool_):  # as of a table or a search
        value = bool(value)
    if description.check is not None:
        return description.check(name, value)
    if item.type == "int":
        return check_int(name, value, _limit(description.low, 0), _limit(description.high, 2**62))
    if item.type == "float":
        return _checked_float(name, value, description)
    if item.type == "bool" and not isinstance(value, bool):
        raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected True or False")
    if isinstance(value, bool) and "on" in description.choices:
        value = "on" if value else "off"
    if description.choices and (not isinstance(value, str) or value not in description.choices):
        raise ValueError(f"{name} = {shown(value)}: expected one of {description.choices}{suggest(value, description.choices)}")
    return plain(value)


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def checked_number(name: str, value: object, expected: str) -> float:
    """Return a value as a float; TypeError or ValueError for anything but a number, NaN included."""
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


def _checked_float(name: str, value: Any, limits: SettingDescription) -> float:
    if isinstance(value, str):
        raise TypeError(f"{name} = {value!r} is a str: expected a number")
    value = checked_number(name, value, "a number")
    within = (limits.low is None or limits.low <= value) and (limits.high is None or value <= limits.high)
    between = (limits.above is None or limits.above < value) and (limits.below is None or value < limits.below)
    if not (math.isfinite(value) and within and between):
        raise ValueError(f"{name} = {shown(value)} is out of range: {limits.help}")
    return float(value)


def _limit(limit: float | None, otherwise: int) -> int:
    return otherwise if limit is None else int(limit)
