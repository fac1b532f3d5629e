"""Policies that the user brings: what they have in common, and the one that is a Python function."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.errors import blame_policy
from fastes.memory import check_memory
from fastes.policies.actions import ActionHead
from fastes.policies.spec import PolicySpec, flat_size, make_policy_spec, split_theta

Float32 = npt.NDArray[np.float32]
PolicyFunction = Callable[[Float32, Float32], Any]
_USE_NOISE = {"": "", "sample_actions": ", or use sample_actions=True", "action_noise": ", or use action_noise"}


class CustomPolicy:
    """Base of TorchPolicy and CallablePolicy: what FastES takes as `policy` beside a name. Not bound to an environment."""

    kind: str

    def __repr__(self) -> str:
        return f"{self.kind}(...)"

    def for_spaces(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        policy_kwargs: Mapping[str, Any] | None = None,
    ) -> CustomSpec:
        """The policy for an environment's spaces; ValueError or TypeError when they do not fit."""
        head = self.head_for(action_space, dict(policy_kwargs or {}))
        return self.make_spec(head, *obs_shape_of(observation_space))

    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        raise NotImplementedError

    def head_for(self, action_space: spaces.Space[Any], policy_kwargs: dict[str, Any]) -> ActionHead | None:
        """How outputs become actions; None where they are actions."""
        raise NotImplementedError

    def make_spec(self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool) -> CustomSpec:
        """The policy for a head and observations of a shape; ValueError or TypeError when they do not fit."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CustomSpec:
    """What workers build a custom policy from; has what a PolicySpec has.

    kind: name of the class that made it. shapes: of the parameters in the order in which they lie in theta. theta0: the
    first parameters, float32 (num_params,). pickled: the user's module or function. head: None for actions as they are.
    """

    kind: str
    head: ActionHead | None
    obs_shape: tuple[int, ...]
    flattened: bool
    shapes: Mapping[str, tuple[int, ...]]
    theta0: Float32 = field(repr=False)
    pickled: bytes = field(repr=False)

    layers = ()  # none that the core would run

    @property
    def obs_size(self) -> int:
        return math.prod(self.obs_shape)

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


AnySpec = PolicySpec | CustomSpec


def check_model_memory(spec: AnySpec) -> None:
    """OSError when a model takes more memory than there is: theta, a copy, the optimiser's state, an actor, statistics."""
    parts = {
        f"{spec.num_params:,} parameters": 4 * 4 * spec.num_params,
        f"statistics of observations of {spec.obs_size:,} values": 4 * 8 * spec.obs_size,
    }
    check_memory(parts, "use a smaller policy (net_arch), or smaller observations (such as resized frames)")


def spec_for(
    policy: str | CustomPolicy,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
) -> AnySpec:
    """The spec of a policy, named or custom, for an environment's spaces."""
    if isinstance(policy, CustomPolicy):
        return policy.for_spaces(observation_space, action_space, policy_kwargs)
    return make_policy_spec(policy, observation_space, action_space, policy_kwargs)


def check_no_class(*arguments: object) -> None:
    """TypeError for one of SB3's policy classes, which SB3 takes in the place of their names."""
    for given in arguments:
        if isinstance(given, type) and given.__name__.endswith("Policy"):
            raise TypeError(
                f"policy = {given.__name__} is a class: expected a name, such as 'MlpPolicy', or fastes.TorchPolicy(module)"
            )


def check_noise(spec: AnySpec, action_noise: float, sample_actions: bool) -> None:
    """ValueError for settings that cannot reach the actions of a policy."""
    head = spec.head
    for name, value, what in (
        ("action_noise", action_noise, "numbers (Box, action_mapping 'clip' or 'squash')"),
        ("sample_actions", sample_actions, "choices or switches (Discrete, Multi...)"),
    ):
        if value and head is None:
            raise ValueError(
                f"{name} = {value!r} cannot reach a CallablePolicy: its function returns the actions themselves. Turn it off, "
                "or draw the noise in the function, from np.random's global state"
            )
        if value and head is not None and head.noise != name:
            raise ValueError(
                f"{name} = {value!r} changes nothing here: it is for actions that are {what}, and these are {head.kind!r}. "
                f"Leave it out{_USE_NOISE[head.noise]}"
            )


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


class CallablePolicy(CustomPolicy):
    """A policy that is a Python function of parameters and observation.

    >>> import numpy as np
    >>> from fastes import CallablePolicy, FastES
    >>> def push(parameters, observation):
    ...     return int(parameters @ observation > 0)
    >>> model = FastES("CartPole-v1", CallablePolicy(push, 4), n_workers=0, seed=0)

    function(parameters, observation) returns the action as env.step takes it; nothing comes between. parameters: float32
    (num_params,), read-only. observation: float32 of the observation's shape, a copy, normalised unless normalize_obs is
    off; spaces other than Box are flattened. theta0: the first parameters (num_params,), zeros by default.

    The function is copied when the policy is made and each worker has its own: results are the same on any number of
    workers as long as it depends on its arguments alone, or draws from random or np.random's global state. On the lanes of a
    vector environment episodes overlap and share that state: what a function draws there depends on the number of lanes.
    Raises TypeError for what cannot be called or copied, ValueError for theta0 of another length or not finite.
    """

    kind = "CallablePolicy"

    def __init__(self, function: PolicyFunction, num_params: int, theta0: npt.ArrayLike | None = None) -> None:
        if not callable(function):
            raise TypeError(f"function = {function!r} cannot be called: expected a function of (parameters, observation)")
        whole = isinstance(num_params, (int, np.integer)) and not isinstance(num_params, bool)
        if not whole or num_params < 1:
            raise ValueError(f"num_params = {num_params!r}: expected the number of parameters, an int of at least 1")
        check_memory({f"{num_params:,} parameters": 4 * int(num_params)}, "use fewer (num_params)")
        self.theta0 = np.zeros(num_params, dtype=np.float32) if theta0 is None else np.array(theta0, dtype=np.float32)
        if self.theta0.shape != (num_params,) or not np.isfinite(self.theta0).all():
            raise ValueError(f"theta0 has shape {self.theta0.shape}: expected {num_params} finite numbers, as num_params says")
        self.pickled = pickled_copy(f"the function {function!r}", function)

    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"parameters": self.theta0.shape}

    def head_for(self, action_space: spaces.Space[Any], policy_kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        if policy_kwargs:
            raise ValueError(
                f"policy_kwargs = {policy_kwargs!r} cannot reach a CallablePolicy: its function returns the actions themselves"
            )

    def make_spec(self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool) -> CallableSpec:
        return CallableSpec(self.kind, head, obs_shape, flattened, self.parameter_shapes(), self.theta0, self.pickled)


@dataclass(frozen=True, eq=False)
class CallableSpec(CustomSpec):
    """A CallablePolicy for an environment's spaces."""

    def make_actor(self) -> CallableActor:
        return CallableActor(self)


class CallableActor(_core.Actor):
    """A copy of the function with parameters of its own."""

    def __init__(self, spec: CallableSpec) -> None:
        super().__init__(spec)
        self._function: PolicyFunction = spec.own_copy()
        self._obs_shape = spec.obs_shape
        self._parameters = self.parameters
        self._parameters.flags.writeable = False

    def act(self, obs: Any) -> Any:
        """The function's action for one observation."""
        observation = self.observe(obs).reshape(self._obs_shape).copy()
        try:
            return self._function(self._parameters, observation)
        except Exception as error:
            blame_policy(error)
            raise
