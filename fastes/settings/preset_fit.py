"""Checks that settings fit: the preset the environment, the target the id, the first steps the perturbations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes.envs.as_registered import registered
from fastes.envs.likeness import same
from fastes.envs.source import EnvSource
from fastes.errors import warn_user
from fastes.es import optimizers
from fastes.es.fitness_shaping import shape_returns
from fastes.es.schedules import make_schedule
from fastes.settings.preset_loader import all_presets, load_preset
from fastes.settings.settings import Settings

Space = gymnasium.Space[Any]
LEAST = 0.01  # of a perturbation's length; the presets have 0.036 to 0.55
FAR = 10.0  # times the preset's, or that part of it
_NUMBERS = ("learning_rate", "sigma")
_OF_STEPS = (*_NUMBERS, "optimizer", "shaping", "momentum")
_ALIKE = ("optimizer", "shaping")  # settings without which a preset's numbers are no guide
_SHOWN = 3  # differences between an environment and the one of a preset
_MOST_PAIRS = 32  # of large populations the signal makes a step longer than noise alone would


# --- the preset and the environment ---------------------------------------------------------------------------------


def misfit(name: str, source: EnvSource, observations: Space, actions: Space) -> str:
    """Return in words how an environment differs from the one that the preset of its name was made for; '' if it does not.

    The preset of all games was made for no single one, and asks only for images; recipes ask for nothing.
    """
    made_for = all_presets().get(name, {}).get("made_for")
    if made_for is None:
        return ""
    found = list(source.differences)
    if source.spec is not None:
        made_by = _entry_point(gymnasium.registry.get(source.spec.id, source.spec).entry_point)
        if made_by != made_for["entry_point"]:
            found.append(f"{name} made by {made_by}")
        if not found and not same(registered(source.spec).kwargs, made_for.get("kwargs", {})):
            found.append(f"{name} registered with {registered(source.spec).kwargs}")
    for key, space in (("observations", observations), ("actions", actions)):
        if (shown := _in_words(space)) != made_for[key]:
            found.append(f"{key} {shown} ({made_for[key]} as registered)")
    return _in_few_words(found)


def _in_few_words(differences: Collection[str]) -> str:
    """Return the first few differences, and the number of further ones."""
    shown, more = list(differences)[:_SHOWN], max(0, len(differences) - _SHOWN)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _in_words(space: Space) -> str:
    """Return the part of a space that decides the policy: shape and dtype, and the bounds if all are finite and alike."""
    if isinstance(space, spaces.Box):
        bounded = space.is_bounded() and space.low.size and (space.low == space.low.flat[0]).all()
        same_bounds = bounded and (space.high == space.high.flat[0]).all()
        bounds = f" from {space.low.flat[0]:g} to {space.high.flat[0]:g}" if same_bounds else ""
        return f"{space.dtype} {space.shape}{bounds}"
    return str(space)


def _entry_point(entry_point: Any) -> str:
    if isinstance(entry_point, str):
        return entry_point
    return f"{getattr(entry_point, '__module__', '')}:{getattr(entry_point, '__qualname__', type(entry_point).__qualname__)}"


def registered_target(source: EnvSource, settings: Settings) -> float | None:
    """Return the registered reward_threshold; None if it does not apply, as when episodes are cut earlier than by the id."""
    limit, cut = source.episode_limit, settings.max_episode_steps
    return None if limit is not None and 0 < cut < limit else source.reward_threshold


def tell_of_misfit(name: str, odd: str, source: EnvSource, used: str, settings: Settings) -> None:
    """Warn if the environment's preset or its registered target is not used.

    The warning names the settings that are used, and how to get the preset or target anyway.

    Args:
        name: The environment's id.
        odd: The result of `misfit`; '' if the environment's preset is not missed.
        source: The environment's source.
        used: The settings that are used, in words.
        settings: The settings that are used.
    """
    said, anyway = [], []
    if odd:
        said.append(f"{used} used in place of its preset's")
        anyway.append(f"preset={name!r} (--preset {name})")
    spec = gymnasium.registry.get(source.name) if source.spec is None else source.spec  # a copied object keeps its id alone
    threshold = None if spec is None else spec.reward_threshold
    if threshold is not None and settings.target_return == "auto" and registered_target(source, settings) is None:
        said.append(f"its reward_threshold of {threshold:g} is not a target")
        anyway.append(f"target_return={threshold:g} (--target-return {threshold:g})")
    if said:
        cut = settings.max_episode_steps
        cuts = [f"max_episode_steps = {cut} ({source.episode_limit} as registered)"] if cut else []
        has = odd or _in_few_words([*source.differences, *cuts]) or "wrappers that may change rewards"
        them = "it" if len(anyway) == 1 else "both"
        warn_user(
            f"{name} has {has}: {', and '.join(said)}. To use {them} all the same, train with {' and '.join(anyway)}",
            UserWarning,
        )


def tell_of_target(source: EnvSource, settings: Settings) -> None:
    """Warn of an unused target of a model that has its settings already."""
    tell_of_misfit(source.name, "", source, "", settings)


# --- the length of steps --------------------------------------------------------------------------------------------


def relative_step_length(settings: Settings, num_params: int) -> float | None:
    """Return the length of a first step over that of a perturbation, sigma * sqrt(num_params), while returns are noise.

    None if a function decides it. The gradient is then a sum of perturbations, each weighted by its shaped return.
    """
    if any(callable(getattr(settings, name)) for name in _OF_STEPS):
        return None
    rate, sigma = (make_schedule(name, getattr(settings, name))(1.0) for name in _NUMBERS)
    pairs = min(settings.population_size // 2, _MOST_PAIRS)
    returns = np.random.default_rng(0).standard_normal((pairs, 2))
    shaped = shape_returns(returns, sigma, settings.shaping, settings.top_fraction)
    perturbation = math.sqrt(num_params)  # its length over sigma
    gradient = shaped.scale * float(np.linalg.norm(shaped.weights)) * perturbation
    length = optimizers.step_length(str(settings.optimizer), rate, gradient, num_params, settings.momentum)
    return length / (sigma * perturbation)


def warn_of_step_length(preset: str, settings: Settings, changes: Mapping[str, Any], num_params: int) -> None:
    """Warn if the user's learning rate or sigma is far from the preset's, or if steps are too short to learn.

    Args:
        preset: Name of the settings that would be used without the changes.
        settings: The settings that are used.
        changes: The user's settings.
        num_params: The number of the policy's parameters.
    """
    if not any(name in changes for name in _OF_STEPS) or (length := relative_step_length(settings, num_params)) is None:
        return
    tuned = Settings().changed(**load_preset(preset))
    with_tuned = replace(settings, sigma_adaptation="none", **{name: getattr(tuned, name) for name in _NUMBERS})
    usual = relative_step_length(with_tuned, num_params)
    alike = all(getattr(settings, name) == getattr(tuned, name) for name in _ALIKE)
    far = alike and usual and any(name in changes for name in _NUMBERS) and not usual / FAR <= length <= usual * FAR
    if not far and length >= LEAST:
        return
    given = " and ".join(f"{name} = {getattr(settings, name)}" for name in _OF_STEPS if name in changes)
    instead = f"preset {preset!r} has " + " and ".join(f"{name} = {getattr(tuned, name)}" for name in _NUMBERS)
    beside = f", whose steps are {_percent(usual)} of one" if alike and usual else ""
    result = "training will hardly move" if length < max(LEAST, usual or 0.0) else "training may not settle"
    gradients = "Learning rates of gradient methods are not a guide to those of ES: l" if "learning_rate" in changes else "L"
    warn_user(
        f"{given}: a step is {_percent(length)} of a perturbation's length, so {result}; {instead}{beside}. "
        f"{gradients}eave it out, or begin at the preset's",
        UserWarning,
    )


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.2g} %" if percent < 10.0 else f"{percent:.0f} %"
