"""A policy, named or the user's own, for an environment's spaces, and checks of what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from fastes.errors import warn_user
from fastes.policies.custom_policy import USE_NOISE, AnySpec, CustomPolicy
from fastes.policies.images import holds_image
from fastes.policies.layers import REFERENCE_SIZE
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.obs_columns import ALL, ObsColumns
from fastes.policies.policy_keywords import RECURRENT_POLICIES
from fastes.policies.policy_spec import PolicySpec
from fastes.system.limits import check_memory

_PIXELS, _INPUTS = 1_000, 10_000  # the most inputs, of an image and of any other observation, without a warning
_SEVERAL = {"CnnPolicy": "MultiInputPolicy", "CnnLstmPolicy": "MultiInputLstmPolicy"}  # for images in a Dict or Tuple


def check_model_memory(spec: AnySpec, archive_size: int = 0, trials: int = 1) -> None:
    """Raise OSError if a model takes more memory than there is: theta, a copy, the optimiser's state, an actor, statistics.

    Args:
        spec: The policy's.
        archive_size: Number of further thetas that are kept, and copied when they are saved.
        trials: Number of trainings that have all of these except the actor.
    """
    parts = {
        f"{spec.num_params:,} parameters": 4 * 4 * spec.num_params,
        f"statistics of observations of {spec.obs_size:,} values": 4 * 8 * spec.obs_size,
        f"an archive of {archive_size} times these": 2 * (4 * spec.num_params + 16 * spec.obs_size) * archive_size,
    }
    if trials > 1:
        parts = {f"{what} in each of {trials} trials": trials * size for what, size in parts.items()}
    if isinstance(spec, PolicySpec):
        parts["activations"] = 4 * spec.activations
        parts[f"activations of {REFERENCE_SIZE} observations"] = 4 * REFERENCE_SIZE * spec.values_kept
    smaller = (", or a smaller archive_size" if archive_size else "") + (", or fewer trials" if trials > 1 else "")
    check_memory(parts, f"use a smaller policy (net_arch), or smaller observations (such as resized frames){smaller}")


def spec_for(
    policy: str | CustomPolicy,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
    obs_columns: ObsColumns = ALL,
) -> AnySpec:
    """Return the spec of a policy, named or custom, for an environment's spaces."""
    if isinstance(policy, CustomPolicy):
        return policy.for_spaces(observation_space, action_space, policy_kwargs, obs_columns)
    return make_policy_spec(policy, observation_space, action_space, policy_kwargs, obs_columns)


def warn_of_pixels(policy: object, space: spaces.Space[Any], size: int) -> None:
    """Warn of a dense network on images or very many other values, with a weight for each value and unit: it learns little.

    Args:
        policy: As the user passed it.
        space: The observation space.
        size: Number of values that reach dense layers as they are.
    """
    if isinstance(policy, CustomPolicy) or policy in _SEVERAL:
        return
    sees = policy in _SEVERAL.values()
    shape, several = getattr(space, "shape", None), isinstance(space, (spaces.Dict, spaces.Tuple))
    image = isinstance(space, spaces.Box) and len(space.shape) in (3, 4) and space.dtype == np.uint8
    image = image or holds_image(space)
    if size <= (_PIXELS if not sees and image else _INPUTS):
        return
    if not (sees or image or (isinstance(space, spaces.Box) and len(space.shape) > 1)):
        warn_user(
            f"{policy} gets {size:,} inputs from observations {shape or space}, and learns little with that many: "
            "show fewer numbers (features, or coordinates in place of a choice among many), or see images with CnnPolicy",
            UserWarning,
        )
        return
    better = "CnnLstmPolicy" if policy in RECURRENT_POLICIES else "CnnPolicy"
    better = _SEVERAL[better] if several else better
    use = "policy_kwargs={'normalize_images': False}, which takes boxes of any values for images" if sees else repr(better)
    warn_user(
        f"{policy} gets {size:,} inputs from observations {shape or space} without convolutions, and "
        f"learns little from raw images. Use {use}, with images that are small and grey (gymnasium.wrappers."
        "AtariPreprocessing, ResizeObservation, GrayscaleObservation), or give features instead (for Atari: obs_type='ram')",
        UserWarning,
    )


def check_no_class(*arguments: object) -> None:
    """Raise TypeError for one of SB3's policy classes, which SB3 takes in place of their names."""
    for given in arguments:
        if isinstance(given, type) and given.__name__.endswith("Policy"):
            raise TypeError(
                f"policy = {given.__name__} is a class: expected a name, such as 'MlpPolicy', or fastes.TorchPolicy(module)"
            )


def check_noise(spec: AnySpec, action_noise: float, sample_actions: bool) -> None:
    """Raise ValueError for noise settings that cannot reach the actions of a policy."""
    head = spec.head
    for name, value, what in (
        ("action_noise", action_noise, "only numbers (Box, with action_mapping 'clip' or 'squash') can have noise added"),
        ("sample_actions", sample_actions, "only choices and switches (Discrete, MultiDiscrete, MultiBinary) can be drawn"),
    ):
        if value and head is None:
            raise ValueError(
                f"{name} = {value!r} cannot reach a CallablePolicy: its function returns the actions themselves. Turn it off, "
                "or draw the noise in the function, from np.random's global state"
            )
        if value and head is not None and head.noise != name:
            raise ValueError(
                f"{name} = {value!r} changes nothing here: {what}, and the actions of this environment are {head.actions}. "
                f"Leave it out{USE_NOISE[head.noise]}"
            )
