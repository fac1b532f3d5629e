"""The policy and settings of a training in words, and what a user can add to them."""

from __future__ import annotations

from collections.abc import Sequence

from fastes.errors import listed
from fastes.models.model import Model
from fastes.settings.preset_loader import all_presets, other_version
from fastes.training.selection import Trial


def has_own_preset(model: Model) -> bool:
    """Return whether a training has the settings that were tuned on its environment."""
    return model.base_preset == model.source.preset_name(model.observation_space)


def no_preset(model: Model) -> str:
    """Return that an environment has no preset, and that its unchanged form or another version of it has one."""
    if model.source.name in all_presets():
        return "no preset as it is here"
    other = other_version(model.source.preset_name(model.observation_space))
    return f"no preset ({other} has one)" if other else "no preset"


def choice_in_words(model: Model) -> str:
    """Return where a training's settings come from, and its policy."""
    recipes = _recipes_of(model.selection.trials)
    if len(recipes) > 1:
        return f"{no_preset(model)}, so up to {len(recipes)} recipes race: {listed(recipes)}"
    if recipes:
        why = f"recipe {recipes[0]!r}"
    elif has_own_preset(model):
        why = "its preset"
    else:
        why = f"preset {model.base_preset!r}" if model.base_preset else "its own settings"
    return f"{why}: {model.settings.policy}, {model.num_params:,} parameters"


def race_in_words(model: Model, timesteps: int, length: float) -> str:
    """Return which recipes of a new race the budget is large enough for, and the budget that all of them need.

    Args:
        model: A model whose recipes are to race.
        timesteps: The budget.
        length: Mean length of an episode of the first generation.
    """
    selection = model.selection
    needed = [selection.least_budget(count, length) for count in range(1, len(selection.trials) + 1)]
    racing = max((count for count, least in enumerate(needed, 1) if least <= timesteps), default=1)
    recipes, everyone = _recipes_of(selection.trials[:racing]), _recipes_of(selection.trials)
    least = f"a budget of about {float(f'{needed[-1]:.2g}'):,.0f} steps"
    if racing == len(selection.trials):
        return f"{no_preset(model)}, so {len(recipes)} recipes race: {listed(recipes)}; they need {least}"
    goes = f"{len(recipes)} of {len(everyone)} recipes: {listed(recipes)}{' race' if len(recipes) > 1 else ' trains alone'}"
    return f"{no_preset(model)}, and {timesteps:,} steps are enough for {goes}; all of them need {least}"


def _recipes_of(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.recipe for trial in trials if trial.recipe))


def steps_in_words(model: Model) -> str:
    """Return where an environment steps, in C or in Python, and why not in C."""
    why = model.evaluator.python_because
    return f"in Python: {why}" if why else "in C"


def exploring(model: Model) -> str:
    """Return advice, as sentences, for a task whose first episodes all have the same return."""
    if has_own_preset(model):
        return "Its preset was tuned on that"
    slope = "ewards for small progress, or episodes that start nearer to the goal, show the search a way"
    trials = model.selection.trials
    if drawing := next((trial for trial in trials if trial.training.settings.sample_actions), None):
        who = f"The recipe {drawing.recipe!r} draws actions" if drawing.recipe else "Actions are drawn"
        return f"{who}, which explores within each episode; r{slope}"
    heads = [trial.training.spec.head for trial in trials]
    if any(head is not None and head.noise == "sample_actions" for head in heads):
        return f"sample_actions=True (--sample-actions) explores within each episode; r{slope}"
    return f"R{slope}"
