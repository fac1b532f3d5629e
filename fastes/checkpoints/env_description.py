"""How a checkpoint names its environment: by an id that this process has registered, and harmless arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import gymnasium

from fastes.envs.atari.options import DEFAULTS, ale_id
from fastes.envs.factories import Copies
from fastes.envs.given.changes import shortened
from fastes.envs.import_hook import ATARI, is_atari, register_atari
from fastes.envs.likeness import described, same
from fastes.envs.source import EnvSource, make_env_source
from fastes.envs.worker_imports import portable
from fastes.errors import EnvironmentUnavailable


class CannotRebuild(EnvironmentUnavailable):
    """A checkpoint's environment cannot be built from the file. reason: why, without the advice for Python."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}{advice}")
        self.reason = reason


_LOST = "lost"
WRAPPERS = "the wrappers"  # begins why there is no description of an environment in some
MAY_NAME_CODE = "that may name a file or a module"  # of an environment's arguments
# ids of Gymnasium's own whose arguments name code
_COMPATIBILITY = ("GymV21Environment-v0", "GymV26Environment-v0")


def to_json(source: EnvSource) -> dict[str, Any] | None:
    """What a checkpoint keeps: id and arguments, or None where that would not rebuild the environment.

    Arguments that are not JSON stay out; 'lost' says in words what they were.
    """
    spec = source.spec
    if spec is None or not source.rebuilds:
        return None
    defaults = DEFAULTS if spec.id == ATARI else {}  # they may change, and what was trained on does not
    kwargs = {**defaults, **spec.kwargs, **source.make_kwargs}
    registered = gymnasium.registry[spec.id]
    if spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps  # -1: none
    kept, lost = {}, {}
    for name, value in kwargs.items():
        if name in registered.kwargs and same(value, registered.kwargs[name]):
            continue
        if (written := _written(value)) is None:
            lost[name] = described(value)
        else:
            kept[name] = written[0]
    return {"id": spec.id, "kwargs": kept, **({_LOST: lost} if lost else {})}


def reason_for_none(source: EnvSource) -> str:
    """Why `to_json` has nothing to say, in words; '' where it has."""
    if isinstance(source.factory, Copies) and source.changes is None:
        return f"it was a copy of an object, {source.name!r}"
    if source.factory is not None and source.changes is None:
        return f"it was made by {source.name!r}, a factory"
    if source.vector_env is not None and not source.rebuilds:
        return f"it was the vector environment {source.vector_env}"
    if source.changes is not None:
        return f"{shortened(source.changes.names)} had been set in the object that was given, {source.name!r}"
    if source.wrappers:
        return f"{WRAPPERS} {', '.join(wrapper.name for wrapper in source.wrappers)} were around {source.name!r}"
    if source.spec is not None and not source.rebuilds:
        return f"{source.name!r} was not registered in Gymnasium"
    return ""


def _written(value: Any) -> tuple[Any] | None:
    """A value as JSON has it, in a tuple; None where JSON would give another one back."""
    try:
        written = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None
    return (written,) if same(written, _with_lists(value)) else None  # numbers as keys would be texts, enums of str plain words


def _with_lists(value: Any) -> Any:
    """Tuples as lists: JSON knows no others."""
    if isinstance(value, dict):
        return {key: _with_lists(inner) for key, inner in value.items()}
    return [_with_lists(inner) for inner in value] if type(value) in (list, tuple) else value


def from_json(data: Mapping[str, Any] | None, kept_out: str = "") -> EnvSource:
    """The source that `to_json` described. Only ids that this process has registered are built: a file names no code.

    kept_out: why there is nothing, as `reason_for_none` said.
    """
    if data is None:
        why = f": {kept_out}" if kept_out else " (a factory, wrappers, or an id that was not registered)"
        raise CannotRebuild(
            f"the checkpoint does not say how to build its environment{why}", ": pass it, as in FastES.load(path, env=make_env)"
        )
    env_id, kwargs = str(data["id"]), plain_kwargs(data)
    check_nothing_lost(data, {})
    register_atari(env_id)
    if env_id not in gymnasium.registry:
        raise CannotRebuild(
            f"environment {env_id!r} of the checkpoint is not registered here",  # nobody typed it: no guess at its spelling
            "; import the package that registers it first, or pass env=",
        )
    if env_id == ATARI:
        return make_env_source(env_id, kwargs)
    return EnvSource(env_id, portable(gymnasium.registry[env_id]), None, kwargs)


def check_nothing_lost(data: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """CannotRebuild that names the arguments which `to_json` could not keep and nobody has given."""
    missing = {name: words for name, words in data.get(_LOST, {}).items() if name not in given}
    if missing:
        named = ", ".join(f"{name} ({words})" for name, words in missing.items())
        example = ", ".join(f"{name!r}: ..." for name in missing)
        raise CannotRebuild(
            f"the checkpoint could not keep all arguments of its environment {str(data['id'])!r}, and needs {named}",
            f": pass them, as in FastES.load(path, env={str(data['id'])!r}, env_kwargs={{{example}}})",
        )


def source_of_id(env_id: str, data: Mapping[str, Any] | None, given: Mapping[str, Any] | None = None) -> EnvSource:
    """The source of an id that is given beside a file. Where the file names it, too, with the file's arguments.

    data: what `to_json` described.
    given: arguments in place of the file's; those that the file could not keep come on top of them.
    """
    bare = env_id.rpartition(":")[2]
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
    """ale-py's id of the game, where a file plays one in the environment of FastES."""
    game = data.get("kwargs", {}).get("game") if data["id"] == ATARI else None
    return ale_id(game) if isinstance(game, str) else None


def plain_kwargs(data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a checkpoint has for its environment, or CannotRebuild when they may name code or a file."""
    env_id, kwargs = str(data["id"]), dict(data.get("kwargs", {}))
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
    if isinstance(value, list):
        return all(map(_harmless, value))
    return not isinstance(value, str) or re.fullmatch(r"[\w-]{0,64}", value) is not None
