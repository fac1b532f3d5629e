"""The description of an environment in a checkpoint: an id that the reading process has registered, and harmless arguments."""

from __future__ import annotations

import copy
import json
import re
import reprlib
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium

from fastes.envs.atari.options import ale_id, defaults_with
from fastes.envs.factories import Copies
from fastes.envs.import_hook import ATARI, is_atari, register_atari
from fastes.envs.likeness import described, same
from fastes.envs.native.native_env import in_library, is_native, native_id, native_spec
from fastes.envs.source import EnvSource, make_env_source, source_of_registered
from fastes.errors import EnvironmentUnavailable, first_few


class CannotRebuild(EnvironmentUnavailable):
    """A checkpoint's environment cannot be built from the file.

    Attributes:
        reason: The message without the advice for Python.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}{advice}")
        self.reason = reason


_LOST, _TUPLES = "lost", "tuples"
_MAX_ARGUMENT, _LONGEST = 256 << 10, 200  # characters of an argument as JSON, and of its description
WRAPPERS = "the wrappers"  # beginning of the reason why an environment in wrappers is not described
MAY_NAME_CODE = "that may name a file or a module"  # of an environment's arguments
# ids of Gymnasium whose arguments name code
_COMPATIBILITY = ("GymV21Environment-v0", "GymV26Environment-v0")


def to_json(source: EnvSource) -> dict[str, Any] | None:
    """Return id and arguments for a checkpoint, or None if these would not rebuild the environment.

    Arguments that are not JSON, or take much room, are left out; 'lost' describes them in words. JSON has tuples as lists;
    'tuples' has the way to each. An environment in a library is described by its name and options, without the library.
    """
    spec = source.spec
    if spec is None or not (source.rebuilds or in_library(spec)):
        return None
    kwargs = {**spec.kwargs, **source.make_kwargs}
    if spec.id == ATARI:  # defaults may change, what the policy was trained on must not
        kwargs = {**defaults_with(kwargs), **kwargs}
    registered = native_spec(spec.kwargs["place"], {}) if in_library(spec) else gymnasium.registry[spec.id]
    if spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps  # -1: none
    kept, lost = {}, {}
    for name, value in kwargs.items():
        if name in registered.kwargs and same(value, registered.kwargs[name]):
            continue
        if (written := _written(value)) is None:
            lost[name] = textwrap.shorten(described(value), _LONGEST, placeholder="...")
        else:
            kept[name] = written[0]
    tuples = [way for name, value in kwargs.items() if name in kept for way in _ways_to_tuples(value, (name,))]
    return {"id": spec.id, "kwargs": kept, **({_LOST: lost} if lost else {}), **({_TUPLES: tuples} if tuples else {})}


def reason_for_none(source: EnvSource) -> str:
    """Return why `to_json` returns None, in words; '' if it does not."""
    if isinstance(source.factory, Copies) and source.changes is None:
        return f"it was a copy of an object, {source.name!r}"
    if source.factory is not None and source.changes is None:
        return f"it was made by {source.name!r}, a factory"
    if source.vector_env is not None and not source.rebuilds:
        return f"it was the vector environment {source.vector_env}"
    if source.changes is not None:
        return f"{first_few(source.changes.names)} had been set in the object that was given, {source.name!r}"
    if source.added_wrappers:
        return f"{WRAPPERS} {', '.join(wrapper.name for wrapper in source.added_wrappers)} were around {source.name!r}"
    if in_library(source.spec):
        return f"it was in a library, {source.name!r}, and a checkpoint never loads a library"
    if source.spec is not None and not source.rebuilds:
        return f"{source.name!r} was not registered in Gymnasium"
    return ""


def _written(value: Any) -> tuple[Any] | None:
    """Return a value as JSON has it, in a tuple; None if JSON would give another value back, or takes too much room."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) > _MAX_ARGUMENT:
        return None
    written = json.loads(text)
    return (written,) if same(written, _with_lists(value)) else None  # keys that are numbers would become strings


def _with_lists(value: Any) -> Any:
    """Return a value with tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {key: _with_lists(inner) for key, inner in value.items()}
    return [_with_lists(inner) for inner in value] if type(value) in (list, tuple) else value


def _ways_to_tuples(value: Any, way: tuple[str | int, ...]) -> Iterator[list[str | int]]:
    """Yield the keys and indices that lead to each tuple in a value, inner ones first."""
    if isinstance(value, (dict, list, tuple)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _ways_to_tuples(inner, (*way, key))
    if type(value) is tuple:
        yield list(way)


def _with_tuples(kwargs: dict[str, Any], ways: list[list[Any]]) -> dict[str, Any]:
    """Return arguments from a file with their tuples; CannotRebuild if `ways` cannot be of them."""
    kwargs = copy.deepcopy(kwargs)
    try:
        for *before, last in ways:
            inner: Any = kwargs
            for key in before:
                inner = inner[key]
            if type(inner[last]) is not list:
                raise ValueError
            inner[last] = tuple(inner[last])
    except (TypeError, ValueError, LookupError):
        raise CannotRebuild(
            f"the checkpoint's environment has no such tuples in its arguments: {reprlib.repr(ways)}",
            ": pass env= and env_kwargs=",
        ) from None
    return kwargs


def from_json(data: Mapping[str, Any] | None, kept_out: str = "") -> EnvSource:
    """Return the source that `to_json` described. Only ids that this process has registered are built: a file names no code.

    Args:
        data: The description, None without one.
        kept_out: The reason why there is none, from `reason_for_none`.

    Raises:
        CannotRebuild: No description, an id that is not registered, or arguments that are missing or may name code.
    """
    if data is None or kept_out:
        why = f": {kept_out}" if kept_out else " (a factory, wrappers, or an id that was not registered)"
        raise CannotRebuild(
            f"the checkpoint does not say how to build its environment{why}", ": pass it, as in FastES.load(path, env=make_env)"
        )
    env_id, kwargs = str(data["id"]), plain_kwargs(data)
    check_nothing_lost(data, {})
    register_atari(env_id)
    if env_id not in gymnasium.registry:
        raise CannotRebuild(
            f"environment {env_id!r} of the checkpoint is not registered here",  # not typed by the user: no hint
            "; import the package that registers it first, or pass env=",
        )
    if env_id == ATARI:
        return make_env_source(env_id, kwargs)
    return source_of_registered(env_id, gymnasium.registry[env_id], kwargs)


def check_nothing_lost(data: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise CannotRebuild for arguments that `to_json` could not keep and that are not given."""
    missing = {name: words for name, words in data.get(_LOST, {}).items() if name not in given}
    if missing:
        named = ", ".join(f"{name} ({words})" for name, words in missing.items())
        example = ", ".join(f"{name!r}: ..." for name in missing)
        raise CannotRebuild(
            f"the checkpoint could not keep all arguments of its environment {str(data['id'])!r}, and needs {named}",
            f": pass them, as in FastES.load(path, env={str(data['id'])!r}, env_kwargs={{{example}}})",
        )


def source_of_id(env_id: str, data: Mapping[str, Any] | None, given: Mapping[str, Any] | None = None) -> EnvSource:
    """Return the source of an id that is given for a file; if the file has the same id, with the file's arguments.

    Args:
        env_id: The id.
        data: The file's description of its environment.
        given: Arguments in place of the file's, or in addition, if the file could not keep all.
    """
    bare = native_id(env_id) if is_native(env_id) else env_id.rpartition(":")[2]
    named = data is not None and bare == data["id"]
    if data is not None and named:
        check_nothing_lost(data, given or {})
        if given is not None and data.get(_LOST):
            given = {**plain_kwargs(data), **given}
    if given is not None:
        return make_env_source(env_id, given)
    if data is not None and named and not is_atari(bare):
        return make_env_source(env_id, plain_kwargs(data))
    if data is not None and named:  # ale-py's environment: the file is older, or was told what to observe
        return from_json(data)
    source = make_env_source(env_id)
    return from_json(data) if data is not None and _game_of(data) == source.name else source


def _game_of(data: Mapping[str, Any]) -> str | None:
    """Return ale-py's id of the game that a file plays in FastES's Atari environment; None for another one."""
    game = data.get("kwargs", {}).get("game") if data["id"] == ATARI else None
    return ale_id(game) if isinstance(game, str) else None


def plain_kwargs(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's arguments for its environment; CannotRebuild if they may name code or a file."""
    env_id, kwargs = str(data["id"]), _with_tuples(data.get("kwargs", {}), data.get(_TUPLES, []))
    if kwargs.get("max_episode_steps", 0) is None:  # of a file of an older version
        kwargs["max_episode_steps"] = -1
    if env_id in _COMPATIBILITY or not _harmless(kwargs):
        raise CannotRebuild(
            f"the checkpoint's environment {env_id!r} has arguments {kwargs} {MAY_NAME_CODE}, which FastES "
            "does not take from a file",
            ": check them and pass env= and env_kwargs=",
        )
    return kwargs


def _harmless(value: Any) -> bool:
    """Whether an environment's argument from a file is numbers, flags and plain words: no path, no module, no command."""
    if isinstance(value, dict):
        return all(_harmless(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple)):
        return all(map(_harmless, value))
    return not isinstance(value, str) or re.fullmatch(r"[\w-]{0,64}", value) is not None
