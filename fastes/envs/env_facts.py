"""The facts about an environment that remain known after it was closed: spaces, render modes, layers, limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from fastes import _core
from fastes.envs.layers import episode_limit, layers
from fastes.envs.native.twins import python_because, twin_of


class EnvFacts(NamedTuple):
    """The facts about an environment that remain known after it was closed.

    Attributes:
        observation_space, action_space: Its spaces.
        render_mode: The mode in which it was built.
        render_modes: The modes in which it can be built.
        kinds: Classes of its layers, outermost first.
        names: Attributes and methods of all layers.
        episode_limit: See `episode_limit`.
        python_because: Why it steps in Python, in words, and why if a callback reads infos; "" if it steps in C.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    render_mode: str | None
    render_modes: tuple[str, ...]
    kinds: tuple[type, ...]
    names: frozenset[str]
    episode_limit: int | None
    python_because: tuple[str, str]


def env_facts(env: gymnasium.Env[Any, Any], make_actor: Callable[[gymnasium.Env[Any, Any]], _core.Actor | None]) -> EnvFacts:
    """Return the facts about an environment. make_actor: returns what plays in it; None if that is in Python."""
    each = list(layers(env))
    names = frozenset(name for layer in each for name in dir(layer))
    modes = tuple((env.metadata or {}).get("render_modes") or ())
    kinds = tuple(type(layer) for layer in each)
    found = twin_of(env)
    actor = None if isinstance(found, str) else make_actor(env)
    why = python_because(found, actor, False), python_because(found, actor, True)
    return EnvFacts(env.observation_space, env.action_space, env.render_mode, modes, kinds, names, episode_limit(env), why)
