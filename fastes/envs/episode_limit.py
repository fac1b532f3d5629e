"""The steps after which an environment itself ends an episode at the latest, as far as it says so."""

from __future__ import annotations

from typing import Any

import gymnasium

from fastes.envs.rebuild import layers

ITS_OWN = 2**31 - 1  # there is a limit, and nothing says which
_NAMES = ("_max_episode_steps", "max_episode_steps", "max_steps")  # of TimeLimit, and as environments of all kinds have them
_GAMES = {"AtariGame", "AtariEnv", "AtariVectorEnv"}  # these count frames


def episode_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """The smallest number under one of _NAMES in an environment or its wrappers, or of its spec; None where there is none."""
    found = [limit for layer in layers(env) if (limit := _limit_in(layer)) is not None]
    return min(found, default=None)


def _limit_in(layer: Any) -> int | None:
    """Of one layer. Attributes that are computed do not count, nor what a wrapper passes on."""
    if type(layer).__name__ in _GAMES:
        return ITS_OWN
    places = [getattr(layer, "__dict__", {}), *map(vars, type(layer).__mro__)]
    values = [next((place[name] for place in places if name in place), None) for name in _NAMES]
    if not isinstance(layer, gymnasium.Wrapper):
        values.append(getattr(getattr(layer, "spec", None), "max_episode_steps", None))
    return min((value for value in values if type(value) is int and value > 0), default=None)


def limit_of_vector_env(base: Any, spec: Any, envs: Any, printed: str) -> int | None:
    """The same of the environments in a vector environment.

    base: without its wrappers. spec: of one environment, or None. envs: those that are in this process. printed: how one in
    another process prints.
    """
    if type(base).__name__ in _GAMES or "<TimeLimit<" in f"<{printed}" or any(f"<{name}" in printed for name in _GAMES):
        return ITS_OWN
    known = [episode_limit(env) for env in envs]
    if known and all(limit is not None for limit in known):
        return max(limit for limit in known if limit is not None)
    return getattr(spec, "max_episode_steps", None) or _limit_in(base)
