"""The wrappers of Gymnasium that environments in C step in."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import gymnasium
from gymnasium.wrappers import ClipAction, OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, RescaleAction, TimeLimit

from fastes import _core

_WATCHING = (OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics)  # these change no observation and no reward
_REPEATING = getattr(gymnasium.wrappers, "RepeatAction", None)  # since Gymnasium 1.3
_FUNCTIONS = {  # of an action, as these classes make them: the module, the name, and how it is called in C
    ClipAction: ("gymnasium.wrappers.transform_action", "ClipAction.__init__.<locals>.<lambda>", "clip"),
    RescaleAction: ("gymnasium.wrappers.utils", "rescale_box.<locals>.backward", "rescale"),
}


def step_wrappers(wrappers: Sequence[Any], own_limit: int) -> _core.StepWrappers | str:
    """Return what wrappers do to the steps of an environment; or why that is not known in C, in words.

    Args:
        wrappers: The outermost first.
        own_limit: Steps after which the environment in them truncates an episode; 0 or less for none.
    """
    changes, repeats = list[tuple[str, Any, Any]](), 1
    limits, inner_limits = list[int](), list[int]()  # of TimeLimits outside of what repeats actions, and inside
    for wrapper in wrappers:
        kind = type(wrapper)
        if changed := replaced_in_words(wrapper):
            return changed
        if kind is TimeLimit:
            limit = wrapper._max_episode_steps
            if not _is_count(limit):
                return f"it ends after {limit!r} steps"
            (limits if repeats == 1 else inner_limits).append(limit)
        elif kind in _FUNCTIONS:
            change = _change_of(wrapper)
            if isinstance(change, str):
                return change
            changes.append(change)
        elif kind is _REPEATING:
            if repeats > 1:
                return "two wrappers repeat actions"
            if not _is_count(wrapper.num_repeats):
                return f"its actions are repeated {wrapper.num_repeats!r} times, which is not an int from 1 on"
            repeats = wrapper.num_repeats
        elif kind not in _WATCHING:
            return f"{kind.__name__} is not known in C"
    if len(changes) > _core.MOST_CHANGES:
        return f"{len(changes)} wrappers change its actions"
    if own_limit > 0:
        (limits if repeats == 1 else inner_limits).append(own_limit)
    return _core.StepWrappers(min(limits, default=0), changes, repeats, min(inner_limits, default=0))


def _change_of(wrapper: Any) -> tuple[str, Any, Any] | str:
    """Return what a wrapper does to actions; or why that is not known in C."""
    kind = type(wrapper)
    module, name, change = _FUNCTIONS[kind]
    made = wrapper.func
    if not isinstance(made, FunctionType) or (made.__module__, made.__qualname__) != (module, name):
        return f"{kind.__name__}.func was replaced"
    held = inspect.getclosurevars(made).nonlocals
    try:
        space = held["env"].action_space if change == "clip" else wrapper.env.action_space
        numbers = (space.low, space.high) if change == "clip" else (held["intercept"], held["gradient"])
    except (AttributeError, KeyError) as error:
        return f"{kind.__name__} is not as expected ({error})"
    if any(each.dtype != "float32" or each.shape != space.shape for each in numbers):
        return f"{kind.__name__} changes actions by numbers that are not float32 of the actions' shape"
    return (change, *numbers)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63


def replaced_in_words(layer: Any) -> str:
    """Return what was replaced of an object's methods, of Gymnasium's classes or of their modules' functions; "" for none.

    Names and files are compared with the compiled modules. Other imports, such as `np`, are not looked at, nor the code of a
    function that names the same file.
    """
    kind = type(layer)
    own = [name for name, value in vars(layer).items() if callable(value) and hasattr(kind, name)]
    for base in kind.__mro__:
        if not base.__module__.startswith("gymnasium."):
            continue
        module = sys.modules.get(base.__module__)
        home, written = getattr(module, "__file__", None), _written(base.__module__)
        members, body = vars(base), written.get(base.__qualname__)
        own += [name for name, member in members.items() if _written_in(member) not in (None, home)]
        if body is not None:
            own += [name for name in body.functions if _written_in(members.get(name)) != home]
            own += [name for name in members if name not in body.names and not name.startswith("__")]
        for name in written[""].functions if "" in written else ():
            if _written_in(getattr(module, name, None)) != home:
                return f"{base.__module__.rpartition('.')[2]}.{name} was replaced"
    return f"{kind.__name__}.{own[0]} was replaced" if own else ""


def _written_in(member: Any) -> str | None:
    """Return the file of a function, method or property; None for anything else."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    code = function.__code__ if isinstance(function, FunctionType) else None
    return None if code is None else code.co_filename


class _Body(NamedTuple):
    """The names in the code of a class or module, and those of its functions."""

    functions: frozenset[str]
    names: frozenset[str]


@functools.cache
def _written(module: str) -> dict[str, _Body]:
    """Return the code of a module, "", and of its classes, by name; {} if its loader does not tell."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    code = getattr(getattr(spec, "loader", None), "get_code", lambda _: None)(module)
    if code is None:
        return {}
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {"": _body(code)} | {each.co_name: _body(each) for each in inner if not _is_function(each)}


def _body(code: CodeType) -> _Body:
    functions = [each.co_name for each in code.co_consts if isinstance(each, CodeType) and _is_function(each)]
    return _Body(frozenset(name for name in functions if name.isidentifier()), frozenset(code.co_names))


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)
