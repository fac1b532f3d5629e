"""Policies that users bring: what they have in common. The core does the two ends of their steps, observe and choose."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.errors import blame_policy
from fastes.policies.action_head import ActionHead
from fastes.policies.obs_columns import ALL, ObsColumns, columns_in
from fastes.policies.policy_spec import flat_size, split_theta

Float32 = npt.NDArray[np.float32]
USE_NOISE = {"": "", "sample_actions": ", or use sample_actions=True", "action_noise": ", or use action_noise"}


class CustomPolicy:
    """Base of TorchPolicy and CallablePolicy, which FastES takes as `policy` as well as names. Not bound to an environment."""

    kind: str

    def __repr__(self) -> str:
        return f"{self.kind}(...)"

    def for_spaces(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        policy_kwargs: Mapping[str, Any] | None = None,
        obs_columns: ObsColumns = ALL,
    ) -> CustomSpec:
        """The policy for an environment's spaces; ValueError or TypeError when they do not fit."""
        head = self.head_for(action_space, dict(policy_kwargs or {}))
        shape, flattened = obs_shape_of(observation_space)
        return self.make_spec(head, shape, flattened, columns_in(obs_columns, observation_space, math.prod(shape)))

    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        raise NotImplementedError

    def head_for(self, action_space: spaces.Space[Any], policy_kwargs: dict[str, Any]) -> ActionHead | None:
        """Return how outputs become actions; None if they are actions."""
        raise NotImplementedError

    def make_spec(
        self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool, columns: tuple[int, ...] = ()
    ) -> CustomSpec:
        """The policy for a head and columns of observations of a shape; ValueError or TypeError when they do not fit."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CustomSpec:
    """The description from which workers build a custom policy; it has the attributes of a PolicySpec.

    Attributes:
        kind: Name of the class that made it.
        head: How outputs become actions; None for actions as they are.
        obs_shape: Shape of one observation after flattening of anything but a Box.
        flattened: Whether it needs that.
        shapes: Shapes of the parameters, by name, in the order in which they lie in theta.
        theta0: The first parameters, float32 (num_params,).
        pickled: The user's module or function.
        columns: The values of an observation that it gets, in this order; none for all.
    """

    kind: str
    head: ActionHead | None
    obs_shape: tuple[int, ...]
    flattened: bool
    shapes: Mapping[str, tuple[int, ...]]
    theta0: Float32 = field(repr=False)
    pickled: bytes = field(repr=False)
    columns: tuple[int, ...] = ()

    layers = ()  # none that the core would run
    image = None
    needs_reference = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of its input, of one observation."""
        return (len(self.columns),) if self.columns else self.obs_shape

    @property
    def obs_size(self) -> int:
        return math.prod(self.input_shape)

    @property
    def num_params(self) -> int:
        return len(self.theta0)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        return dict(self.shapes)

    def split(self, theta: Float32) -> dict[str, Float32]:
        """Views of theta (num_params,) by parameter name."""
        return split_theta(theta, self.shapes)

    def initial_theta(self, seed: int) -> Float32:  # noqa: ARG002
        """A copy of the first parameters, which the user has chosen: no seed changes them."""
        return np.array(self.theta0)

    def make_actor(self) -> _core.Actor:
        """A copy of the policy with parameters of its own."""
        raise NotImplementedError

    def own_copy(self) -> Any:
        """A new copy of the user's module or function."""
        try:
            return pickle.loads(self.pickled)
        except Exception as error:
            blame_policy(error)
            raise


def obs_shape_of(space: spaces.Space[Any]) -> tuple[tuple[int, ...], bool]:
    """The shape in which observations of a space reach a policy, and whether they are flattened first."""
    size = flat_size(space)
    return (space.shape, False) if isinstance(space, spaces.Box) else ((size,), True)


def pickled_copy(what: str, item: object) -> bytes:
    """The item as workers get it, or TypeError that says what cannot be sent."""
    try:
        content: bytes = cloudpickle.dumps(item)
        pickle.loads(content)
    except Exception as error:
        raise TypeError(
            f"{what} cannot be copied into the workers: {type(error).__name__}: {error}. Expected one that cloudpickle can "
            "write and read: open files, locks, sessions and the like have to be made when they are first used, and left out "
            "in its __getstate__"
        ) from error
    return content
