"""population_scale: a preset, or a file of settings, with a population that is several times as large."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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

    Each number of a schedule is multiplied. The learning rate is multiplied by the fourth root of scale. Statistics of
    observations freeze after as many generations as before. The fraction of elites and the growth of a horizon per generation
    stay. A scale of 1 changes nothing.

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
            f"{NAME} = {given[NAME]!r} with population_size = {given['population_size']!r}: {NAME} multiplies the population "
            "of the preset, or of the file of settings; leave one of the two out"
        )


def rate_factor(times: float) -> float:
    """Return the factor of a learning rate for `times` as many candidates: the fourth root, of two rounded square roots.

    The square root would keep the length of steps that consist of noise, and a factor of 1 that of steps that consist of
    signal; the fourth root lies between them. A study compared them: with the square root and 16 times the candidates
    HalfCheetah's policy swings from one generation to the next.
    """
    return math.sqrt(math.sqrt(times))


def times_numbers(schedule: str, factor: float, shown: Callable[[float], str] = repr) -> str:
    """Return a schedule such as 'lin_0.02_0.004' with each number times the factor."""
    kind, *numbers = schedule.split("_")
    return "_".join([kind, *(shown(float(number) * factor) for number in numbers)])


def _scaled(name: str, value: Any, times: int) -> Any:
    """Return the value of a setting for `times` as many candidates."""
    if name == "learning_rate":
        return _scaled_rate(value, rate_factor(times))
    count = checked_count(name, value, COUNTED[name]) if name in COUNTED else check_int(name, value, 0)
    return times_numbers(count, times) if isinstance(count, str) else count * times


def _scaled_rate(rate: ScheduleSetting, factor: float) -> float | str:
    make_schedule("learning_rate", rate)
    if callable(rate):
        raise TypeError(f"{NAME} multiplies the numbers of learning_rate, which is a function: pass learning_rate, too")
    return times_numbers(rate, factor) if isinstance(rate, str) else float(rate) * factor
