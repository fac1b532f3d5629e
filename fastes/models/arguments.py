"""The arguments of an agent and of learn, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fastes.envs.source import EnvSource
from fastes.errors import check_int, whole
from fastes.policies.choose_policy import check_noise, spec_for, warn_of_pixels
from fastes.policies.custom_policy import AnySpec, CustomPolicy
from fastes.setting_fields import checked_number
from fastes.settings.foreign_names import answer_in_learn
from fastes.settings.settings import Settings, setting_names

# arguments of FastES that are no settings
_OF_CONSTRUCTOR = (
    "env", "policy", "preset", "n_workers", "cluster", "seed", "env_kwargs", "verbose", "tensorboard_log",
    "stats_window_size", "info_keywords", "device",
)  # fmt: skip


def changed_settings(settings: Mapping[str, Any], source: EnvSource, policy: str | CustomPolicy | None) -> dict[str, Any]:
    """Return the settings that were given, and those that follow from env and policy."""
    changed = dict(settings)
    if source.normalizes_obs:
        changed.setdefault("normalize_obs", False)
    if policy is not None:
        changed["policy"] = policy.kind if isinstance(policy, CustomPolicy) else policy
    return changed


def spec_of(policy: str | CustomPolicy | None, settings: Settings, env: Any) -> AnySpec:
    """Return the spec of a custom policy, or of the one that the settings name, for the spaces of an environment."""
    wanted = policy if isinstance(policy, CustomPolicy) else settings.policy
    spec = spec_for(wanted, env.observation_space, env.action_space, settings.policy_kwargs, settings.obs_columns)
    check_noise(spec, settings.action_noise, settings.sample_actions)
    warn_of_pixels(wanted, env.observation_space, spec.obs_size)
    return spec


def refuse_arguments(removed: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that learn does not have, with advice about those that SB3's had."""
    for name in removed:
        if name in setting_names():
            advice = ": it is a setting, an argument of FastES"
        else:
            advice = ": it is an argument of FastES" if name in _OF_CONSTRUCTOR else answer_in_learn(name)
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}{advice}")


def checked_timesteps(timesteps: float | None, settings: Settings, least: int) -> int:
    """Return total_timesteps as an int, at least `least`; those of the settings for None."""
    steps = settings.total_timesteps if timesteps is None else timesteps
    return check_int("total_timesteps", whole(steps), least, 10**15)


def checked_minutes(max_minutes: float | None, name: str = "max_minutes") -> float:
    """Return minutes as a float above 0, infinity for None; TypeError or ValueError that calls them `name`."""
    if max_minutes is None:
        return math.inf
    minutes = checked_number(name, max_minutes, "minutes, more than 0")
    if minutes <= 0.0:
        raise ValueError(f"{name} = {max_minutes!r}: expected minutes, more than 0")
    return minutes


def check_verbose(verbose: object) -> None:
    """Raise TypeError or ValueError unless it is a flag or an int >= 0."""
    if not isinstance(verbose, bool):
        check_int("verbose", verbose, 0)
