"""What a user sets in an environment object after a model was given it, which no worker gets.

An object that is only played must not look changed. What differs from before counts if no method writes it that `reset`,
`step`, `render` or `close` may call, if a few steps on another environment do not move it, and if that one lacks it.
"""

from __future__ import annotations

import random
import re
import warnings
import weakref
from collections.abc import Callable

from fastes.envs.given.changes import Env, Episode, built, counted_layers, is_drawn, is_within, laid_out, name_of, undisturbed
from fastes.envs.given.likeness import PLAIN, Content, Way, part_of
from fastes.envs.given.written_names import WrittenNames, written_names
from fastes.errors import level_outside

_NAMED = 4  # changes in a message
_FOREIGN = ("mujoco", "Box2D", "_Box2D")  # simulators, which write their own state


class WatchedEnv:
    """An environment object as it was at first. It is not kept alive.

    called: the name under which a user has it, in messages.
    """

    def __init__(self, env: Env, called: str = "env") -> None:
        self._env, self._called = weakref.ref(env), called
        self._first = laid_out(env).contents
        self._told: dict[Way, Content | None] = {}

    def tell_of_changes(self, build: Callable[[], Env]) -> None:
        """Warn once of each change that a user has made since. build: makes an environment as those that play."""
        env = self._env()
        if env is None:
            return
        now = laid_out(env).contents
        ways = _differing(self._first, now)
        self._told = {way: content for way, content in self._told.items() if way in ways}
        ways = [way for way in ways if not (way in self._told and _alike(now.get(way), self._told[way]))]
        if not ways or not (ways := _not_written(env, ways, self._first, now)):
            return
        playing: dict[Way, Content] = self._first
        moved: set[Way] = set()
        with undisturbed(), built(build()) as other:
            new = laid_out(other)
            playing = new.contents
            episode = Episode.of(other, new)
            moved = {*episode.moved, *episode.lasting}
        ways = [way for way in ways if not is_within(way, moved) and not _alike(now.get(way), playing.get(way))]
        if ways:
            self._told.update({way: now.get(way) for way in ways})
            self._warn(env, ways, now, playing)

    def _warn(self, env: Env, ways: list[Way], now: dict[Way, Content], playing: dict[Way, Content]) -> None:
        names = [re.sub(r"^env\b", self._called, name_of(env, way)) for way in ways]
        shown = ", ".join(
            f"{name} is {_shown(now.get(way))}, and {_shown(playing.get(way))} in those that play"
            for name, way in zip(names[:_NAMED], ways, strict=False)
        )
        more = f", and {len(ways) - _NAMED} more" if len(ways) > _NAMED else ""
        advice = "model.set_env(env) trains on an object as it is then"
        if len(ways[0]) == 2 and ways[0] in now:
            advice += f", model.get_env().set_attr({ways[0][1].key!r}, value) sets it in every environment that plays"
        warnings.warn(
            f"the environment {env} was changed after the model was made, which reaches no environment that plays: {shown}"
            f"{more}. {advice}",
            UserWarning,
            stacklevel=level_outside(),
        )


def _differing(first: dict[Way, Content], now: dict[Way, Content]) -> list[Way]:
    """Ways to what is not the same in both; parts within each other are all there."""
    return [way for way in {**first, **now} if not _alike(first.get(way), now.get(way))]


def _alike(one: Content | None, other: Content | None) -> bool:
    return one is None if other is None else other.same_as(one)


def _shown(content: Content | None) -> str:
    return "missing" if content is None else content.shown


def _not_written(env: Env, ways: list[Way], first: dict[Way, Content], now: dict[Way, Content]) -> list[Way]:
    """Those, outer ones alone, to what the environment's own code does not write."""
    layers = counted_layers(env)
    holders = {way[:end]: _part(layers, way[:end]) for way in ways for end in range(1, len(way))}
    written = written_names({kind for kind in map(type, (*layers, *holders.values())) if not _is_foreign(kind)})
    kept: list[Way] = []
    for way in sorted(ways, key=len):
        if is_within(way, kept) or is_drawn(env, way):
            continue
        in_place = way[-1].kind != "attribute" or not all(_is_plain(each.get(way)) for each in (first, now))
        if not _may_write(written, way, holders, in_place):
            kept.append(way)
    return kept


def _part(layers: list[Env], way: Way) -> object:
    try:
        return part_of(layers, way)
    except (LookupError, AttributeError, TypeError):
        return None


def _is_plain(content: Content | None) -> bool:
    return content is None or content.kind.thing in PLAIN


def _is_foreign(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in _FOREIGN


def _may_write(written: WrittenNames, way: Way, holders: dict[Way, object], in_place: bool) -> bool:
    kinds = [type(holders[way[:end]]) for end in range(1, len(way))]
    names = [str(step.key) for step in way if step.kind == "attribute"]
    if any("render" in name or "viewer" in name for name in names):
        return True
    foreign = [kind.__name__ for kind in kinds if _is_foreign(kind)]
    if foreign:
        return "MjModel" not in foreign or "vis" in names
    if any(issubclass(kind, random.Random) or str(kind.__module__).startswith("numpy.random.") for kind in kinds):
        return True
    if written.any or not written.assigned.isdisjoint(names):
        return True
    return in_place and not written.filled.isdisjoint(names)
