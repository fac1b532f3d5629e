"""What callbacks see of an episode's infos: those of its last step, under the names that SB3's Monitor and VecEnvs use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fastes.rollout.last_infos import LEFT_OUT


class StepInfo(dict[str, Any]):
    """The info of one step, as callbacks get it. A KeyError says which steps have one, and what of it."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(
            f"{key!r} is not in this info: FastES tells of each episode the last step's info alone, and of that its numbers, "
            f"truth values and words. Look where dones is true, or ask with info.get({key!r})"
        )


def checked_keywords(given: Iterable[str]) -> tuple[str, ...]:
    """Names of infos; TypeError for anything but an iterable of strings."""
    names = () if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) else tuple(given)
    if (not names and given not in ((), [])) or any(not isinstance(name, str) for name in names):
        raise TypeError(f"info_keywords = {given!r}: expected names of infos, as in info_keywords=('distance',)")
    return names


def keywords_in(info: dict[str, Any], keywords: Sequence[str]) -> dict[str, Any]:
    """Those of the keywords that an episode's last info has, by itself or from a Monitor inside of the environment."""
    episode = info.get("episode", {})
    known = {**(episode if isinstance(episode, dict) else {}), **info}
    return {name: known[name] for name in keywords if name in known and name != "episode"}


def info_of(info: dict[str, Any], episode: dict[str, Any], success: float, keywords: Sequence[str]) -> StepInfo:
    """What callbacks see of the last step of an episode.

    info: the scalars that the environment gave. episode: r, l and t. success: 1.0 or 0.0, NaN where it is not known.
    """
    inner = info.get("episode", {})
    more = {**(inner if isinstance(inner, dict) else {}), **keywords_in(info, keywords)}
    told = StepInfo({**info, "episode": {**more, **episode}})
    told.pop(LEFT_OUT, None)
    if not math.isnan(success):
        told["is_success"] = success > 0.5
    return told
