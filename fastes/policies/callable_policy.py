"""Policies that are Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import blame_policy
from fastes.policies.action_head import ActionHead
from fastes.policies.custom_policy import CustomPolicy, CustomSpec, Float32, pickled_copy
from fastes.policies.memory import CustomActor, check_memory_of, held_by, hook_of
from fastes.system.memory import check_memory

PolicyFunction = Callable[[Float32, Float32], Any]


class CallablePolicy(CustomPolicy):
    """A policy that is a Python function of parameters and observation.

    >>> import numpy as np
    >>> from fastes import CallablePolicy, FastES
    >>> def push(parameters, observation):
    ...     return int(parameters @ observation > 0)
    >>> model = FastES("CartPole-v1", CallablePolicy(push, 4), n_workers=0, seed=0)

    function(parameters, observation) returns the action as env.step takes it; nothing comes between. parameters: float32
    (num_params,), read-only. observation: float32 of the observation's shape, or (n,) of n values in obs_columns, a copy,
    normalised unless normalize_obs is off; spaces other than Box are flattened. theta0: the first parameters (num_params,),
    zeros by default.

    The function is copied when the policy is made and each worker has its own: results are the same on any number of
    workers as long as it depends on its arguments alone, or draws from random or np.random's global state. In a vector
    environment episodes overlap and share that state: what a function draws there depends on the number of environments.

    An object that is called in the place of a function, or whose method is, may remember earlier observations where it has a
    method `begin_episode()` or `reset()` without arguments that clears its memory: it is called at the start of every episode,
    and by `predict` where episode_start says so.

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

    def make_spec(
        self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool, columns: tuple[int, ...] = ()
    ) -> CallableSpec:
        own = self.parameter_shapes(), self.theta0, self.pickled
        spec = CallableSpec(self.kind, head, obs_shape, flattened, *own, columns)
        spec.make_actor().check_memory(spec)
        return spec


@dataclass(frozen=True, eq=False)
class CallableSpec(CustomSpec):
    """A CallablePolicy for an environment's spaces."""

    def make_actor(self) -> CallableActor:
        return CallableActor(self)


class CallableActor(CustomActor):
    """A copy of the function with parameters of its own."""

    def __init__(self, spec: CallableSpec) -> None:
        super().__init__(spec)
        self._function: PolicyFunction = spec.own_copy()
        self._owner = self._function.__self__ if isinstance(self._function, MethodType) else self._function
        hook = hook_of(self._owner)
        self.hooks = [] if hook is None else [hook]
        self._input_shape = spec.input_shape
        self.parameters[:] = spec.theta0
        self._parameters = self.parameters
        self._parameters.flags.writeable = False

    def act(self, obs: Any) -> Any:
        """The function's action for one observation."""
        observation = self.observe(obs).reshape(self._input_shape).copy()
        try:
            return self._function(self._parameters, observation)
        except Exception as error:
            blame_policy(error)
            raise

    def check_memory(self, spec: CallableSpec) -> None:
        """Warn of a function or object that remembers what it has met and has no way to forget, or one that does not.

        Those that hold nothing which could change are not called here, nor are functions that are imported: their variables
        are the user's own.
        """

        def run(value: float) -> Any:
            return self._function(self._parameters, np.full(self._input_shape, value, dtype=np.float32))

        if isinstance(self._owner, (FunctionType, partial)):
            if held_by(self._owner) and spec.own_copy() is not self._owner:
                name = getattr(self._owner, "__name__", "partial")
                also = "; as an object that is called it can have one"
                check_memory_of(f"the function {name!r}", self, run, lambda: held_by(self._owner), also)
        elif not isinstance(self._owner, BuiltinFunctionType) and getattr(self._owner, "__dict__", None):
            check_memory_of(f"the {type(self._owner).__name__} object", self, run, lambda: vars(self._owner))
