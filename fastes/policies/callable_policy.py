"""Policies that are Python functions."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import blame_policy
from fastes.number_array import Float32
from fastes.policies.action_head import ActionHead
from fastes.policies.custom_policy import CustomActor, CustomPolicy, CustomSpec, hook_of, pickled_copy, warn_if_not_reset
from fastes.system.limits import check_memory

PolicyFunction = Callable[[Float32, Float32], Any]


class CallablePolicy(CustomPolicy):
    """A policy that is a Python function of parameters and observation.

    >>> import numpy as np
    >>> from fastes import CallablePolicy, FastES
    >>> def push(parameters, observation):
    ...     return int(parameters @ observation > 0)
    >>> model = FastES("CartPole-v1", CallablePolicy(push, 4), n_workers=0, seed=0)

    The function is copied when the policy is made, and each worker has its own copy. Results are the same on any number of
    workers if it depends on its arguments alone, or draws from the global state of random or np.random. In a vector
    environment episodes overlap and share that state, so results depend on the number of environments.

    A callable object, or one whose method is passed, may remember earlier observations if it has a method `begin_episode()` or
    `reset()` without arguments that clears its memory: it is called at the start of every episode, and by `predict` if
    episode_start says so.

    Args:
        function: Called with parameters, float32 (num_params,), read-only, and an observation, a float32 copy of the
            observation's shape, or (n,) of n values in obs_columns. The observation is normalised unless normalize_obs is off;
            spaces other than Box are flattened. Returns the action as env.step takes it.
        num_params: Number of parameters.
        theta0: The first parameters (num_params,), zeros by default.

    Raises:
        TypeError: A function that cannot be called or copied.
        ValueError: theta0 of another length, or not finite.
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
        spec.make_actor().check_reset(spec)
        return spec


@dataclass(frozen=True, eq=False)
class CallableSpec(CustomSpec):
    """A CallablePolicy for an environment's spaces."""

    def make_actor(self) -> CallableActor:
        return CallableActor(self)


class CallableActor(CustomActor):
    """A copy of the function with its own parameters."""

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
        """Return the function's action for one observation."""
        observation = self.observe(obs).reshape(self._input_shape).copy()
        try:
            return self._function(self._parameters, observation)
        except Exception as error:
            blame_policy(error)
            raise

    def check_reset(self, spec: CallableSpec) -> None:
        """Warn if the function or object remembers earlier observations and no hook clears its memory.

        Functions and objects that hold nothing which could change are not called here, nor are imported functions: their
        variables are the user's own.
        """

        def run(value: float) -> Any:
            return self._function(self._parameters, np.full(self._input_shape, value, dtype=np.float32))

        if isinstance(self._owner, (FunctionType, partial)):
            if _held_by(self._owner) and spec.own_copy() is not self._owner:
                name = getattr(self._owner, "__name__", "partial")
                also = "; as an object that is called it can have one"
                warn_if_not_reset(f"the function {name!r}", self, run, lambda: _held_by(self._owner), also)
        elif not isinstance(self._owner, BuiltinFunctionType) and getattr(self._owner, "__dict__", None):
            warn_if_not_reset(f"the {type(self._owner).__name__} object", self, run, lambda: vars(self._owner))


def _held_by(function: Any) -> dict[str, Any]:
    """Return the objects in which a function may remember, by name: enclosing variables, defaults, attributes.

    Variables of its module count if the function names them; an imported function has no copies of them.
    """
    if isinstance(function, functools.partial):
        given = {**{str(number): value for number, value in enumerate(function.args)}, **function.keywords}
        return {**_held_by(function.func), **_changeable(given)}
    if not isinstance(function, FunctionType):
        return {}
    variables: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # an enclosing variable has no value yet
        around = inspect.getclosurevars(function)
        variables = {**around.globals, **around.nonlocals}
    stored = {step.argval for step in dis.get_instructions(function) if step.opname in ("STORE_DEREF", "STORE_GLOBAL")}
    defaults = {f"default {number}": value for number, value in enumerate(function.__defaults__ or ())}
    rebound = {name: value for name, value in variables.items() if name in stored}
    return {**_changeable({**variables, **defaults, **(function.__kwdefaults__ or {}), **vars(function)}), **rebound}


def _changeable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that code may change in place."""
    code, fixed = (FunctionType, ModuleType, type), (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))
    return {
        name: vars(value) if hasattr(value, "__dict__") else value
        for name, value in values.items()
        if not isinstance(value, (*code, *fixed))
    }
