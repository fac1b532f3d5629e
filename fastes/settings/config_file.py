"""A file of settings: a run's config.toml, or a table of settings as presets and a search for settings have."""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastes.envs.named_wrappers import make_wrapped_source
from fastes.policies.named_policies import CUSTOM_POLICIES
from fastes.policies.policy_keywords import merged_policy_kwargs
from fastes.settings import population_scale
from fastes.settings.preset_loader import DEFAULT, NO_SETTINGS, tomllib
from fastes.settings.recipes import AUTO
from fastes.settings.settings import FUNCTIONS, Settings
from fastes.system.near_paths import what_is_beside


class Config(NamedTuple):
    """The content of a file: settings, and environment and seed of a run. A race of recipes has the user's settings alone."""

    settings: dict[str, Any]
    env: str | None
    seed: int | None = None
    env_kwargs: str = "{}"
    wrappers: tuple[str, ...] = ()
    is_race: bool = False


def arguments_from(path: str | os.PathLike[str], env: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments for a file, with changes on top; the environment's preset is ignored.

    population_scale, in the file or among the changes, scales the file's settings. The file of a race of recipes gives those
    of a new race.

    Args:
        path: A run folder's config.toml, that folder, or the preset file of `fastes tune`.
        env: Another environment than the file's; None for that.
        changes: Arguments in place of the file's.
    """
    if changes.get("preset") is not None:
        raise ValueError(f"preset = {changes['preset']!r} with {path}: settings start from one of the two, leave one out")
    config = read_settings(path, env)
    wanted = env if env is not None else config.env
    if wanted is None:
        raise ValueError(f"{path} names no environment: pass one")
    _check_functions(path, {**config.settings, **changes})
    if config.is_race:
        preset, settings = AUTO, dict(config.settings)
        if "population_size" in changes:  # which replaces one that is scaled
            settings.pop(population_scale.NAME, None)
    else:
        preset = DEFAULT
        settings, changes = _scaled(config.settings, changes)
    arguments = {**settings, "env": wanted, "seed": config.seed, **changes, "preset": preset}
    given, own = changes.get("policy_kwargs", {}), config.settings.get("policy_kwargs", {})
    if isinstance(given, Mapping) and isinstance(own, Mapping) and (given or own):
        of = config.settings.get("policy")
        arguments["policy_kwargs"] = merged_policy_kwargs(own, of, given, changes.get("policy", of))
    if isinstance(wanted, str) and wanted == config.env:
        arguments["env_kwargs"] = env_kwargs_of(path, config, changes.get("env_kwargs") or {})
        if config.wrappers:
            arguments["env"] = make_wrapped_source(wanted, arguments.pop("env_kwargs"), config.wrappers)
    return arguments


def env_kwargs_of(path: str | os.PathLike[str], config: Config, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run's environment, overridden by those that were typed.

    If the run's are not plain values, only those that were typed count; ValueError if there are none.
    """
    own: dict[str, Any] = {}
    with contextlib.suppress(ValueError) if typed else contextlib.nullcontext():
        own = _env_kwargs(path, config.env_kwargs)
    return {**own, **typed}


def config_of_run(tables: Mapping[str, Any]) -> Config:
    """Return the content of a run's config.toml."""
    run = tables.get("run")
    run = run if isinstance(run, dict) else {}
    wrappers = run.get("wrappers", [])
    names = tuple(wrappers) if isinstance(wrappers, list) else (wrappers,)
    given = given_in(tables)
    settings = tables.get("settings", {}) if given is None else given
    kwargs = str(run.get("env_kwargs", "{}"))
    return Config(settings, run.get("env"), run.get("seed"), kwargs, names, is_race=given is not None)


def given_in(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the user's settings of a run whose recipes race, or have raced; None for another run.

    Args:
        config: The tables of config.toml, which anybody may have edited. The settings of later sessions win.
    """
    earlier = config.get("earlier")
    sessions = [*(earlier if isinstance(earlier, list) else ()), config]
    runs = [session.get("run") for session in sessions if isinstance(session, Mapping)]
    found = [run["given"] for run in runs if isinstance(run, Mapping) and "given" in run]
    tables = [given for given in found if isinstance(given, Mapping)]
    return {name: value for given in tables for name, value in given.items()} if found else None


def _scaled(settings: dict[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a file's settings, scaled by the population_scale of the changes or its own, and the other changes."""
    population_scale.refuse_both(changes)
    rest, own = dict(changes), dict(settings)
    scale = own.pop(population_scale.NAME, 1)
    scale = rest.pop(population_scale.NAME, scale)
    kept = {name: value for name, value in own.items() if name not in rest}
    return {**own, **population_scale.scaled_settings(kept, scale)}, rest


def read_settings(path: str | os.PathLike[str], env: Any = None) -> Config:
    """Return the content of a file; names of settings are checked, their values are not.

    Args:
        path: A file, or a run folder for its config.toml.
        env: Chooses one of several tables.
    """
    if os.path.isdir(path):
        path = Path(path) / "config.toml"
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {Path(path)}{what_is_beside(Path(path))}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error!s:.200}") from error
    is_run = isinstance(tables.get("settings"), dict)
    config = config_of_run(tables) if is_run else _only_table(path, tables, env)
    config = config._replace(settings={name: value for name, value in config.settings.items() if name not in NO_SETTINGS})
    try:
        known = {*Settings.__dataclass_fields__, population_scale.NAME}
        Settings().changed(**dict.fromkeys(config.settings.keys() - known))
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None
    return config


def _only_table(path: str | os.PathLike[str], tables: Mapping[str, Any], env: Any) -> Config:
    """Return the table of an environment, or the only one."""
    name: str | None = None
    if isinstance(env, str) and env in tables:
        name = env
    elif len(tables) == 1:
        (name,) = tables
    if name is not None and isinstance(tables[name], dict):
        return Config(tables[name], name)
    if len(tables) > 1 and all(isinstance(table, dict) for table in tables.values()):
        raise ValueError(f"{path} has tables of several environments, {sorted(tables)}: name one of them")
    raise ValueError(
        f"{path} holds no settings: expected a run's config.toml, with a table [settings], or one table with the name of an "
        "environment, such as [CartPole-v1]"
    )


def _env_kwargs(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    """Return the arguments of a run's environment, parsed from its config.toml."""
    try:
        return dict(ast.literal_eval(text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{path} has env_kwargs = {text:.200}, which are not plain values: pass them") from None


def _check_functions(path: str | os.PathLike[str], arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if a run had a function or class, which no file holds, and none was passed in its place."""
    for name in FUNCTIONS:
        if arguments.get(name) == "function":
            raise ValueError(f"{name} was a function or class in the run of {path}, which no file holds: pass {name}")
    policy = arguments.get("policy")
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy was a {policy} in the run of {path}, which no file holds: pass policy")
