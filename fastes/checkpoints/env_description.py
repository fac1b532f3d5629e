"""How a checkpoint names its environment: by an id that this process has registered, and harmless arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import gymnasium

from fastes.envs.atari.options import DEFAULTS, ale_id
from fastes.envs.import_hook import ATARI, is_atari, register_atari
from fastes.envs.source import EnvSource, make_env_source
from fastes.envs.worker_registry import portable
from fastes.errors import EnvironmentUnavailable


class CannotRebuild(EnvironmentUnavailable):
    """A checkpoint's environment cannot be built from the file. reason: why, without the advice for Python."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}{advice}")
        self.reason = reason


MAY_NAME_CODE = "that may name a file or a module"  # of an environment's arguments
# ids of Gymnasium's own whose arguments name code
_COMPATIBILITY = ("GymV21Environment-v0", "GymV26Environment-v0")


def to_json(source: EnvSource) -> dict[str, Any] | None:
    """What a checkpoint keeps: id and arguments, or None where that would not rebuild the environment."""
    spec = source.spec
    if spec is None or not source.rebuilds:
        return None
    defaults = DEFAULTS if spec.id == ATARI else {}  # they may change, and what was trained on does not
    kwargs = {**defaults, **spec.kwargs, **source.make_kwargs}
    registered = gymnasium.registry[spec.id]
    if spec.max_episode_steps != registered.max_episode_steps:
        kwargs["max_episode_steps"] = -1 if spec.max_episode_steps is None else spec.max_episode_steps  # -1: none
    kwargs = {key: value for key, value in kwargs.items() if key not in registered.kwargs or value != registered.kwargs[key]}
    try:
        written = json.loads(json.dumps(kwargs, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return {"id": spec.id, "kwargs": written} if written == _with_lists(kwargs) else None  # numbers as keys would be texts


def _with_lists(value: Any) -> Any:
    """Tuples as lists: JSON knows no others."""
    if isinstance(value, Mapping):
        return {key: _with_lists(inner) for key, inner in value.items()}
    return [_with_lists(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def from_json(data: Mapping[str, Any] | None) -> EnvSource:
    """The source that `to_json` described. Only ids that this process has registered are built: a file names no code."""
    if data is None:
        raise CannotRebuild(
            "the checkpoint does not say how to build its environment (a factory, wrappers, or an id that was not registered)",
            ": pass it, as in FastES.load(path, env=make_env)",
        )
    env_id, kwargs = str(data["id"]), plain_kwargs(data)
    register_atari(env_id)
    if env_id not in gymnasium.registry:
        raise CannotRebuild(
            f"environment {env_id!r} of the checkpoint is not registered here",  # nobody typed it: no guess at its spelling
            "; import the package that registers it first, or pass env=",
        )
    if env_id == ATARI:
        return make_env_source(env_id, kwargs)
    return EnvSource(env_id, portable(gymnasium.registry[env_id]), None, kwargs)


def source_of_id(env_id: str, data: Mapping[str, Any] | None) -> EnvSource:
    """The source of an id that is given beside a file. Where the file names it, too, with the file's arguments.

    data: what `to_json` described.
    """
    bare = env_id.rpartition(":")[2]
    if data is not None and bare == data["id"] and not is_atari(bare):
        return make_env_source(env_id, plain_kwargs(data))
    if data is not None and bare == data["id"]:  # ale-py's environment: the file is older, or was told what to observe
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
