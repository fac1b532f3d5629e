"""Find the changes that were made in an environment object since it was built, and make the same in another one.

The object is compared with one that is built in the way of workers, attribute by attribute, to any depth. Traces of an
episode do not count: a few steps on the other one move it, and a reset with the same seed brings it back.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from fastes.envs.layers import DRAWING, layers
from fastes.envs.likeness import (
    Content,
    Layout,
    Step,
    Way,
    draws,
    in_words,
    layout_of_layers,
    part_of,
    same,
    shown_at,
    ways_that_differ,
)
from fastes.errors import first_few, warn_user
from fastes.system.forks import CopiesEndHere
from fastes.system.random_state import global_random_kept, seed_global_random

Env = gymnasium.Env[Any, Any]
Build = Callable[[int], contextlib.AbstractContextManager[Env]]
_STEPS = 3  # of playing
_NAMED = 4  # changes in a message
_WATCH_ALONE = {"RecordEpisodeStatistics", "RecordVideo", "Monitor"}  # wrappers: what these count changes no episode
_SAID_ELSEWHERE = {"NormalizeObservation", "NormalizeReward"}  # wrappers whose statistics are warned of in any case


class CannotCarry(ValueError):
    """Something was changed that cannot be copied.

    Args:
        names: The changed parts, as a script would write them.
        reason: Why they cannot be copied.
    """

    def __init__(self, names: Sequence[str], reason: str) -> None:
        super().__init__(f"{first_few(names)}: {reason}")
        self.names = names


class _Change(NamedTuple):
    """A change: the way to it, and whether to 'set' or 'delete' the part, or to 'fill' its dict, list or array."""

    way: Way
    how: str
    value: Any = None


@dataclass(frozen=True)
class Changes:
    """The changes that were made in an environment.

    Attributes:
        names: The changed parts, as a script would write them.
        pickled: A list of _Change; parts that were not changed are named by the ways to them.
    """

    names: tuple[str, ...]
    pickled: bytes

    def apply(self, env: Env) -> None:
        """Make the same changes in an environment that was built again."""
        counted = counted_layers(env)
        for change in _Unpickler(io.BytesIO(self.pickled), counted).load():
            _apply(counted, change)


def changes_of(given: Env, build: Build, strict: bool = True) -> Changes | None:
    """Return the changes that were made in an environment since it was built; None if there are none.

    Warns of differences that the user or the object's earlier episodes may have made.

    Args:
        given: The environment.
        build: Builds an environment without the changes, as the worker of a number does, and closes it after a block.
        strict: Whether to raise CannotCarry for a change that cannot be copied; else warn of it: the author of the class has
            left it out of copies.
    """
    mine = laid_out(given)
    with build(0) as env:
        new = laid_out(env)
    differing = [way for way in ways_that_differ(mine, new) if not is_drawn(given, way)]
    if not differing:
        return None
    with _once_more(build) as env:
        varying = ways_that_differ(new, laid_out(env))  # such as a process's number or a clock
        differing = [way for way in differing if not is_within(way, varying)]
        if not differing:
            return None
        episode = Episode.of(env, new)
    changed = [way for way in differing if not episode.overwrites(way)]
    if was_played(given):
        lasting = [way for way in changed if is_within(way, episode.lasting)]
        _warn_of_lasting(given, [way for way in lasting if not _is_counted_elsewhere(given, way)], mine, new)
        changed = [way for way in changed if way not in lasting]
    if not changed or (changes := _pickled(given, changed, mine, new, strict)) is None:
        return None
    with _once_more(build) as env:
        changes.apply(env)
        missing = ways_that_differ(mine, laid_out(env))
        after = _after_reset(env)
    if after is not None and episode.begun is not None:
        if not ways_that_differ(after, episode.begun):
            return None
        gone = ways_that_differ(mine, after)
        kept = [way for way in changed if not _touches(way, gone)]
        fewer = _pickled(given, kept, mine, new, strict) if 0 < len(kept) < len(changed) else None
        if fewer is not None and _gives(fewer, build, after):
            changes, changed = fewer, kept
    if strict and (missing := [way for way in changed if _touches(way, missing)]):
        raise CannotCarry([name_of(given, way) for way in missing], "a copy does not have what was set there")
    return changes


def _gives(changes: Changes, build: Build, expected: Layout) -> bool:
    """Return whether an environment with these changes has the expected parts once it is reset."""
    with _once_more(build) as env:
        changes.apply(env)
        found = _after_reset(env)
    return found is not None and not ways_that_differ(found, expected)


def _touches(way: Way, others: Collection[Way]) -> bool:
    """Return whether a way is the same as one of the others, leads through it, or is led through by it."""
    return any(way == each[: len(way)] or each == way[: len(each)] for each in others)


def _after_reset(env: Env) -> Layout | None:
    """Return the parts of an environment once it is reset; None if it raises."""
    found: list[Layout] = []
    with undisturbed():
        env.reset(seed=1)
        found.append(laid_out(env))
    return found[0] if found else None


def was_played(env: Env) -> bool:
    """Return whether an environment may have been played: one that does not enforce the order of calls does not say."""
    known = [bool(layer.has_reset) for layer in layers(env) if isinstance(layer, OrderEnforcing)]
    return any(known) or not known


def counted_layers(env: Env) -> list[Env]:
    """Return the layers of an environment from the inside out, at which ways begin, without those that check or draw.

    Neighbouring time limits are one layer, as in an environment that is rebuilt.
    """
    found: list[Env] = []
    for layer in reversed(list(layers(env))):
        follows = bool(found) and type(layer) is TimeLimit and type(found[-1]) is TimeLimit
        if not follows and type(layer) not in (PassiveEnvChecker, *DRAWING):
            found.append(layer)
    return found


def laid_out(env: Env) -> Layout:
    """Return the parts of an environment. A layer that does not count has the place of the next one inside it."""
    counted = counted_layers(env)
    ids = [id(layer) for layer in counted]
    places: dict[int, int] = {}
    place = 0
    for layer in reversed(list(layers(env))):
        place = ids.index(id(layer)) if id(layer) in ids else place
        places[id(layer)] = place
    return layout_of_layers(counted, _is_left_out, places)


def _is_left_out(layer: Any, name: str) -> bool:
    """Return whether an attribute says how a layer was made, which is known, or how it is drawn, which workers do not do."""
    if name in ("spec", "render_mode"):
        return True
    if not isinstance(layer, gymnasium.Wrapper):
        return False
    if type(layer).__name__ in _WATCH_ALONE:
        return True
    return name in ("env", "_cached_spec", "_saved_kwargs") or (type(layer) is TimeLimit and name == "_max_episode_steps")


# --- what an episode leaves -----------------------------------------------------------------------------------------


@dataclass
class Episode:
    """The effect of an episode on a new environment.

    Attributes:
        begun: Its parts after the first reset; None if that raises.
        moved: Ways to the parts that change while it is played.
        lasting: Ways to the parts that the next reset does not bring back.
    """

    begun: Layout | None = None
    moved: Collection[Way] = ()
    lasting: Collection[Way] = ()

    @classmethod
    def of(cls, env: Env, new: Layout) -> Episode:
        """Play a few steps; an exception of the environment ends them. new: the parts of the environment now."""
        found, seen = cls(), [new]
        with undisturbed():
            first, _ = env.reset(seed=1)
            seen.append(laid_out(env))
            found.begun = seen[-1]
            env.action_space.seed(1)
            for _ in range(_STEPS):
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                if terminated or truncated:
                    break
            seen.append(laid_out(env))
            again, _ = env.reset(seed=1)
            if same(first, again):  # otherwise it ignores seeds, and nothing can be said
                found.lasting = ways_that_differ(laid_out(env), found.begun)
        found.moved = {way for pair in pairwise(seen) for way in ways_that_differ(*pair)}
        return found

    def overwrites(self, way: Way) -> bool:
        """Return whether a reset replaces the part at the end of a way."""
        return is_within(way, self.moved) and not is_within(way, self.lasting)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Keep exceptions and warnings inside the block, and restore the caller's global random state after it."""
    alone = CopiesEndHere("the environment, which is compared with the one that was given")
    with global_random_kept(), contextlib.suppress(Exception, SystemExit), warnings.catch_warnings(), alone:
        warnings.simplefilter("ignore")
        seed_global_random(1)
        yield


def _once_more(build: Build) -> contextlib.AbstractContextManager[Env]:
    """Build another environment, of the next number, without the warnings of the first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(1)


def is_within(way: Way, ways: Collection[Way]) -> bool:
    """Return whether a way is among others or leads through one of them."""
    return any(way[:end] in ways for end in range(1, len(way) + 1))


def is_drawn(given: Env, way: Way) -> bool:
    """Return whether the part at the end of a way belongs to a window or a screen."""
    try:
        return draws(part_of(counted_layers(given), way))
    except (LookupError, AttributeError):
        return False


def _is_counted_elsewhere(given: Env, way: Way) -> bool:
    return type(counted_layers(given)[way[0].key]).__name__ in _SAID_ELSEWHERE


def _warn_of_lasting(given: Env, ways: Sequence[Way], mine: Layout, new: Layout) -> None:
    if ways:
        names = [name_of(given, way) for way in ways]
        warn_user(
            f"the environment {given} was played before it was given, and episodes continue from what those before have left: "
            f"{in_both(names, ways, mine.contents, new.contents, 'workers build')}. Workers start afresh. If you have set it, "
            "pass a function that builds and sets it, as FastES(make_env); a reset should set what only an episode needs",
            UserWarning,
        )


def in_both(
    names: Sequence[str], ways: Sequence[Way], given: Mapping[Way, Content], others: Mapping[Way, Content], which: str
) -> str:
    """Return the first few parts in words, each as it is in the given environment and in the others, those that `which`."""
    each = [
        f"{name} is {shown_at(given, way)}, and {shown_at(others, way)} in those that {which}"
        for name, way in zip(names[:_NAMED], ways, strict=False)
    ]
    return ", ".join(each) + (f", and {len(ways) - _NAMED} more" if len(ways) > _NAMED else "")


# --- carrying it ----------------------------------------------------------------------------------------------------


def _pickled(given: Env, ways: Sequence[Way], mine: Layout, new: Layout, strict: bool) -> Changes | None:
    counted = counted_layers(given)
    places = list(dict.fromkeys(_place(way) for way in ways))
    places = [way for way in places if not any(way[:end] in places for end in range(1, len(way)))]
    known = {
        number: way
        for number, way in mine.ways.items()
        if not is_within(way, places) and way in new.contents and mine.contents[way].kind == new.contents[way].kind
        if all(step.kind != "part" for step in way)
    }
    changes, failed = [], {}
    for way in places:
        change = _change(counted, way, mine, new)
        try:
            _dumps([change], known)
        except Exception as error:
            failed[way] = error
        else:
            changes.append(change)
    if failed:
        names = [name_of(given, way) for way in failed]
        if strict:
            raise CannotCarry(names, str(next(iter(failed.values()))))
        why = f"are without {first_few(names)}, which cannot be pickled"
        warn_user(f"copies of the environment {given} {why}", UserWarning)
    if not changes:
        return None
    return Changes(tuple(name_of(given, change.way) for change in changes), _dumps(changes, known))


def _place(way: Way) -> Way:
    """Return the way to the nearest object around a difference that can be set."""
    end = next((index for index, step in enumerate(way) if step.kind == "part"), len(way))
    while end > 1 and way[end - 1].kind not in ("attribute", "item"):
        end -= 1
    return way[:end]


def _change(layers: Sequence[Env], way: Way, mine: Layout, new: Layout) -> _Change:
    if way not in mine.contents:
        return _Change(way, "delete")
    value, before = part_of(layers, way), new.contents.get(way)
    if before is not None and mine.contents[way].kind == before.kind:
        if isinstance(value, np.ndarray) and before.value is not None and before.value[:2] == mine.contents[way].value[:2]:
            return _Change(way, "fill", np.array(value))
        if type(value) in (dict, list):
            return _Change(way, "fill", value)
    return _Change(way, "set", value)


def _apply(layers: Sequence[Env], change: _Change) -> None:
    way, how, value = change
    if how == "fill":
        there = part_of(layers, way)
        if isinstance(there, np.ndarray) and there.flags.writeable:
            there[...] = value
            return
        if isinstance(there, dict):
            there.clear()
            there.update(value)
            return
        if isinstance(there, list):
            there[:] = value
            return
    holder, step = part_of(layers, way[:-1]), way[-1]
    if step.kind == "item":
        if how == "delete":
            del holder[step.key]
        else:
            holder[step.key] = value
    elif how == "delete":
        delattr(holder, step.key)
    elif step.key in getattr(holder, "__dict__", {}) or not _has_member(holder, step.key):
        vars(holder)[step.key] = value
    else:
        setattr(holder, step.key, value)


def _has_member(holder: Any, name: str) -> bool:
    """Return whether the class stores the attribute: in __slots__, or in C++."""
    member = getattr(type(holder), name, None)
    return hasattr(type(member), "__set__")


def _dumps(changes: Sequence[_Change], known: Mapping[int, Way]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, known).dump(list(changes))
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Names the parts of the environment that were not changed by the ways to them. known: id of such a part -> way."""

    def __init__(self, file: io.BytesIO, known: Mapping[int, Way]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_id(self, thing: Any) -> Any:
        way = self._known.get(id(thing))
        return None if way is None else tuple(map(tuple, way))


class _Unpickler(pickle.Unpickler):
    """Finds the parts in an environment that `_Pickler` has named."""

    def __init__(self, file: io.BytesIO, layers: Sequence[Env]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, way: Any) -> Any:
        return part_of(self._layers, tuple(Step(*step) for step in way))


def name_of(given: Env, way: Way) -> str:
    """Return a way as a script may write it: from env.unwrapped, or from a wrapper by its class."""
    index = way[0].key
    start = "env.unwrapped" if index == 0 else type(counted_layers(given)[index]).__name__
    words = in_words(way)
    return f"{start}{'' if words.startswith('[') else '.'}{words}"
