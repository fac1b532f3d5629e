"""population_scale: a preset, or a file of settings, with a population that is several times as large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastes.errors import check_int
from fastes.es.schedules import ScheduleSetting, checked_count, make_schedule
from fastes.settings.alternatives import plain_alternatives
from fastes.settings.settings import COUNTED, Settings

NAME = "population_scale"
LARGEST = 10_000
# top_fraction is a share already
_TIMES = ("population_size", "generation_timesteps", "max_population_size", "obs_freeze_after")


def scaled_settings(settings: Mapping[str, Any], scale: object) -> dict[str, Any]:
    """settings, and the defaults of those it lacks, for scale times as many candidates a generation.

    Of a schedule each number is multiplied, and of starts_alternatives each value. The learning rate is, by the fourth root of
    scale, and statistics of observations freeze after as many generations. Elites stay the same share, and a horizon that grows
    does so by as much a generation. No setting is changed for 1.
    Raises TypeError or ValueError for a scale that is no int from 1 to 10,000, and for a learning rate that is a function.
    """
    times = check_int(NAME, scale, 1, LARGEST)
    if times == 1:
        return dict(settings)
    before = {name: settings.get(name, getattr(Settings(), name)) for name in (*_TIMES, "learning_rate")}
    found = {name: _scaled(name, value, times) for name, value in before.items()}
    rows = plain_alternatives(settings.get("starts_alternatives", {}))
    if scaled := {name: [_scaled(name, value, times) for value in row] for name, row in rows.items() if name in before}:
        found["starts_alternatives"] = {**rows, **scaled}
    return {**settings, **found}


def refuse_both(given: Mapping[str, Any]) -> None:
    """ValueError for a scale beside a population_size that is given, too; 1 is no scale."""
    if NAME in given and "population_size" in given and given[NAME] != 1:
        raise ValueError(
            f"{NAME} = {given[NAME]!r} beside population_size = {given['population_size']!r}: {NAME} multiplies the population "
            "of the preset, or of the file of settings; leave one of the two out"
        )


def rate_factor(times: float) -> float:
    """What a learning rate is multiplied by for so many times the candidates: the fourth root, of two rounded square roots.

    It lies between the square root, with which steps are as long as they were where noise makes them up, and 1, where the
    signal does. They were compared in a study: with the square root and 16 times the candidates
    HalfCheetah's policy swings from one generation to the next.
    """
    return math.sqrt(math.sqrt(times))


def times_number(schedule: ScheduleSetting, factor: float) -> float | str:
    """A number, or each number of a schedule such as 'lin_0.02_0.004', times the factor."""
    make_schedule("learning_rate", schedule)
    if callable(schedule):
        raise TypeError(f"{NAME} multiplies the numbers of learning_rate, which is a function: pass learning_rate, too")
    return _times_numbers(schedule, factor) if isinstance(schedule, str) else float(schedule) * factor


def _scaled(name: str, value: Any, times: int) -> Any:
    return times_number(value, rate_factor(times)) if name == "learning_rate" else _times_count(name, value, times)


def _times_count(name: str, count: object, times: int) -> int | str:
    """A whole number, or each number of a schedule of such, that many times."""
    checked = checked_count(name, count, COUNTED[name]) if name in COUNTED else check_int(name, count, 0)
    return _times_numbers(checked, times) if isinstance(checked, str) else checked * times


def _times_numbers(schedule: str, factor: float) -> str:
    kind, *numbers = schedule.split("_")
    return "_".join([kind, *(repr(float(number) * factor) for number in numbers)])
