"""Differences of an environment from the one that its id makes: options, time limit, wrappers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.wrappers import TimeLimit

from fastes.envs.import_hook import ATARI
from fastes.envs.layers import CHANGE_REWARDS
from fastes.envs.likeness import described, same

# arguments that change only pictures for people, and those of gymnasium.make and make_vec
_ASIDE = {
    *("render_mode", "width", "height", "camera_id", "camera_name", "default_camera_config", "max_geom", "visual_options"),
    *("screen_width", "screen_height", "disable_env_checker", "worker_index"),
    *("num_envs", "vectorization_mode", "vector_kwargs", "wrappers"),
}
# wrappers that change neither what is observed nor what an action, a reward or the end of an episode is
_WATCHING = {
    *("OrderEnforcing", "PassiveEnvChecker", "RecordEpisodeStatistics", "RecordVideo", "RenderCollection", "HumanRendering"),
    *("Autoreset", "Monitor", "VecMonitor", "VecCheckNan", "VecVideoRecorder", "VecTransposeImage"),
    "VecNormalize",  # it normalises observations as FastES does, and returns are of the rewards before it
}
_PACKAGES = ("gymnasium", "stable_baselines3", "fastes")  # whose wrappers change rewards by a RewardWrapper alone
_SAME_GOAL = {"fastes/TMaze-v0": {"length"}}  # options that leave the best return as it is
_STEPPING = ("step", "step_wait")


class Registered(NamedTuple):
    """The arguments and limits with which an id was registered."""

    kwargs: dict[str, Any]
    max_episode_steps: int | None
    reward_threshold: float | None


def _as_it_is(spec: EnvSpec) -> Registered:
    return Registered(dict(spec.kwargs), spec.max_episode_steps, spec.reward_threshold)


# gymnasium.spec() returns the registry's own object: a script that changes it changes what the id makes
_AT_FIRST = {name: _as_it_is(spec) for name, spec in gymnasium.registry.items()}


def registered(spec: EnvSpec) -> Registered:
    """Return how an id was registered when FastES was imported, or later; the spec's own values if it is not registered."""
    now = _as_it_is(gymnasium.registry.get(spec.id, spec))
    return _AT_FIRST.get(spec.id, now) if spec.id in gymnasium.registry else now


def changed_options(spec: EnvSpec, kwargs: Mapping[str, Any]) -> list[str]:
    """Return in words the arguments of an environment that differ from those of its id, with both values.

    An argument that is given its default changes nothing.

    Args:
        spec: The spec for gymnasium.make.
        kwargs: The arguments for gymnasium.make.
    """
    before, found = registered(spec), list[str]()
    given = {**spec.kwargs, **kwargs}
    limit = given.pop("max_episode_steps", spec.max_episode_steps)
    if spec.id == ATARI:
        given.pop("game", None)
    own = {**_defaults(spec), **before.kwargs}
    for name in sorted(given.keys() | before.kwargs.keys()):
        if name in _ASIDE:
            continue
        was = f" ({described(own[name])} as registered)" if name in own else ""
        if name not in given:
            found.append(f"no {name}{was}")
        elif name not in own or not _same_option(given[name], own[name]):
            found.append(f"{name} = {described(given[name])}{was}")
    if (limit := None if limit == -1 else limit) != before.max_episode_steps:
        found.append(f"max_episode_steps = {limit} ({before.max_episode_steps} as registered)")
    return found


def _defaults(spec: EnvSpec) -> dict[str, Any]:
    """Return the defaults of an environment's own arguments, as far as they can be known."""
    try:
        creator = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
        parameters = inspect.signature(creator).parameters.values()  # type: ignore[arg-type]
    except Exception:  # a package is missing, or has no signature to show
        return {}
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def _same_option(one: Any, other: Any) -> bool:
    """Return whether two arguments mean the same: 1 is 1.0, and a list from JSON is a tuple."""
    if {type(one), type(other)} <= {int, float}:
        return bool(one == other)
    if {type(one), type(other)} <= {list, tuple}:
        return len(one) == len(other) and all(map(_same_option, one, other))
    return same(one, other)


def has_another_goal(spec: EnvSpec, kwargs: Mapping[str, Any]) -> bool:
    """Return whether the registered reward_threshold may not apply here. One that was set in the spec does."""
    if spec.reward_threshold != registered(spec).reward_threshold:
        return False
    kept = _SAME_GOAL.get(spec.id, set())
    spec = copy.copy(spec)
    spec.kwargs = {name: value for name, value in spec.kwargs.items() if name not in kept}
    return bool(changed_options(spec, {name: value for name, value in kwargs.items() if name not in kept}))


def is_registered_limit(spec: EnvSpec, wrapper: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a wrapper with these arguments cuts episodes after as many steps as the id."""
    return wrapper is TimeLimit and kwargs.get("max_episode_steps") == registered(spec).max_episode_steps


def odd_wrappers(spec: EnvSpec, wrappers: Iterable[Any]) -> list[str]:
    """Return in words the wrappers of a spec, and of these classes or names, that may change what an environment is."""
    before = gymnasium.registry.get(spec.id, spec).additional_wrappers or ()
    names = [wrapper.name for wrapper in (spec.additional_wrappers or ())[len(before) :]]
    names += [wrapper if isinstance(wrapper, str) else getattr(wrapper, "__name__", repr(wrapper)) for wrapper in wrappers]
    return watching_aside(names)


def watching_aside(names: Iterable[str]) -> list[str]:
    """Return in words each wrapper once, without those that only watch. names: of their classes."""
    return [f"the wrapper {name}" for name in dict.fromkeys(names) if name not in _WATCHING]


def may_change_rewards(wrapper: Any) -> bool:
    """Return whether a wrapper may change rewards: by its name, or by a step method that is not of a known package.

    Args:
        wrapper: A class, or only its name if it is in another process.
    """
    if isinstance(wrapper, str):
        return False
    if not isinstance(wrapper, type):  # a function that wraps
        return True
    kinds = wrapper.__mro__
    if CHANGE_REWARDS & {kind.__name__ for kind in kinds}:
        return True
    own = next((kind for kind in kinds if any(name in vars(kind) for name in _STEPPING)), object)
    return own.__module__.partition(".")[0] not in _PACKAGES
