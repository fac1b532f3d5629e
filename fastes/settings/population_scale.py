"""population_scale: a preset, or a file of settings, with a population that is several times as large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastes.errors import check_int
from fastes.es.schedules import ScheduleSetting, checked_count, make_schedule
from fastes.settings.settings import COUNTED, Settings

NAME = "population_scale"
LARGEST = 10_000
# top_fraction is a share already
_TIMES = ("population_size", "generation_timesteps", "max_population_size", "obs_freeze_after")


def scaled_settings(settings: Mapping[str, Any], scale: object) -> dict[str, Any]:
    """Return settings for `scale` times as many candidates per generation, with the defaults of those that are missing.

    Each number of a schedule is multiplied. The learning rate is multiplied by the fourth
    root of scale. Statistics of observations freeze after as many generations as before. The fraction of elites and the growth
    of a horizon per generation stay. A scale of 1 changes nothing.

    Raises:
        TypeError, ValueError: The scale is not an int from 1 to 10,000, or the learning rate is a function.
    """
    times = check_int(NAME, scale, 1, LARGEST)
    if times == 1:
        return dict(settings)
    before = {name: settings.get(name, getattr(Settings(), name)) for name in (*_TIMES, "learning_rate")}
    found = {name: _scaled(name, value, times) for name, value in before.items()}
    return {**settings, **found}


def refuse_both(given: Mapping[str, Any]) -> None:
    """Raise ValueError if both a scale other than 1 and a population_size are given."""
    if NAME in given and "population_size" in given and given[NAME] != 1:
        raise ValueError(
            f"{NAME} = {given[NAME]!r} beside population_size = {given['population_size']!r}: {NAME} multiplies the population "
            "of the preset, or of the file of settings; leave one of the two out"
        )


def rate_factor(times: float) -> float:
    """Return the factor of a learning rate for `times` as many candidates: the fourth root, of two rounded square roots.

    It lies between the square root, with which steps are as long as they were where noise makes them up, and 1, where the
    signal does. They were compared in a study: with the square root and 16 times the candidates
    HalfCheetah's policy swings from one generation to the next.
    """
    return math.sqrt(math.sqrt(times))


def times_number(schedule: ScheduleSetting, factor: float) -> float | str:
    """Return a number, or each number of a schedule such as 'lin_0.02_0.004', times the factor."""
    make_schedule("learning_rate", schedule)
    if callable(schedule):
        raise TypeError(f"{NAME} multiplies the numbers of learning_rate, which is a function: pass learning_rate, too")
    return _times_numbers(schedule, factor) if isinstance(schedule, str) else float(schedule) * factor


def _scaled(name: str, value: Any, times: int) -> Any:
    return times_number(value, rate_factor(times)) if name == "learning_rate" else _times_count(name, value, times)


def _times_count(name: str, count: object, times: int) -> int | str:
    """Return a whole number, or each number of a schedule of such, times that many."""
    checked = checked_count(name, count, COUNTED[name]) if name in COUNTED else check_int(name, count, 0)
    return _times_numbers(checked, times) if isinstance(checked, str) else checked * times


def _times_numbers(schedule: str, factor: float) -> str:
    kind, *numbers = schedule.split("_")
    return "_".join([kind, *(repr(float(number) * factor) for number in numbers)])
