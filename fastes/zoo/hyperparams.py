"""FastES's hyper-parameters in the Zoo: `hyperparams` has an entry per preset, and `sample` is what `train -optimize` draws."""

from __future__ import annotations

from typing import Any

from fastes.settings.preset_loader import DEFAULT, all_presets, load_preset
from fastes.settings.recipes import PLAIN
from fastes.settings.search_space import SearchSpace
from fastes.settings.settings import Settings

N_ENVS = 8


def entry(preset: str) -> dict[str, Any]:
    """Make an entry of a preset: n_timesteps and n_envs are the Zoo's, the others settings of FastES.

    Training continues after the target is reached, so that learning curves are as long as those of other algorithms, and
    every trial of a study reaches its evaluations. The plain recipe's entry names it, as its policy gives way if a network is
    asked for.
    """
    settings = {"total_timesteps": Settings().total_timesteps, **load_preset(preset)}
    if preset == PLAIN:
        settings = {"total_timesteps": settings["total_timesteps"], "policy": settings["policy"], "preset": preset}
    return {"n_timesteps": settings.pop("total_timesteps"), "n_envs": N_ENVS, "target_return": "none", **settings}


def __getattr__(name: str) -> Any:
    """Make `hyperparams` at each access, because the Zoo changes the entry that it reads."""
    if name == "hyperparams":
        others = {preset: entry(preset) for preset in all_presets() if preset != DEFAULT}
        return {"default": entry(PLAIN), **others}  # for an environment without an entry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_SPACE = SearchSpace()  # of an environment of which only the Zoo knows the spaces
# settings of presets that not every draw goes with, as they are by default
_APART = {name: getattr(Settings(), name) for name in ("sigma_adaptation", "max_population_size")}


def sample(trial: Any, n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Draw the settings of a trial, with the Zoo's signature of a sampler. trial: optuna.Trial."""
    return convert(_SPACE.draw(trial))


def convert(drawn: dict[str, Any]) -> dict[str, Any]:
    """Make settings of the values that a study has stored for a trial, which replace those of the preset."""
    return {**_APART, **_SPACE.settings_of(drawn)}
