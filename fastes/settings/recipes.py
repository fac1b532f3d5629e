"""Recipes: whole settings that race on an environment without a preset, from presets/recipes.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gymnasium import spaces

from fastes.policies.images import holds_image
from fastes.settings.preset_loader import all_presets, choose_settings
from fastes.settings.settings import Settings

AUTO = "auto"  # the preset of an environment, or a race of recipes
RUNGS, FRACTION = 3, 0.35  # of a race
_CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Recipe(NamedTuple):
    """Settings with a name."""

    name: str
    settings: Settings


def recipes_for(observations: spaces.Space[Any], actions: spaces.Space[Any], changes: Mapping[str, Any]) -> list[Recipe]:
    """Return the recipes that race in an environment of these spaces, the best single one first.

    Args:
        observations, actions: The spaces.
        changes: The user's settings, which all recipes get. Those that differ in nothing then, and those that cannot have
            them, are left out. `trials` is how many trainings race: recipes come again, with other seeds, if it is larger.

    Raises:
        ValueError: If no recipe can have these settings.
    """
    found, refused = list[Recipe](), list[Exception]()
    race = {"rungs": RUNGS, "trials_fraction": FRACTION, **changes}
    for name, table in all_presets().items():
        if not _fits(table.get("race"), observations, actions):
            continue
        try:
            settings = choose_settings("", name, race)
        except ValueError as error:
            refused.append(error)
            continue
        if all(settings != recipe.settings for recipe in found):
            found.append(Recipe(name, settings))
    if not found:
        raise refused[0] if refused else ValueError(f"no recipe is for observations {observations} and actions {actions}")
    trials = changes.get("trials", len(found))
    return [Recipe(each.name, each.settings.changed(trials=trials)) for each in (found[n % len(found)] for n in range(trials))]


def _fits(race: Mapping[str, str] | None, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> bool:
    if race is None:
        return False
    wants_choices = race.get("actions") == "choices"
    return race["observations"] == kind_of(observations) and (are_choices(actions) or not wants_choices)


def are_choices(actions: spaces.Space[Any]) -> bool:
    """Return whether actions are Discrete or alike, which a policy may draw."""
    return isinstance(actions, _CHOICES)


def kind_of(observations: spaces.Space[Any]) -> str:
    """Return 'images', or 'images and values' for several parts of which one is an image, or 'values' if none is."""
    if not holds_image(observations):
        return "values"
    return "images" if isinstance(observations, spaces.Box) else "images and values"
