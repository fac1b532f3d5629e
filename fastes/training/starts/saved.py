"""Several starts in a checkpoint: the checks of what a file says, and files of earlier versions."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from fastes.checkpoints.field_checks import (
    MAX_COUNTER,
    Kinds,
    check_alternatives,
    check_arrays,
    check_record,
    is_count,
    is_number_or_none,
)
from fastes.errors import CheckpointError
from fastes.settings.settings import Settings
from fastes.training.starts.parts import Start

GIVEN = "given_theta"
_MOST = 10_000  # starts of a training
_MOST_ROUNDS = 14
_UNKNOWN = -1  # number of a start that a file of an earlier version holds


def described(start: Start) -> dict[str, Any]:
    """A start's JSON values."""
    values = {name: value for name, value in start._asdict().items() if name != "arrays"}
    return {**values, "score": start.score if math.isfinite(start.score) else None}


def start_from(
    place: str,
    data: object,
    arrays: Mapping[str, npt.NDArray[Any]],
    like: Mapping[str, npt.NDArray[Any]],
    settings: Settings,
) -> Start:
    """What `described` was given.

    place: of data in the JSON member.
    arrays: its own.
    like: arrays as the model has them. settings: of the training, in which it may differ.

    Raises CheckpointError.
    """
    values = check_record(place, data, _KINDS_OF_A_START)
    check_arrays(arrays, like)
    check_alternatives(values["alternatives"], settings)
    return Start(**{**values, "score": -math.inf if values["score"] is None else values["score"]}, arrays=dict(arrays))


def checked(data: object, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What a file says of starts, and its arrays, but for what it says of each start. Raises CheckpointError.

    Files of earlier versions have one round, and hold its best start alone.
    """
    if isinstance(data, dict) and "score" in data:
        data, arrays = _in_rounds(data, arrays)
    data = check_record("starts", data, _KINDS)
    if bool(data["kept"]) != (data["judged"] > 0) or (data["waiting"] and not data["round"]):
        raise CheckpointError(f"the checkpoint's 'starts' contradict each other: {reprlib.repr(data)}")
    return data, dict(arrays)


def _in_rounds(data: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[object, Mapping[str, npt.NDArray[Any]]]:
    """The same as there is today."""
    data = check_record("starts", {"begun_generation": 0, "stride": None, **data}, _KINDS_OF_ONE_ROUND)
    best = {name: data.pop(name) for name in ("score", "episode_cap", "first_blocks")}
    stride = data.pop("stride")
    kept = [] if best["episode_cap"] is None else [{**best, "number": _UNKNOWN, "alternatives": {}}]
    rounds = {"round": 0, "running": data["judged"], "strides": [] if stride is None else [stride]}
    named = {name if name == GIVEN else f"kept.0.{name}": array for name, array in arrays.items()}
    return {**data, **rounds, "kept": kept, "waiting": []}, named


def _is_stride(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_count(each, low=1) for each in value)


def _are_strides(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ROUNDS and all(map(_is_stride, value))


def _are_starts(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST


COUNTS: Kinds = {
    "seed": lambda value: type(value) is int and 0 <= value < 2**63,
    "round": lambda value: is_count(value) and value < _MOST_ROUNDS,
    "judged": is_count,
    "running": lambda value: is_count(value, low=_UNKNOWN),
    "begun_at": lambda value: is_count(value, low=-MAX_COUNTER),
    "begun_generation": is_count,
}
_KINDS: Kinds = {**COUNTS, "strides": _are_strides, "kept": _are_starts, "waiting": _are_starts}
_KINDS_OF_A_START: Kinds = {
    "number": lambda value: is_count(value, low=_UNKNOWN),
    "score": is_number_or_none,
    "episode_cap": lambda value: is_count(value, low=1),
    "first_blocks": lambda value: is_count(value, low=1),
    "alternatives": lambda value: isinstance(value, dict),
}
_KINDS_OF_ONE_ROUND: Kinds = {
    **{name: kind for name, kind in COUNTS.items() if name not in ("round", "running")},
    "stride": lambda value: value is None or _is_stride(value),
    "score": is_number_or_none,
    "episode_cap": lambda value: value is None or is_count(value, low=1),
    "first_blocks": lambda value: value is None or is_count(value, low=1),
}
