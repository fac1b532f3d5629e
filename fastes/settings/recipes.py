"""Which settings a new model has: those of a preset, or of the recipes (presets/recipes.toml) that race if there is none."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.policies.images import holds_image
from fastes.settings.preset_loader import all_presets, choose_settings, preset_for
from fastes.settings.settings import Settings

AUTO = "auto"  # the preset of an environment, or a race of recipes
PLAIN = "linear"  # the recipe for values that is used if none race
FRACTION = 0.35  # of the budget, for the trainings of all recipes; a race ends later, as scoring comes on top
_CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Recipe(NamedTuple):
    """Settings, and the name of the preset that they are made from."""

    name: str
    settings: Settings


def choose_recipes(
    preset: str | os.PathLike[str] | None,
    env_id: str,
    observations: spaces.Space[Any],
    actions: spaces.Space[Any],
    changes: Mapping[str, Any],
    alive_bonus: float = 0.0,
) -> list[Recipe]:
    """Return the settings that a new model may have, the best guess first.

    Args:
        preset: A preset's name, or its file; None for recipes; AUTO for the environment's own preset, or for recipes that race
            if it has none.
        env_id: The environment's, as presets know it; '' if it is not the one that the preset of its name was made for.
        observations, actions: The spaces.
        changes: The user's settings.
        alive_bonus: As `alive_bonus_of` returns it.
    """
    if preset == AUTO:
        preset = preset_for(env_id)
        changes = changes if preset else {"trials_fraction": FRACTION, **changes}
    if preset is None:
        return recipes_for(observations, actions, changes, alive_bonus)
    name = os.fspath(preset) if isinstance(preset, os.PathLike) else preset
    return [Recipe(name, choose_settings(name, changes))]


def recipes_for(
    observations: spaces.Space[Any], actions: spaces.Space[Any], changes: Mapping[str, Any], alive_bonus: float = 0.0
) -> list[Recipe]:
    """Return the recipes for an environment of these spaces, the one to use if none race first.

    Args:
        observations, actions: The spaces.
        changes: The user's settings, which all recipes get. Recipes that become identical, or that cannot have them, are left
            out. Recipes with the user's policy come first.
        alive_bonus: As `alive_bonus_of` returns it, for the recipe that takes it away; 0 leaves that out.

    Raises:
        ValueError: If no recipe can have these settings.
    """
    found, refused = list[Recipe](), list[Exception]()
    presets = {
        name: table for name, table in all_presets().items() if _fits(table.get("race"), observations, actions, alive_bonus)
    }
    for name in sorted(presets, key=lambda name: changes.get("policy", presets[name]["policy"]) != presets[name]["policy"]):
        told = {"alive_bonus": alive_bonus} if presets[name].get("alive_bonus") else {}
        try:
            settings = choose_settings(name, {**told, **changes})
        except ValueError as error:
            refused.append(error)
            continue
        if all(settings != recipe.settings for recipe in found):
            found.append(Recipe(name, settings))
    if not found:
        raise refused[0] if refused else ValueError(f"no recipe is for observations {observations} and actions {actions}")
    return found


def for_few_generations(recipe: str, generations: float, racing: Sequence[Settings]) -> dict[str, Any]:
    """Return the settings that a recipe has in place of its own in a race whose budget has few generations; {} if it has none.

    Args:
        recipe: Its name.
        generations: Number of its generations that the whole budget has.
        racing: The settings of all recipes of the race. A value that they share may be the user's, and is kept.
    """
    table = all_presets().get(recipe, {}).get("few_generations", {})
    changes = {name: value for name, value in table.items() if name != "below"}
    if not changes or generations >= table["below"]:
        return {}
    differ = all(len({repr(getattr(settings, name)) for settings in racing}) > 1 for name in changes)
    return changes if differ else {}


def _fits(
    race: Mapping[str, str] | None, observations: spaces.Space[Any], actions: spaces.Space[Any], alive_bonus: float
) -> bool:
    if race is None or race["observations"] != kind_of(observations):
        return False
    return (are_choices(actions) or race.get("actions") != "choices") and (bool(alive_bonus) or race.get("rewards") != "alive")


def alive_bonus_of(env: Any) -> float:
    """Return the reward per step for being alive that an environment of Gymnasium's MuJoCo family has; 0 for others."""
    try:
        bonus = getattr(getattr(env, "unwrapped", env), "_healthy_reward", 0.0)
    except Exception:  # a property of the user's own
        return 0.0
    is_number = isinstance(bonus, (int, float, np.integer, np.floating)) and math.isfinite(bonus)
    return float(bonus) if is_number else 0.0


def are_choices(actions: spaces.Space[Any]) -> bool:
    """Return whether actions are Discrete or alike, which a policy may draw."""
    return isinstance(actions, _CHOICES)


def kind_of(observations: spaces.Space[Any]) -> str:
    """Return 'images', or 'images and values' for several parts of which one is an image, or 'values' if none is."""
    if not holds_image(observations):
        return "values"
    return "images" if isinstance(observations, spaces.Box) else "images and values"
