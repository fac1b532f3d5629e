"""The info of an episode's last step, which is passed in shared memory as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.envs.returned import TIMED_OUT

ROOM = 2048  # bytes per episode
LEFT_OUT = "fastes.left_out"  # the key of how many items did not fit
_OWN = ("r", "l", "t")  # of SB3's and Gymnasium's info["episode"]: a report has its own
_SCALARS = (bool, int, float, str)
Info = dict[str, Any]


def has_mask(info: Any) -> bool:
    """Whether an info offers an action mask, as those of PettingZoo's games and of Gymnasium's Taxi do."""
    return isinstance(info, (dict, Mapping)) and ("action_mask" in info or "action_masks" in info)


def write_info(room: npt.NDArray[np.uint8], info: Any, keywords: Sequence[str], timed_out: bool) -> None:
    """Write the scalars of an info.

    Args:
        room: The episode's, uint8 (n,).
        info: The info.
        keywords: The keys that are written first. If others do not fit, their number is written instead.
        timed_out: Whether a limit has ended the episode, the environment's or one of FastES; a key as in SB3's VecEnvs.
    """
    others = scalars_of(info)
    others.pop(TIMED_OUT, None)
    found = {TIMED_OUT: timed_out, **others}
    text = _as_json(found)
    if len(text) >= len(room):
        text = _as_json(_shortened(found, keywords, len(room)))
    room[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    room[len(text)] = 0


def read_info(room: npt.NDArray[np.uint8]) -> Info:
    """Read what `write_info` wrote; {} for an episode that failed."""
    text = bytes(room).partition(b"\0")[0]
    return json.loads(text) if text else {}


def scalars_of(info: Any) -> Info:
    """Return an info's numbers, flags and strings, NumPy's and 0-d arrays included, and those of info['episode']."""
    if not isinstance(info, Mapping):
        return {}
    found = {key: scalar for key, value in info.items() if isinstance(key, str) and (scalar := _scalar(value)) is not None}
    if isinstance(episode := info.get("episode"), Mapping):
        more = {key: scalar for key, scalar in scalars_of(episode).items() if key not in _OWN}
        return {**found, "episode": more} if more else found
    return found


def _scalar(value: Any) -> bool | int | float | str | None:
    """Return the value if it is a scalar, else None."""
    if type(value) in _SCALARS:
        return value  # type: ignore[no-any-return]
    if isinstance(value, (np.generic, np.ndarray)) and value.shape == () and value.dtype.kind in "biufU":
        scalar = value.item()
        return scalar if type(scalar) in _SCALARS else float(scalar)  # a long double stays one
    return None


def _as_json(info: Info) -> bytes:
    return json.dumps(info, separators=(",", ":")).encode() if info else b""


def _shortened(info: Info, keywords: Sequence[str], room: int) -> Info:
    """Return as many items as fit, the keywords' first, and the number of the others."""
    kept: Info = {LEFT_OUT: len(info)}
    for key in (*(name for name in keywords if name in info), *info):
        longer = {**kept, key: info[key], LEFT_OUT: kept[LEFT_OUT] - (key not in kept)}
        if len(_as_json(longer)) < room:
            kept = longer
    return kept
