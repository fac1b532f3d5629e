"""Attributes that a user has set on a model: its checkpoint holds them, as SB3's do, subject to save's exclude and include."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from fastes.checkpoints.field_checks import damaged
from fastes.checkpoints.file_format import Checkpoint
from fastes.errors import warn_user
from fastes.settings.settings import setting_names

ATTRIBUTES = "attributes"  # the key in a checkpoint's data
_MOST_BYTES = 1 << 20
_DEEPEST = 32


def attributes_of(model: object, exclude: Collection[str] = (), include: Collection[str] = ()) -> dict[str, Any]:
    """Return a user's attributes of a model for a checkpoint: name -> JSON value.

    An attribute that a file cannot hold causes a warning.

    Args:
        model: The model.
        exclude: Names to leave out.
        include: Names to save although they begin with an underscore.

    Raises:
        TypeError: An included attribute that a file cannot hold.
    """
    kept: dict[str, Any] = {}
    for name, value in vars(model).items():
        wanted = not name.startswith("_") or (name in include and not name.startswith("__"))
        if not wanted or name in exclude or _is_own(type(model), name):
            continue
        try:
            if not name.isidentifier():  # `setattr` takes any, and a file that has it would be refused
                raise ValueError("its name is not an identifier")
            kept[name] = _plain(value, _DEEPEST)
            if len(json.dumps(kept[name])) > _MOST_BYTES:
                raise ValueError(f"it is longer than {_MOST_BYTES:,} bytes")
        except ValueError as error:
            kept.pop(name, None)
            message = (
                f"model.{name} is a {type(value).__name__} that a checkpoint cannot hold ({error}): it holds numbers, words, "
                "None, and lists and dicts of these, and runs no code"
            )
            if name in include:
                raise TypeError(f"save(include=[{name!r}]): {message}") from None
            warn_user(f"{message}. Set it again after load; save(exclude=[{name!r}]) silences this", UserWarning)
    return kept


def set_attributes(model: object, checkpoint: Checkpoint, instead: Mapping[str, Any]) -> None:
    """Set a file's attributes on a model, with the values of `instead` for those that it has. Raises CheckpointError."""
    found = checkpoint.data.get(ATTRIBUTES, {})
    if not isinstance(found, dict):
        raise damaged(ATTRIBUTES, found)
    is_derived = not type(model).__module__.startswith("fastes.")  # its __init__ may have set a user's attribute
    internal = set() if is_derived else {name for name in vars(model) if name.startswith("_")}
    for name, value in found.items():
        if not name.isidentifier() or name.startswith("__") or name in internal or _is_own(type(model), name):
            raise damaged(f"{ATTRIBUTES}.{name:.50}", value)
        vars(model)[name] = instead.get(name, value)


def _is_own(kind: type, name: str) -> bool:
    """Whether FastES, or a class derived from it, has or declares an attribute of that name."""
    return hasattr(kind, name) or any(name in inspect.get_annotations(base) for base in kind.__mro__)


def _plain(value: Any, deepest: int) -> Any:
    """Return a value as JSON gives it back, with tuples as lists; ValueError if JSON cannot hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if deepest and isinstance(value, (list, tuple)):
        return [_plain(item, deepest - 1) for item in value]
    if deepest and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str(key): _plain(item, deepest - 1) for key, item in value.items()}
    raise ValueError(f"{value!r:.60} is not a JSON value")


# --- exclude and include ----------------------------------------------------------------------------------------------

# fmt: off
_HELD = {
    "policy", "policy.optimizer", "policy_kwargs", "policy_class", "seed", "settings", "state", "strategy", "theta",
    "num_timesteps", "eval_timesteps", "num_episodes", "generation", "budget", "best_eval_return", "_n_updates", "_episode_num",
    "_total_timesteps", "normalizer",
}
_NEVER_HELD = {
    "env": "pass env= to load", "_vec_normalize_env": "model.get_vec_normalize_env().save(path) writes it",
    **dict.fromkeys(("logger", "_logger"), "call set_logger after load"),
    **dict.fromkeys(("ep_info_buffer", "ep_success_buffer"), "learn fills it again"),
}
# fmt: on


def check_saved_names(exclude: Iterable[str] | None, include: Iterable[str] | None) -> tuple[set[str], set[str]]:
    """Return both as sets; a name in both is included.

    Names of attributes that only SB3's algorithms have change nothing.

    Raises:
        ValueError: An excluded part of the training, or an included name that a checkpoint cannot hold.
        TypeError: Values that are not names.
    """
    held = _HELD | set(setting_names())
    left, wanted = set(_names("exclude", exclude)), set(_names("include", include))
    for name in sorted(left):
        if name in held:
            raise ValueError(
                f"save(exclude=[{name!r}]): a checkpoint always holds the whole training, and {name!r} is a part of it; leave "
                "it out of exclude. model.get_parameters() are the parameters alone"
            )
    for name in sorted(wanted):
        if name in _NEVER_HELD:
            raise ValueError(f"save(include=[{name!r}]): a checkpoint cannot hold {name!r}; {_NEVER_HELD[name]}")
    return left - wanted, wanted


def _names(argument: str, names: Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise TypeError(f"save({argument}={names!r}): expected a list of names, as in {argument}=['replay_buffer']")
    found = list(names)
    if odd := [name for name in found if not isinstance(name, str)]:
        raise TypeError(f"save({argument}=...) got {odd[0]!r}, a {type(odd[0]).__name__}: expected names of attributes")
    return found
