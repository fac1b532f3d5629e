"""A model at a glance, as a notebook shows it: its task, its policy, how far its training is, its settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fastes.models.model import Model
from fastes.policies.policy_spec import PolicySpec
from fastes.runs.setting_differences import differing, flat_settings, named_values
from fastes.settings.preset_loader import all_presets, choose_settings, preset_for
from fastes.settings.settings import Settings
from fastes.system.digits import number_in_words


def model_in_rows(model: Model) -> Iterator[tuple[str, str]]:
    """Yield names and values for a table. No environment is built."""
    selection = model.selection
    budget = f" of {selection.budget:,}" if selection.budget else ""
    yield "environment", model.source.name
    yield "policy", _policy_in_words(model)
    yield "status", status_in_words(model)
    yield "steps", f"{model.num_timesteps:,}{budget}, {model.generation:,} generation{'s' * (model.generation != 1)}"
    best = selection.counters.best_eval_return
    yield "best evaluation", number_in_words(best) if math.isfinite(best) else "none yet"
    yield "settings", settings_in_words(model)
    yield "seed", str(model.seed)


def status_in_words(model: Model) -> str:
    """Return how far a model's training is."""
    selection = model.selection
    if not model.num_timesteps:
        return "not trained yet"
    if model.solved:
        return f"solved: fresh episodes reach {model.target_return:g}"
    if selection.is_open:
        return f"{len(selection.trials)} {'recipes race' if selection.is_race else 'trials are left'}"
    if model.num_timesteps >= selection.budget:
        return "trained to the end of its budget"
    return "ended by max_minutes" if model.out_of_time else "trained in part"


def settings_in_words(model: Model) -> str:
    """Return which preset or recipe a model's settings are from, and those in which they differ from it.

    The settings of a loaded model are compared with its environment's preset. Without any preset, the defaults are compared.
    """
    recipe = model.selection.present.recipe
    name = recipe or model.base_preset or preset_for(model.source.name) or ""
    is_known = name in all_presets()
    base = choose_settings(name, {}) if is_known else Settings()
    own, others = flat_settings(model.settings.to_dict()), flat_settings(base.to_dict())
    changed = " ".join(named_values(own, differing([others, own]))) or "unchanged"
    if not name:
        return f"the defaults, {changed}"
    kind = "recipe" if recipe else "preset"
    return f"{kind} {name}, {changed}" if is_known else f"{kind} {name}; compared with the defaults, {changed}"


def policy_in_words(name: str, layer_sizes: Sequence[int], num_params: int) -> str:
    """Return such as 'MlpPolicy 4-16-2, 114 parameters'. layer_sizes: () for a custom policy."""
    sizes = f" {'-'.join(map(str, layer_sizes))}" if layer_sizes else ""
    return f"{name}{sizes}, {num_params:,} parameters"


def _policy_in_words(model: Model) -> str:
    spec = model.policy_spec
    if isinstance(spec, PolicySpec):
        return policy_in_words(model.settings.policy, spec.layer_sizes, model.num_params)
    return policy_in_words(spec.kind, (), model.num_params)
