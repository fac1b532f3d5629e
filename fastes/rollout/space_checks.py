"""Whether an environment that is built for candidates has the spaces of the one that the policy was made for."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from fastes.envs.given.likeness import alike
from fastes.envs.source import Pair
from fastes.policies.action_head import BOX_MAPPINGS, make_action_head
from fastes.policies.choose_policy import AnySpec
from fastes.policies.custom_policy import obs_shape_of
from fastes.rollout.job import PoolSpec


def comparable(pair: Pair | None) -> Pair | None:
    """The spaces, or None where they differ from their own copies, as those of classes without a comparison do."""
    try:
        return pair if pair is not None and all(map(alike, pair, pickle.loads(cloudpickle.dumps(pair)))) else None
    except Exception:
        return None


def check_spaces(env: Any, spec: PoolSpec) -> None:
    """ValueError, with the spaces of both, where an environment does not have those of the first one or fits no policy."""
    found = env.observation_space, env.action_space
    if spec.spaces is not None:
        if all(map(alike, found, spec.spaces)):
            return
        expected = (
            f"the observation space {spec.spaces[0]} and the action space {spec.spaces[1]}, as the one that was built first"
        )
    else:
        unfit = next((each.policy for each in spec.trainings if not _fits(each.policy, found)), None)
        if unfit is None:
            return
        expected = f"observations of shape {unfit.obs_shape} and {unfit.head}, as the policy was made for"
    raise ValueError(
        f"{spec.source.name!r} was built with the observation space {found[0]} and the action space {found[1]}: expected "
        f"{expected}. What builds it has to give the same spaces each time, in every process"
    )


def _fits(policy: AnySpec, found: Pair) -> bool:
    """Whether a policy takes such observations and gives such actions."""
    if obs_shape_of(found[0]) != (policy.obs_shape, policy.flattened):
        return False
    head = policy.head
    if head is None:
        return True
    mapping = head.kind if head.kind in BOX_MAPPINGS else "clip"
    try:
        return make_action_head(found[1], mapping, head.num_bins or 10) == head
    except ValueError:
        return False
