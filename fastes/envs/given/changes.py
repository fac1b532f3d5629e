"""What was changed in an environment object since it was made, and how another one that is built anew gets the same.

The object is compared with one that is built as workers build it, attribute by attribute, to any depth. What an episode leaves
is no change: playing a few steps on the other one moves it, and a reset with the same seed brings it back.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordVideo, TimeLimit

from fastes.envs.closing import close_env
from fastes.envs.given.likeness import Layout, Step, Way, draws, in_words, layout_of_layers, part_of, same, ways_that_differ
from fastes.envs.rebuild import DRAWING
from fastes.errors import level_outside
from fastes.system.forks import CopiesEndHere

Env = gymnasium.Env[Any, Any]
_STEPS = 3  # of playing
_NAMED = 4  # changes in a message
_WATCH_ALONE = {"RecordEpisodeStatistics", "RecordVideo", "Monitor"}  # wrappers: what these count changes no episode
_SAID_ELSEWHERE = {"NormalizeObservation", "NormalizeReward"}  # wrappers whose statistics are warned of in any case


class CannotCarry(ValueError):
    """Something was changed that cannot be copied.

    names: of what, as a script would write it. reason: why.
    """

    def __init__(self, names: Sequence[str], reason: str) -> None:
        super().__init__(f"{shortened(names)}: {reason}")
        self.names = names


class _Change(NamedTuple):
    """way: to what differs. how: 'set' or 'delete' it, or 'fill' the dict, list or array that is there."""

    way: Way
    how: str
    value: Any = None


@dataclass(frozen=True)
class Changes:
    """What was changed in an environment.

    names: in words, as a script would write them.
    pickled: a list of _Change; parts that were not changed are named by the ways to them.
    """

    names: tuple[str, ...]
    pickled: bytes

    def apply(self, env: Env) -> None:
        """Change an environment that was built anew in the same way."""
        layers = counted_layers(env)
        for change in _Unpickler(io.BytesIO(self.pickled), layers).load():
            _apply(layers, change)


def changes_of(given: Env, build: Callable[[int], Env], strict: bool = True) -> Changes | None:
    """What was changed in an environment since it was made; None for nothing.

    build: as the worker of this number does, but for what was changed. Built one after the other, and closed.
    strict: raise CannotCarry for what cannot be copied; else warn of it, where whoever wrote the class left it out of copies.

    Warns of what the object may have either from whoever gave it or from its episodes.
    """
    mine = laid_out(given)
    with built(build(0)) as env:
        new = laid_out(env)
    differing = [way for way in ways_that_differ(mine, new) if not is_drawn(given, way)]
    if not differing:
        return None
    with built(_once_more(build)) as env:
        varying = ways_that_differ(new, laid_out(env))  # as a process's number or a clock does
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
    with built(_once_more(build)) as env:
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


def _gives(changes: Changes, build: Callable[[int], Env], expected: Layout) -> bool:
    """Whether an environment with these changes holds that once it is reset."""
    with built(_once_more(build)) as env:
        changes.apply(env)
        found = _after_reset(env)
    return found is not None and not ways_that_differ(found, expected)


def _touches(way: Way, others: Collection[Way]) -> bool:
    """Whether one of the others is the same, or one is a part of the other."""
    return any(way == each[: len(way)] or each == way[: len(each)] for each in others)


def _after_reset(env: Env) -> Layout | None:
    """What an environment holds once it is reset; None if it raises."""
    found: list[Layout] = []
    with undisturbed():
        env.reset(seed=1)
        found.append(laid_out(env))
    return found[0] if found else None


def was_played(env: Env) -> bool:
    """Whether it may have been: one that does not enforce the order of calls does not say."""
    known = [bool(layer.has_reset) for layer in _all_layers(env) if isinstance(layer, OrderEnforcing)]
    return any(known) or not known


def counted_layers(env: Env) -> list[Env]:
    """Layers of an environment from the inside out, by which ways begin; without those that check or draw.

    Time limits around each other are one, as one that is rebuilt has them.
    """
    found: list[Env] = []
    for layer in reversed(_all_layers(env)):
        follows = bool(found) and type(layer) is TimeLimit and type(found[-1]) is TimeLimit
        if not follows and type(layer) not in (PassiveEnvChecker, *DRAWING):
            found.append(layer)
    return found


def _all_layers(env: Env) -> list[Env]:
    found = [env]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        found.append(env)
    return found


def laid_out(env: Env) -> Layout:
    counted = counted_layers(env)
    ids = [id(layer) for layer in counted]
    also: dict[int, int] = {}
    place = 0
    for layer in reversed(_all_layers(env)):
        place = ids.index(id(layer)) if id(layer) in ids else place
        also[id(layer)] = place
    return layout_of_layers(counted, _is_left_out, also)


def _is_left_out(layer: Any, name: str) -> bool:
    """Whether an attribute says how a layer was made, which is known, or how it is drawn, which workers do not do."""
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
    """What playing on an environment that is new does to it.

    begun: what it holds after its first reset; None if that raises.
    moved: ways to what changes while it is played.
    lasting: ways to what the next reset does not bring back.
    """

    begun: Layout | None = None
    moved: Collection[Way] = ()
    lasting: Collection[Way] = ()

    @classmethod
    def of(cls, env: Env, new: Layout) -> Episode:
        """Play. Whatever the environment raises ends the play."""
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
            if same(first, again):  # one that ignores seeds tells nothing
                found.lasting = ways_that_differ(laid_out(env), found.begun)
        found.moved = {way for pair in pairwise(seen) for way in ways_that_differ(*pair)}
        return found

    def overwrites(self, way: Way) -> bool:
        """Whether a reset gives what is there another value, whatever it was."""
        return is_within(way, self.moved) and not is_within(way, self.lasting)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Python's and NumPy's global generators are afterwards as before, and nothing is raised or warned of."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        alone = CopiesEndHere("the environment, which is compared with the one that was given")
        with contextlib.suppress(Exception, SystemExit), warnings.catch_warnings(), alone:
            warnings.simplefilter("ignore")
            random.seed(1)
            np.random.seed(1)  # noqa: NPY002
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _once_more(build: Callable[[int], Env]) -> Env:
    """Another one, of the next number; what building warns of is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build(1)


@contextlib.contextmanager
def built(env: Env) -> Iterator[Env]:
    """An environment that is closed afterwards, and films nothing meanwhile: its videos would replace those that are there."""
    for layer in _all_layers(env):
        if isinstance(layer, RecordVideo):
            layer.episode_trigger = layer.step_trigger = None
    try:
        yield env
    finally:
        close_env(env)


def is_within(way: Way, ways: Collection[Way]) -> bool:
    return any(way[:end] in ways for end in range(1, len(way) + 1))


def is_drawn(given: Env, way: Way) -> bool:
    try:
        return draws(part_of(counted_layers(given), way))
    except (LookupError, AttributeError):
        return False


def _is_counted_elsewhere(given: Env, way: Way) -> bool:
    return type(counted_layers(given)[way[0].key]).__name__ in _SAID_ELSEWHERE


def _warn_of_lasting(given: Env, ways: Sequence[Way], mine: Layout, new: Layout) -> None:
    if not ways:
        return
    shown = ", ".join(
        f"{name_of(given, way)} is {_shown(mine, way)}, and {_shown(new, way)} in those that workers build"
        for way in ways[:_NAMED]
    )
    more = f", and {len(ways) - _NAMED} more" if len(ways) > _NAMED else ""
    warnings.warn(
        f"the environment {given} was played before it was given, and episodes go on from what those before have left: "
        f"{shown}{more}. Workers begin anew. Where you have set it, pass a function that builds and sets it, as "
        "FastES(make_env); a reset should set what only an episode needs",
        UserWarning,
        stacklevel=level_outside(),
    )


def _shown(layout: Layout, way: Way) -> str:
    content = layout.contents.get(way)
    return "missing" if content is None else content.shown


# --- carrying it ----------------------------------------------------------------------------------------------------


def _pickled(given: Env, ways: Sequence[Way], mine: Layout, new: Layout, strict: bool) -> Changes | None:
    layers = counted_layers(given)
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
        change = _change(layers, way, mine, new)
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
        why = f"are without {shortened(names)}, which cannot be pickled"
        warnings.warn(f"copies of the environment {given} {why}", UserWarning, stacklevel=level_outside())
    if not changes:
        return None
    return Changes(tuple(name_of(given, change.way) for change in changes), _dumps(changes, known))


def _place(way: Way) -> Way:
    """The shortest way to something that can be set and holds what differs."""
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
    """Whether its class keeps the attribute: in __slots__, or in C++."""
    member = getattr(type(holder), name, None)
    return hasattr(type(member), "__set__")


def _dumps(changes: Sequence[_Change], known: Mapping[int, Way]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, known).dump(list(changes))
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Names parts of the environment that were not changed by the ways to them.

    known: id of such a part -> way.
    """

    def __init__(self, file: io.BytesIO, known: Mapping[int, Way]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_id(self, thing: Any) -> Any:
        way = self._known.get(id(thing))
        return None if way is None else tuple(map(tuple, way))


class _Unpickler(pickle.Unpickler):
    """Finds in an environment what `_Pickler` has named."""

    def __init__(self, file: io.BytesIO, layers: Sequence[Env]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, way: Any) -> Any:
        return part_of(self._layers, tuple(Step(*step) for step in way))


def shortened(names: Sequence[str]) -> str:
    """The first few of some names."""
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def name_of(given: Env, way: Way) -> str:
    """As a script may write it: from env.unwrapped, or from a wrapper by its class."""
    index = way[0].key
    start = "env.unwrapped" if index == 0 else type(counted_layers(given)[index]).__name__
    words = in_words(way)
    return f"{start}{'' if words.startswith('[') else '.'}{words}"
