"""Whether an environment is the one that its id's preset was made for, and whether the id's target means something there."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
from gymnasium import spaces

from fastes.envs.as_registered import in_few_words, registered
from fastes.envs.likeness import same
from fastes.envs.source import EnvSource
from fastes.settings.preset_loader import all_presets, preset_for
from fastes.settings.settings import Settings

Space = gymnasium.Space[Any]


def misfit(name: str, source: EnvSource, observations: Space, actions: Space) -> str:
    """How an environment differs from the one that the preset of its name was made for, in words; '' if it does not.

    The preset of all games was made for no single one, and asks for images alone; the general recipes ask for nothing.
    """
    made_for = all_presets().get(name, {}).get("made_for")
    if made_for is None:
        return ""
    found = list(source.differences)
    if source.spec is not None:
        made_by = _entry_point(gymnasium.registry.get(source.spec.id, source.spec).entry_point)
        if made_by != made_for["entry_point"]:
            found.append(f"{name} made by {made_by}")
        if not found and not same(registered(source.spec).kwargs, made_for.get("kwargs", {})):
            found.append(f"{name} registered with {registered(source.spec).kwargs}")
    for key, space in (("observations", observations), ("actions", actions)):
        if (shown := in_words(space)) != made_for[key]:
            found.append(f"{key} {shown} ({made_for[key]} as registered)")
    return in_few_words(found)


def in_words(space: Space) -> str:
    """Return the part of a space that decides the policy: shape and dtype, and the bounds if all are finite and alike."""
    if isinstance(space, spaces.Box):
        bounded = space.is_bounded() and space.low.size and (space.low == space.low.flat[0]).all()
        same_bounds = bounded and (space.high == space.high.flat[0]).all()
        bounds = f" from {space.low.flat[0]:g} to {space.high.flat[0]:g}" if same_bounds else ""
        return f"{space.dtype} {space.shape}{bounds}"
    return str(space)


def _entry_point(entry_point: Any) -> str:
    if isinstance(entry_point, str):
        return entry_point
    return f"{getattr(entry_point, '__module__', '')}:{getattr(entry_point, '__qualname__', type(entry_point).__qualname__)}"


def registered_target(source: EnvSource, settings: Settings) -> float | None:
    """The registered reward_threshold, or None if it says nothing here, as when episodes are cut before the id cuts them."""
    limit, cut = source.episode_limit, settings.max_episode_steps
    return None if limit is not None and 0 < cut < limit else source.reward_threshold


def tell_of_misfit(name: str, odd: str, source: EnvSource, preset: str | None, settings: Settings, stacklevel: int) -> None:
    """UserWarning if a preset or the id's target is not taken: which settings are, and how to use it all the same.

    odd: what `misfit` has said. preset: that was asked for. settings: that are taken. stacklevel: counted from the caller.
    """
    said, anyway = [], []
    if odd and preset is None:
        said.append(f"the settings of {_general(settings)!r} are used in place of its preset's")
        anyway.append(f"preset={name!r} (--preset {name})")
    spec = gymnasium.registry.get(source.name) if source.spec is None else source.spec  # a copied object keeps its id alone
    threshold = None if spec is None else spec.reward_threshold
    if threshold is not None and settings.target_return == "auto" and registered_target(source, settings) is None:
        said.append(f"its reward_threshold of {threshold:g} is no target")
        anyway.append(f"target_return={threshold:g} (--target-return {threshold:g})")
    if said:
        differences = [*source.differences, *_cut(source, settings)]
        has = odd or in_few_words(differences) or "wrappers that may change rewards"
        them = "it" if len(anyway) == 1 else "both"
        warnings.warn(
            f"{name} has {has}: {', and '.join(said)}. To use {them} all the same, pass {' and '.join(anyway)}",
            UserWarning,
            stacklevel=1 + stacklevel,
        )


def tell_of_target(source: EnvSource, settings: Settings, stacklevel: int) -> None:
    """The same for a model that has its settings already."""
    tell_of_misfit(source.name, "", source, "", settings, 1 + stacklevel)


def _general(settings: Settings) -> str:
    return preset_for("", {"policy": settings.policy})


def _cut(source: EnvSource, settings: Settings) -> list[str]:
    cut = settings.max_episode_steps
    return [f"max_episode_steps = {cut} ({source.episode_limit} as registered)"] if cut else []
