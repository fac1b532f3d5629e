"""The Zoo's hyper-parameter file of FastES, as a module: `hyperparams` has an entry for each preset, made from it."""

from __future__ import annotations

from typing import Any

from fastes.settings.preset_loader import DEFAULT, GENERAL, all_presets, load_preset
from fastes.settings.settings import Settings

N_ENVS = 8


def entry(preset: str) -> dict[str, Any]:
    """A preset as an entry: n_timesteps and n_envs are the Zoo's, the others settings of FastES.

    Training goes on when the target is reached, so that learning curves are as long as those of other algorithms, and every
    trial of a study reaches its evaluations. A learning rate between two numbers comes by the preset's name, since the Zoo
    reads a schedule of one number alone. So does all of `general`, which gives way where a network is asked for.
    """
    settings = {"total_timesteps": Settings().total_timesteps, **load_preset(preset)}
    if preset == GENERAL:
        settings = {"total_timesteps": settings["total_timesteps"], "policy": settings["policy"], "preset": preset}
    if str(settings.get("learning_rate")).count("_") > 1:
        del settings["learning_rate"]
        settings["preset"] = preset
    return {"n_timesteps": settings.pop("total_timesteps"), "n_envs": N_ENVS, "target_return": "none", **settings}


def __getattr__(name: str) -> Any:
    """`hyperparams`, anew each time: the Zoo changes the entry that it reads."""
    if name == "hyperparams":
        others = {preset: entry(preset) for preset in all_presets() if preset != DEFAULT}
        return {"default": entry(GENERAL), **others}  # the Zoo's word for what an environment without an entry gets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
