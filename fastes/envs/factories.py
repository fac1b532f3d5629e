"""Functions that make environments: a call of the user's, and copies of an environment that was given without a spec."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.wrappers import HumanRendering

from fastes.envs.closing import close_env
from fastes.envs.given.rebuild import check_same
from fastes.envs.layers import layers
from fastes.envs.worker_imports import send_by_value
from fastes.envs.worker_number import worker_index

Env = gymnasium.Env[Any, Any]
_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_SEVERAL = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class Copies:
    """Builds copies of an environment as it was when it was given; the original is not played.

    Raises:
        ValueError: The environment opens a window, or a copy differs visibly: pickle builds an environment with EzPickle from
            its arguments, without later changes.
        Exception: The environment cannot be pickled.
    """

    def __init__(self, env: Env) -> None:
        if any(isinstance(layer, HumanRendering) for layer in layers(env)):
            raise ValueError(f"{env} shows itself on a screen, and workers have none")
        if getattr(env, "render_mode", None) == "human":
            raise ValueError("it has render_mode='human', and workers open no windows: make it without")
        self.kinds = [type(layer) for layer in layers(env)]
        send_by_value(self.kinds)
        self._pickled = cloudpickle.dumps(env)
        self.__name__ = type(env.unwrapped).__name__
        copy = self()
        try:
            check_same(env, copy)
        finally:
            close_env(copy)

    def __call__(self, render_mode: str | None = None) -> Env:
        """Return a copy. It draws in render_mode if the environment can and was not made for another mode."""
        copy: Env = cloudpickle.loads(self._pickled)
        inner = copy.unwrapped
        if render_mode is not None and inner.render_mode is None and render_mode in inner.metadata.get("render_modes", ()):
            inner.render_mode = render_mode
        return copy


def parts_held_by(factory: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the objects that a function refers to or is bound to."""
    if isinstance(factory, functools.partial):
        yield "function", factory.func
        yield from ((f"argument {index}", part) for index, part in enumerate(factory.args))
        yield from ((f"argument {name!r}", part) for name, part in factory.keywords.items())
        yield from parts_held_by(factory.func)
    elif inspect.ismethod(factory):
        yield "object", factory.__self__
    elif inspect.isfunction(factory):
        yield from ((f"variable {name!r}", part) for name, part in _variables_of(factory).items())
        defaults = *(factory.__defaults__ or ()), *(factory.__kwdefaults__ or {}).values()
        yield from (("default argument", part) for part in defaults)


def _variables_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables outside of a function that it refers to."""
    try:
        variables = inspect.getclosurevars(function)
        return {**variables.globals, **variables.nonlocals}
    except ValueError:  # one has no value yet
        found: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):
                found[name] = cell.cell_contents
        return found


def made_by(factory: Callable[..., Any], render_mode: str | None = None) -> Any:
    """Call a factory, with the arguments that it takes.

    A parameter render_mode gets the mode in which the environment will be drawn, if any. A parameter worker_index, or the only
    argument that a function needs, gets the worker's index.
    """
    parameters = _parameters_of(factory)
    named: dict[str, Any] = {}
    if render_mode is not None and _takes(parameters, "render_mode"):
        named["render_mode"] = render_mode
    if _takes(parameters, "worker_index"):
        return factory(worker_index=worker_index(), **named)
    return factory(worker_index(), **named) if _needs_one(factory, parameters) else factory(**named)


def takes_worker_index(entry_point: Any) -> bool:
    """Return whether the entry point of a registered environment has a parameter worker_index."""
    try:
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    except Exception:  # gymnasium.make says what is wrong
        return False
    return creator is not None and _takes(_parameters_of(creator), "worker_index")


def _parameters_of(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def _takes(parameters: Mapping[str, inspect.Parameter], name: str) -> bool:
    return name in parameters and parameters[name].kind in _NAMED


def _needs_one(factory: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Return whether a function needs exactly one argument, by position. A class may need anything."""
    needed = [each for each in parameters.values() if each.default is each.empty and each.kind not in _SEVERAL]
    by_place = [each for each in needed if each.kind is not inspect.Parameter.KEYWORD_ONLY and each.name != "render_mode"]
    return len(needed) == len(by_place) == 1 and not isinstance(factory, type)
