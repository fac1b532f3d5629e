"""The single environments behind a VecEnv that the Zoo has made: what FastES's own workers build."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from fastes.envs.source import Env, EnvSource, make_env_source

_FACTORY = "_fastes_factory"


def remembering(make_vec_env: Callable[..., Any]) -> Callable[..., Any]:
    """SB3's make_vec_env, whose DummyVecEnvs know how to build one of their environments without its Monitor.

    Those with `monitor_kwargs` do not: their monitor files have what only the environment's infos say.
    """

    @functools.wraps(make_vec_env)
    def make(env_id: Any, *arguments: Any, **named: Any) -> Any:
        vec_env = make_vec_env(env_id, *arguments, **named)
        if type(vec_env).__name__ == "DummyVecEnv" and not arguments and not named.get("monitor_kwargs"):
            factory = functools.partial(build_one, env_id, named.get("env_kwargs"), named.get("wrapper_class"))
            vars(vec_env)[_FACTORY] = factory
        return vec_env

    return make


def build_one(
    env_id: str | Callable[..., Env], env_kwargs: Mapping[str, Any] | None, wrapper: Callable[[Env], Env] | None
) -> Env:
    """One environment as make_vec_env builds it, without Monitor, without Gymnasium's checker, without a window."""
    kwargs = {key: value for key, value in (env_kwargs or {}).items() if key != "render_mode"}
    make = functools.partial(gymnasium.make, env_id) if isinstance(env_id, str) else env_id
    env: Env = make(**kwargs, disable_env_checker=True)
    return env if wrapper is None else wrapper(env)


def single_environments(vec_env: Any) -> EnvSource | None:
    """The source of environments like those of a VecEnv; None for one with wrappers of its own, or of processes."""
    factory = getattr(vec_env, "__dict__", {}).get(_FACTORY)
    if factory is None:
        return None
    source = make_env_source(vec_env)
    return replace(source, factory=None if source.rebuilds else factory, vector_env=None)
