"""How long the first steps of a training are, compared with its perturbations: too short ones learn nothing, in silence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastes.es.fitness_shaping import shape_returns
from fastes.es.schedules import make_schedule
from fastes.settings.preset_loader import load_preset
from fastes.settings.settings import Settings

LEAST = 0.01  # of a perturbation's length; the presets have 0.036 to 0.55
FAR = 10.0  # times the preset's, or that part of it
_NUMBERS = ("learning_rate", "sigma")
_OF_STEPS = (*_NUMBERS, "optimizer", "shaping", "momentum")
_ALIKE = ("optimizer", "shaping")  # settings without which a preset's numbers are no guide
_MOST_PAIRS = 32  # of large populations the signal makes a step longer than noise alone would


def step_length(settings: Settings, num_params: int) -> float | None:
    """Length of a first step over that of a perturbation, sigma * sqrt(num_params), while returns tell nothing yet.

    None if a function decides it. Adam moves each parameter by its learning rate, ClipUp all of them by that length
    together; SGD moves them by a sum of perturbations, each weighted by its shaped return.
    """
    if any(callable(getattr(settings, name)) for name in _OF_STEPS):
        return None
    rate, sigma = (make_schedule(name, getattr(settings, name))(1.0) for name in _NUMBERS)
    if settings.optimizer == "adam":
        return rate / sigma
    if settings.optimizer == "clipup":
        return rate / (sigma * math.sqrt(num_params))
    pairs = min(settings.population_size // 2, _MOST_PAIRS)
    returns = np.random.default_rng(0).standard_normal((pairs, 2))
    shaped = shape_returns(returns, sigma, settings.shaping, settings.top_fraction)
    return rate * shaped.scale * float(np.linalg.norm(shaped.weights)) / (1.0 - settings.momentum) / sigma


def warn_of_step_length(preset: str, settings: Settings, changes: Mapping[str, Any], num_params: int, stacklevel: int) -> None:
    """UserWarning if a learning rate or sigma of the user's is far from the preset's, or steps are too short to learn by.

    preset: the name of the settings that would be taken without the changes. stacklevel: counted from the caller.
    """
    if not any(name in changes for name in _OF_STEPS) or (length := step_length(settings, num_params)) is None:
        return
    tuned = Settings().changed(**load_preset(preset))
    usual = step_length(replace(settings, **{name: getattr(tuned, name) for name in _NUMBERS}), num_params)
    alike = all(getattr(settings, name) == getattr(tuned, name) for name in _ALIKE)
    far = alike and usual and any(name in changes for name in _NUMBERS) and not usual / FAR <= length <= usual * FAR
    if not far and length >= LEAST:
        return
    given = " and ".join(f"{name} = {getattr(settings, name)}" for name in _OF_STEPS if name in changes)
    instead = f"preset {preset!r} has " + " and ".join(f"{name} = {getattr(tuned, name)}" for name in _NUMBERS)
    beside = f", whose steps are {_percent(usual)} of one" if alike and usual else ""
    result = "training will hardly move" if length < max(LEAST, usual or 0.0) else "training may not settle"
    gradients = "Learning rates of gradient methods are no guide to those of ES: l" if "learning_rate" in changes else "L"
    warnings.warn(
        f"{given}: a step is {_percent(length)} of a perturbation's length, so {result}; {instead}{beside}. "
        f"{gradients}eave it out, or begin at the preset's",
        UserWarning,
        stacklevel=1 + stacklevel,
    )


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.2g} %" if percent < 10.0 else f"{percent:.0f} %"
