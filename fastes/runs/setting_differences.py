"""The settings in which runs differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_GROUP = "policy_kwargs"  # the setting whose keys are shown as settings of their own
OF_THE_END = ("target_return", "target_episodes")  # settings that change no evaluation before the end
RACE = {"recipes": "race"}  # in place of settings that the winner of a race has


def seeds_share(env: object, env_kwargs: object, settings: Mapping[str, Any], given: Mapping[str, Any] | None) -> object:
    """Return what runs have in common that differ in their seeds alone.

    Args:
        env, env_kwargs, settings: As config.toml has them.
        given: The user's settings for a race of recipes, which another recipe may win with another seed; None for no race.
    """
    own = settings if given is None else {**RACE, **given}
    return env, env_kwargs, {key: value for key, value in own.items() if key not in OF_THE_END}


def told_settings(settings: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the flat settings that tell a run from others: all, or for a race of recipes the user's."""
    return flat_settings(settings) if given is None else {**RACE, **flat_settings(given)}


def telling(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of settings that tell runs apart. many: the `told_settings` of each, perhaps with further names."""
    races = [own for own in many if RACE.keys() <= own.keys()]
    others = [own for own in many if not RACE.keys() <= own.keys()]
    if not races or not others:
        return differing(many)
    of_all = [name for name in differing(many) if all(name in own for own in many)]
    return list(dict.fromkeys([*of_all, *RACE, *differing(races), *differing(others)]))


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the keys of policy_kwargs among them."""
    inner = settings.get(_GROUP)
    flat = {name: value for name, value in settings.items() if name != _GROUP}
    return {**flat, **inner} if isinstance(inner, Mapping) else {**flat, **({_GROUP: inner} if inner else {})}


def differing(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values differ among several flat settings, in the order of the first that has them.

    A key of policy_kwargs that one of them lacks differs, too; so does a setting that an older version did not have.
    """
    names = dict.fromkeys(name for settings in many for name in settings)
    return [name for name in names if any(settings.get(name) != many[0].get(name) for settings in many[1:])]


def named_values(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return 'sigma=0.02' and its like for each of these settings."""
    return [f"{name}={value_in_words(settings.get(name))}" for name in names]


def value_in_words(value: Any) -> str:
    """Return a setting's value, short: 0.02, 64x64, on."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return "x".join(map(value_in_words, value)) or "none"
    return "-" if value is None else str(value)
