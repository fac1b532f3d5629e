"""Policies that users bring and that remember something: how an episode begins for them, and what tells that they remember."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from fastes import _core
from fastes.errors import blame_policy, level_outside

HOOKS = ("begin_episode", "reset")  # the first that an object has is called where an episode begins


def hook_of(item: object) -> Callable[[], Any] | None:
    """Return the method of a module or function to be called at the start of each episode; None if it has none."""
    for name in HOOKS:
        hook = getattr(item, name, None)
        if callable(hook) and not hasattr(hook, "forward") and _takes_nothing(hook):  # a gate of a cell may have that name
            return hook  # type: ignore[no-any-return]
    return None


def _takes_nothing(hook: Callable[..., Any]) -> bool:
    try:
        inspect.signature(hook).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        return True
    return True


class CustomActor(_core.Actor):
    """An actor that calls hooks of its module or function at the start of each episode.

    Attributes:
        hooks: Called in order; empty for a policy without a memory, or without a way to clear it.
    """

    hooks: Sequence[Callable[[], Any]] = ()

    def begin_episode(self, noise_key: int = 0, action_noise: float = 0.0, sample: bool = False) -> None:
        """Start the episode's action stream at its beginning, and the policy's memory."""
        super().begin_episode(noise_key, action_noise, sample)
        self.reset_memory()

    def reset_memory(self) -> None:
        """Clear what the policy remembers."""
        try:
            for hook in self.hooks:
                hook()
        except Exception as error:
            blame_policy(error)
            raise


def held_by(function: Any) -> dict[str, Any]:
    """Return the objects in which a function may remember, by name: variables around it, defaults, attributes.

    Variables of a module count if the function names them; for a function that is imported they are not copies.
    """
    if isinstance(function, functools.partial):
        given = {**{str(number): value for number, value in enumerate(function.args)}, **function.keywords}
        return {**held_by(function.func), **_changeable(given)}
    if not isinstance(function, FunctionType):
        return {}
    variables: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # one around it has no value yet
        around = inspect.getclosurevars(function)
        variables = {**around.globals, **around.nonlocals}
    stored = {step.argval for step in dis.get_instructions(function) if step.opname in ("STORE_DEREF", "STORE_GLOBAL")}
    defaults = {f"default {number}": value for number, value in enumerate(function.__defaults__ or ())}
    rebound = {name: value for name, value in variables.items() if name in stored}
    return {**_changeable({**variables, **defaults, **(function.__kwdefaults__ or {}), **vars(function)}), **rebound}


def _changeable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that code may change in place."""
    code, fixed = (FunctionType, ModuleType, type), (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))
    return {
        name: vars(value) if hasattr(value, "__dict__") else value
        for name, value in values.items()
        if not isinstance(value, (*code, *fixed))
    }


def check_memory_of(
    what: str, actor: CustomActor, run: Callable[[float], Any], state: Callable[[], Any], also: str = ""
) -> None:
    """Warn where what a policy gives depends on what it has met before.

    run: the outputs for an observation of that value throughout; what it raises ends the check.
    state: the policy's objects other than its parameters.
    also: more of what to do.
    """
    with _same_draws() as begin, contextlib.suppress(Exception):
        begin()
        actor.reset_memory()
        first, before = _frozen(run(0.0)), None if actor.hooks else _frozen(state())
        with contextlib.suppress(Exception):  # a table may have no entry for it
            run(1.0)
        begin()
        actor.reset_memory()
        if (_frozen(run(0.0)), None if actor.hooks else _frozen(state())) == (first, before):
            return
        message = f"{what} remembers earlier observations, {_advice(actor.hooks)}{also}"
        warnings.warn(message, UserWarning, stacklevel=level_outside())


def _advice(hooks: Sequence[Callable[[], Any]]) -> str:
    """Return advice about a memory that is not cleared."""
    harm = "so that results depend on the number of workers"
    if hooks:
        name = getattr(hooks[0], "__name__", HOOKS[0])
        return f"also after its {name}(): it has to clear all that is remembered, {harm} otherwise"
    return (
        f"and nothing clears that where an episode begins, {harm}: give it a method reset() or begin_episode() without "
        "arguments, which is called at the start of each episode"
    )


@contextlib.contextmanager
def _same_draws() -> Iterator[Callable[[], None]]:
    """Yield a function that sets the global random state to the same place each time; at the end it is as it was."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    drawn = torch.get_rng_state() if torch else None

    def begin() -> None:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(drawn)

    try:
        yield begin
    finally:
        begin()


def _frozen(value: Any, depth: int = 8) -> Any:
    """A value that can be compared with a later one: arrays and tensors by their bytes, objects of other kinds not at all."""
    if hasattr(value, "detach"):
        with contextlib.suppress(Exception):
            value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return (str(value.dtype), value.shape, value.tobytes()) if value.dtype.kind != "O" else None
    if isinstance(value, (bool, int, float, complex, str, bytes)) or value is None:
        return (type(value).__name__, repr(value))
    if depth and isinstance(value, dict):
        return [(repr(key), _frozen(inner, depth - 1)) for key, inner in value.items()]
    if depth and (isinstance(value, (list, tuple)) or type(value).__name__ == "deque"):
        return [_frozen(inner, depth - 1) for inner in value]
    return type(value).__name__
