"""An environment that is given as an object and does not say how it was made: each process gets a copy of it."""

from __future__ import annotations

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
