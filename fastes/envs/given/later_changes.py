"""Warnings of changes that a user makes to an environment object after a model was given it: no worker gets them.

An object that is only played must not look changed. A difference from before counts if no method that `reset`, `step`,
`render` or `close` may call writes it, as their compiled code shows, if a few steps on another environment do not move it, and
if that environment lacks it.
"""

from __future__ import annotations

import dis
import functools
import random
import re
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium

from fastes.envs.closing import closed_after
from fastes.envs.given.changes import (
    Env,
    Episode,
    counted_layers,
    in_both,
    is_drawn,
    is_within,
    laid_out,
    name_of,
    undisturbed,
)
from fastes.envs.likeness import PLAIN, Content, Way, part_of
from fastes.errors import warn_user

_FOREIGN = ("mujoco", "Box2D", "_Box2D")  # simulators, which write their own state
_ROOTS = ("reset", "step", "render", "close", "__call__", "__getattr__")
_BY_NAME = {"setattr", "delattr", "__dict__", "__setattr__", "vars", "exec", "eval"}  # these may write any attribute
_IN_PLACE = {
    *("append", "appendleft", "extend", "insert", "pop", "popleft", "remove", "clear", "update", "setdefault", "popitem"),
    *("add", "discard", "sort", "reverse", "rotate", "fill", "put", "copyto", "shuffle", "resize", "next"),
    *("heappush", "heappop"),
}


class WatchedEnv:
    """An environment object as it was at first. It is not kept alive.

    Args:
        env: The environment.
        called: Its name in messages.
    """

    def __init__(self, env: Env, called: str = "env") -> None:
        self._env, self._called = weakref.ref(env), called
        self._first = laid_out(env).contents
        self._told: dict[Way, Content | None] = {}

    def warn_of_changes(self, build: Callable[[], Env]) -> None:
        """Warn once of each change that a user has made since.

        Args:
            build: Builds an environment in the way in which workers do.
        """
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
        with undisturbed(), closed_after(build()) as other:
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
        advice = "model.set_env(env) trains on an object as it is then"
        if len(ways[0]) == 2 and ways[0] in now:
            advice += f", model.get_env().set_attr({ways[0][1].key!r}, value) sets it in every environment that plays"
        warn_user(
            f"the environment {env} was changed after the model was made, which reaches no environment that plays: "
            f"{in_both(names, ways, now, playing, 'play')}. {advice}",
            UserWarning,
        )


def _differing(first: dict[Way, Content], now: dict[Way, Content]) -> list[Way]:
    """Return the ways to everything that is not the same in both, including parts of each other."""
    return [way for way in {**first, **now} if not _alike(first.get(way), now.get(way))]


def _alike(one: Content | None, other: Content | None) -> bool:
    return one is None if other is None else other.same_as(one)


def _not_written(env: Env, ways: list[Way], first: dict[Way, Content], now: dict[Way, Content]) -> list[Way]:
    """Return the ways, outer ones only, to parts that the environment's own code does not write."""
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


# --- what methods write ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenNames:
    """Attributes that are written by methods which `reset`, `step`, `render` or `close` may call.

    Attributes:
        assigned: Names that are assigned or deleted.
        filled: Names that are mentioned in code that changes an object in place: it sets items, or calls a method that changes
            its object or a function that changes its argument.
        any: Whether attributes are written in ways that show no name.
    """

    assigned: frozenset[str]
    filled: frozenset[str]
    any: bool


def written_names(kinds: Collection[type]) -> WrittenNames:
    """Return what the methods of these classes and their bases write. A method counts as called if its name is mentioned."""
    members: dict[str, list[types.CodeType]] = {}
    compiled = False
    for base in dict.fromkeys(base for kind in kinds for base in kind.__mro__):
        for name, member in vars(base).items():
            compiled |= issubclass(base, gymnasium.Env) and type(member).__name__ == "cython_function_or_method"
            for function in _functions(member):
                members.setdefault(name, []).append(function.__code__)
                for other, value in function.__globals__.items() if name in _ROOTS else ():
                    if isinstance(value, types.FunctionType):
                        members.setdefault(other, []).append(value.__code__)
    todo, seen = [*_ROOTS], set(_ROOTS)
    assigned, filled, by_name = set[str](), set[str](), compiled
    while todo:
        for code in members.get(todo.pop(), ()):
            mentioned, stored, fills = _in_code(code)
            assigned |= stored
            if fills or any(_fills_argument(other) for name in mentioned for other in members.get(name, ())):
                filled |= mentioned
            by_name |= not mentioned.isdisjoint(_BY_NAME)
            todo.extend(mentioned - seen)
            seen |= mentioned
    return WrittenNames(frozenset(assigned), frozenset(filled), by_name)


def _fills_argument(code: types.CodeType) -> bool:
    """Return whether a function may change an argument other than self in place."""
    return code.co_argcount > (code.co_varnames[:1] == ("self",)) and _in_code(code)[2]


def _functions(member: Any) -> Iterator[types.FunctionType]:
    inner = [member.fget, member.fset, member.fdel] if isinstance(member, property) else [getattr(member, "__func__", member)]
    for function in inner:
        while isinstance(function, types.FunctionType):
            yield function
            function = getattr(function, "__wrapped__", None)


@functools.cache
def _in_code(code: types.CodeType) -> tuple[frozenset[str], frozenset[str], bool]:
    """Return the names that are mentioned, the attributes that are stored, and whether anything is changed in place."""
    mentioned, stored, fills = set[str](), set[str](), False
    todo = [code]
    while todo:
        code = todo.pop()
        mentioned.update(code.co_names)
        todo.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
                stored.add(instruction.argval)
            fills |= instruction.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
        fills |= any(isinstance(part, tuple) and "out" in part for part in code.co_consts)  # a keyword of NumPy's
    fills |= any(name.endswith("_") and not name.startswith("_") for name in mentioned)  # as torch names methods
    return frozenset(mentioned), frozenset(stored), fills or not mentioned.isdisjoint(_IN_PLACE)
