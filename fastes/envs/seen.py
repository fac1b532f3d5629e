"""What this process remembers of an environment that it has built, looked at and closed."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium

from fastes.envs.episode_limit import episode_limit
from fastes.envs.rebuild import layers


class Seen(NamedTuple):
    """What of an environment can be asked for without building one.

    observation_space, action_space: its spaces.
    render_mode: its own.
    render_modes: that it can be built with.
    kinds: its wrappers' classes, outermost first, and its own.
    names: of attributes and methods of any of these.
    episode_limit: steps after which it ends an episode at the latest, as far as it says so; else None.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    render_mode: str | None
    render_modes: tuple[str, ...]
    kinds: tuple[type, ...]
    names: frozenset[str]
    episode_limit: int | None


def look_at(env: gymnasium.Env[Any, Any]) -> Seen:
    """What there is to remember."""
    each = list(layers(env))
    names = frozenset(name for layer in each for name in dir(layer))
    modes = tuple((env.metadata or {}).get("render_modes") or ())
    kinds = tuple(type(layer) for layer in each)
    return Seen(env.observation_space, env.action_space, env.render_mode, modes, kinds, names, episode_limit(env))
