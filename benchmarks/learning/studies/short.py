"""FastES in studies: its preset, with other settings where that one is made for a training many times as long."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.learning.runs.contestant import base_of

# of 200,000 steps the preset's three starts would have 13,000 each; these settings have a return of 300 after 220,000
SHORT: dict[str, dict[str, Any]] = {
    "Swimmer-v5": {"population_size": 8, "sigma": 0.05, "learning_rate": 0.03, "starts": 1},
}


def short_settings(env: str) -> dict[str, Any]:
    """What a study changes in the preset of an environment, or of the one that it changes."""
    return SHORT.get(base_of(env), {})


def fastes_for(env: str, **changes: Any) -> str:
    """The name of FastES as a contestant with these settings, and `changes` beside them."""
    settings = {**short_settings(env), **changes}
    return "+".join(["fastes", *(f"{name}={_toml(value)}" for name, value in settings.items())])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}={_toml(each)}' for name, each in value.items())}}}"
    return json.dumps(value)


def contestant_name(algo: str, env: str) -> str:
    """The name under which an algorithm takes part in a study of an environment."""
    return fastes_for(env) if algo == "fastes" else algo
