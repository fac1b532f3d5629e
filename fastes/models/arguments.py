"""The arguments of an agent and of learn, checked, and those that a file of settings holds.

Such a file is a run's config.toml, or a table of settings as presets and a search for settings have.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastes.envs.named_wrappers import make_wrapped_source
from fastes.envs.source import EnvSource
from fastes.errors import check_int, whole
from fastes.policies.choose_policy import check_noise, spec_for, warn_of_pixels
from fastes.policies.custom_policy import AnySpec, CustomPolicy
from fastes.policies.named_policies import CUSTOM_POLICIES
from fastes.policies.policy_keywords import on_top_of
from fastes.setting_fields import checked_number
from fastes.settings import population_scale
from fastes.settings.foreign_names import answer_in_learn
from fastes.settings.preset_loader import DEFAULT, NO_SETTINGS, tomllib
from fastes.settings.recipes import AUTO, given_in
from fastes.settings.settings import FUNCTIONS, Settings, setting_names
from fastes.system.near_paths import what_is_beside

# arguments of FastES that are no settings
_OF_CONSTRUCTOR = (
    "env", "policy", "preset", "n_workers", "cluster", "seed", "env_kwargs", "verbose", "tensorboard_log",
    "stats_window_size", "info_keywords", "device",
)  # fmt: skip


def changed_settings(settings: Mapping[str, Any], source: EnvSource, policy: str | CustomPolicy | None) -> dict[str, Any]:
    """Return the settings that were given, and those that follow from env and policy."""
    changed = dict(settings)
    if source.vector_env is not None and source.vector_env.normalizes:
        changed.setdefault("normalize_obs", False)
    if policy is not None:
        changed["policy"] = policy.kind if isinstance(policy, CustomPolicy) else policy
    return changed


def spec_of(policy: str | CustomPolicy | None, settings: Settings, env: Any) -> AnySpec:
    """Return the spec of a custom policy, or of the one that the settings name, for the spaces of an environment."""
    wanted = policy if isinstance(policy, CustomPolicy) else settings.policy
    spec = spec_for(wanted, env.observation_space, env.action_space, settings.policy_kwargs, settings.obs_columns)
    check_noise(spec, settings.action_noise, settings.sample_actions)
    warn_of_pixels(wanted, env.observation_space, spec.obs_size)
    return spec


def refuse_arguments(removed: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that learn does not have, with advice about those that SB3's had."""
    for name in removed:
        if name in setting_names():
            advice = ": it is a setting, an argument of FastES"
        else:
            advice = ": it is an argument of FastES" if name in _OF_CONSTRUCTOR else answer_in_learn(name)
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}{advice}")


def checked_timesteps(timesteps: float | None, settings: Settings, least: int) -> int:
    """Return total_timesteps as an int, at least `least`; those of the settings for None."""
    steps = settings.total_timesteps if timesteps is None else timesteps
    return check_int("total_timesteps", whole(steps), least, 10**15)


def checked_minutes(max_minutes: float | None, name: str = "max_minutes") -> float:
    """Return minutes as a float above 0, infinity for None; TypeError or ValueError that calls them `name`."""
    if max_minutes is None:
        return math.inf
    minutes = checked_number(name, max_minutes, "minutes, more than 0")
    if minutes <= 0.0:
        raise ValueError(f"{name} = {max_minutes!r}: expected minutes, more than 0")
    return minutes


def check_verbose(verbose: object) -> None:
    """Raise TypeError or ValueError unless it is a flag or an int >= 0."""
    if not isinstance(verbose, bool):
        check_int("verbose", verbose, 0)


# --- from a file of settings ------------------------------------------------------------------------------------------


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
        raise ValueError(f"preset = {changes['preset']!r} beside {path}: settings start from one of the two, leave one out")
    config = read_settings(path, env)
    wanted = env if env is not None else config.env
    if wanted is None:
        raise ValueError(f"{path} names no environment: pass one")
    _check_functions(path, {**config.settings, **changes})
    settings, changes = (_raced if config.is_race else _scaled)(config.settings, changes)
    preset = AUTO if config.is_race else DEFAULT
    arguments = {**settings, "env": wanted, "seed": config.seed, **changes, "preset": preset}
    given, own = changes.get("policy_kwargs", {}), config.settings.get("policy_kwargs", {})
    if isinstance(given, Mapping) and isinstance(own, Mapping) and (given or own):
        of = config.settings.get("policy")
        arguments["policy_kwargs"] = on_top_of(own, of, given, changes.get("policy", of))
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


def _raced(given: dict[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the user's settings of a race, and the changes, whose population_size replaces a population_scale."""
    replaced = population_scale.NAME if "population_size" in changes else ""
    return {name: value for name, value in given.items() if name != replaced}, changes


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
        raise ValueError(f"{path} is no TOML: {error!s:.200}") from error
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
    name = env if isinstance(env, str) and env in tables else next(iter(tables), None) if len(tables) == 1 else None
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
        raise ValueError(f"{path} has env_kwargs = {text:.200}, which are no plain values: pass them") from None


def _check_functions(path: str | os.PathLike[str], arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if a run had a function or class, which no file holds, and none was passed in its place."""
    for name in FUNCTIONS:
        if arguments.get(name) == "function":
            raise ValueError(f"{name} was a function or class in the run of {path}, which no file holds: pass {name}")
    policy = arguments.get("policy")
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy was a {policy} in the run of {path}, which no file holds: pass policy")
