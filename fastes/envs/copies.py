"""Factories: the user's, and one that copies an environment which is given as an object and does not say how it was made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.wrappers import HumanRendering

from fastes.envs.rebuild import check_same, layers

Env = gymnasium.Env[Any, Any]


class Copies:
    """Builds copies of an environment as it was when it was given; the original is not played on.

    Raises ValueError where a copy differs visibly: environments with EzPickle are made anew from their arguments, and forget
    what was changed since. Whatever pickle raises comes as it is.
    """

    def __init__(self, env: Env) -> None:
        if any(isinstance(layer, HumanRendering) for layer in layers(env)):
            raise ValueError(f"{env} shows itself on a screen, and workers have none")
        if getattr(env, "render_mode", None) == "human":
            raise ValueError("it has render_mode='human', and workers open no windows: make it without")
        self._pickled = cloudpickle.dumps(env)
        self.__name__ = type(env.unwrapped).__name__
        copy = self()
        try:
            check_same(env, copy)
        finally:
            copy.close()

    def __call__(self) -> Env:
        copy: Env = cloudpickle.loads(self._pickled)
        return copy

    def to_be_drawn(self, mode: str) -> Env:
        """A copy that draws in this render mode, where the environment says that it can and was not made for one."""
        copy = self()
        inner = copy.unwrapped
        if inner.render_mode is None and mode in inner.metadata.get("render_modes", ()):
            inner.render_mode = mode
        return copy


def made_by(factory: Callable[..., Any], render_mode: str | None = None) -> Any:
    """What a factory makes; one that has a parameter render_mode, or copies an object, is told how it will be drawn."""
    if render_mode is None:
        return factory()
    if isinstance(factory, Copies):
        return factory.to_be_drawn(render_mode)
    return factory(render_mode=render_mode) if _takes_render_mode(factory) else factory()


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    try:
        parameter = inspect.signature(factory).parameters.get("render_mode")
    except (TypeError, ValueError):  # of some builtins, nobody knows it
        return False
    return parameter is not None and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
