"""Tuned settings, one TOML file per environment family. Each environment's table says where its numbers come from."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from fastes.errors import check_name, suggest, warn_user
from fastes.policies.policy_keywords import merged_policy_kwargs
from fastes.settings import population_scale
from fastes.settings.settings import Settings, setting_names
from fastes.system.near_paths import what_is_beside

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["DEFAULT", "all_presets", "choose_settings", "load_preset", "other_version", "preset_for", "tomllib"]

DEFAULT = "default"  # what each setting has by itself
NO_SETTINGS = ("source", "made_for", "race", "few_generations")  # keys of a preset beside its settings
GAMES = "atari"  # the preset of games that have none of their own
FILE = ".toml"  # the end of a preset's name that is a path
_GAME = re.compile(r"ALE/[A-Za-z0-9]+-v5")  # no memory, which is ALE/<Game>-ram-v5
_FAR = 4  # times the preset's population_size, or that part of it


@cache
def all_presets() -> dict[str, dict[str, Any]]:
    """Return each preset's settings by its name: an environment id, a recipe, 'default', 'atari', 'paper' or 'ars'.

    The key 'source' says where they come from; an environment's own has 'made_for': entry point, arguments and spaces, see
    preset_fit.
    """
    presets: dict[str, dict[str, Any]] = {}
    for file in sorted(resources.files("fastes.presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            presets.update(tomllib.loads(file.read_text(encoding="utf-8")))
    return presets


def load_preset(name: str) -> dict[str, Any]:
    """Return the settings of a preset alone.

    Args:
        name: One of the package's, or the path of a file that ends in .toml, as `fastes tune` writes it.

    Raises:
        ValueError: There is no such preset, or the file holds none.
        TypeError: The file has an unknown setting.
        OSError: The file cannot be read.
    """
    if name.endswith(FILE):
        table = _table_of(Path(name))
    else:
        presets = all_presets()
        if name not in presets:
            closest = suggest(name, presets)  # all of them, which are many, if none is close
            expected = f": expected a {FILE} file, or one of {', '.join(sorted(presets))}"
            raise ValueError(f"unknown preset {name!r}{closest or expected}")
        table = presets[name]
    return {key: value for key, value in table.items() if key not in NO_SETTINGS}


def _table_of(path: Path) -> dict[str, Any]:
    """Return the only table of a file, whose names are checked."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"preset {path}: there is no such file{what_is_beside(path)}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"preset {path} is not TOML: {error!s:.200}") from error
    if len(tables) != 1 or not isinstance(table := next(iter(tables.values())), dict):
        raise ValueError(
            f"preset {path} has {sorted(tables)}: expected one table with the name of an environment, such as [CartPole-v1]; "
            "--config FILE, or FastES.from_config, reads a run's config.toml, and a file of several tables"
        )
    try:
        Settings().changed(**dict.fromkeys(table.keys() - {*setting_names(), *NO_SETTINGS}))
    except TypeError as error:
        raise TypeError(f"preset {path}: {error}") from None
    return table


def preset_for(env_id: str) -> str | None:
    """Return the preset of an environment id: its own, or that of all Atari games. None if there is none."""
    if env_id in all_presets():
        return env_id
    return GAMES if _GAME.fullmatch(env_id) else None


def other_version(env_id: str) -> str:
    """Return the preset of another version of an environment that has none of its own; '' if there is none."""
    base = env_id.rpartition("-v")[0]
    others = (name for name in all_presets() if base and "-v" in name and name.rpartition("-v")[0] == base)
    return "" if preset_for(env_id) else next(others, "")


def choose_settings(preset: str, changes: Mapping[str, Any]) -> Settings:
    """Return a preset's settings with the given changes on top.

    Warns of a population_size far from the preset's together with the preset's own learning_rate, except for `default` and
    recipes, whose rates were tuned on no single environment.

    Args:
        preset: The preset's name, or the path of its file.
        changes: Settings, and population_scale, which scales the preset before they are put on top.
    """
    base = load_preset(check_name("preset", preset))
    population_scale.refuse_both(changes)
    base = population_scale.scaled_settings(base, changes.get(population_scale.NAME, 1))
    changes = {name: value for name, value in changes.items() if name != population_scale.NAME}
    merged = {**base, **changes}
    if isinstance(given := changes.get("policy_kwargs", {}), Mapping):
        merged["policy_kwargs"] = merged_policy_kwargs(
            base.get("policy_kwargs", {}), base.get("policy"), given, merged.get("policy")
        )
    settings = Settings().changed(**merged)
    tuned = preset != DEFAULT and "race" not in all_presets().get(preset, {})
    if tuned and "population_size" in changes and "learning_rate" not in changes:
        _warn_of_unscaled_rate(preset, base.get("population_size", Settings().population_size), settings)
    return settings


def _warn_of_unscaled_rate(name: str, tuned: int, settings: Settings) -> None:
    given, rate = settings.population_size, settings.learning_rate
    if tuned / _FAR < given < tuned * _FAR or callable(rate):
        return
    shown, more = rate if isinstance(rate, str) else f"{rate:g}", given > tuned
    scale = f", as with population_scale = {given // tuned} in place of population_size" if more and not given % tuned else ""
    factor = population_scale.rate_factor(given / tuned) if more else math.sqrt(given / tuned)
    rule = "the fourth root of the candidates was the best rule for more of them" if more else "the noise in a gradient rises"
    warn_user(
        f"population_size = {given} with learning_rate = {shown}, which preset {name!r} has for population_size = {tuned}: "
        f"{rule}, so that learning_rate = "
        f"{_scaled(rate, factor)} is a point to start from{scale}. Passing learning_rate, any value, silences this",
        UserWarning,
    )


def _scaled(rate: float | str, factor: float) -> str:
    """Return a number or a schedule times the factor, with two digits, as Python writes it."""
    if isinstance(rate, str):
        return repr(population_scale.times_numbers(rate, factor, "{:.2g}".format))
    return f"{rate * factor:.2g}"
