"""The common part of policies that users bring: TorchPolicy and CallablePolicy.

The core does the two ends of a step, observe and choose. A policy may remember earlier observations, which its actor clears at
the start of each episode.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import numpy as np
from gymnasium import spaces

from fastes import _core
from fastes.errors import blame_policy, warn_user
from fastes.number_array import Float32
from fastes.policies.action_head import ActionHead
from fastes.policies.obs_columns import ALL, ObsColumns, columns_in
from fastes.policies.policy_spec import PolicySpec, obs_shape_of, parts_of, split_theta
from fastes.system.random_state import global_random_kept, global_states, set_global_states

USE_NOISE = {"": "", "sample_actions": ", or use sample_actions=True", "action_noise": ", or use action_noise"}


class CustomPolicy:
    """Base of TorchPolicy and CallablePolicy: a `policy` for FastES that is not bound to an environment."""

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
        """Return the policy for an environment's spaces; ValueError or TypeError if they do not fit."""
        head = self.head_for(action_space, dict(policy_kwargs or {}))
        shape, flattened = obs_shape_of(observation_space)
        spec = self.make_spec(head, shape, flattened, columns_in(obs_columns, observation_space, math.prod(shape)))
        return replace(spec, parts=parts_of(observation_space))

    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return names and shapes of the parameters in the order in which they lie in theta."""
        raise NotImplementedError

    def head_for(self, action_space: spaces.Space[Any], policy_kwargs: dict[str, Any]) -> ActionHead | None:
        """Return how outputs become actions; None if they are actions."""
        raise NotImplementedError

    def make_spec(
        self, head: ActionHead | None, obs_shape: tuple[int, ...], flattened: bool, columns: tuple[int, ...] = ()
    ) -> CustomSpec:
        """Return the policy for a head and columns of observations of a shape; ValueError or TypeError if they do not fit."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CustomSpec:
    """The description from which workers build a custom policy; it has the attributes of a PolicySpec.

    Attributes:
        kind: Name of the class that made it.
        head: How outputs become actions; None for actions as they are.
        obs_shape: Shape of one observation; spaces other than Box are flattened.
        flattened: Whether observations are flattened.
        shapes: Shapes of the parameters, by name, in the order in which they lie in theta.
        theta0: The first parameters, float32 (num_params,).
        pickled: The user's module or function.
        columns: Indices of the values of an observation that it sees, in this order; empty for all.
        parts: As of a PolicySpec.
        untrained: Checksums of values that training leaves as they are, and that outputs depend on, by name.
    """

    kind: str
    head: ActionHead | None
    obs_shape: tuple[int, ...]
    flattened: bool
    shapes: Mapping[str, tuple[int, ...]]
    theta0: Float32 = field(repr=False)
    pickled: bytes = field(repr=False)
    columns: tuple[int, ...] = ()
    parts: str = field(default="", kw_only=True)
    untrained: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    layers = ()  # none that the core would run
    needs_reference = False

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the input that it gets for one observation."""
        return (len(self.columns),) if self.columns else self.obs_shape

    @property
    def obs_size(self) -> int:
        return math.prod(self.input_shape)

    @property
    def num_params(self) -> int:
        return len(self.theta0)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the parameters in the order in which they lie in theta."""
        return dict(self.shapes)

    def split(self, theta: Float32) -> dict[str, Float32]:
        """Return views of theta (num_params,) by parameter name."""
        return split_theta(theta, self.shapes)

    def initial_theta(self, seed: int) -> Float32:  # noqa: ARG002
        """Return a copy of the first parameters, which the user has chosen: no seed changes them."""
        return np.array(self.theta0)

    def make_actor(self) -> _core.Actor:
        """Return a copy of the policy with its own parameters."""
        raise NotImplementedError

    def own_copy(self) -> Any:
        """Return a new copy of the user's module or function."""
        try:
            return pickle.loads(self.pickled)
        except Exception as error:
            blame_policy(error)
            raise


AnySpec = PolicySpec | CustomSpec


def pickled_copy(what: str, item: object) -> bytes:
    """Return a pickled copy for the workers, or raise TypeError that says what cannot be sent."""
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


# --- policies that remember -------------------------------------------------------------------------------------------

HOOKS = ("begin_episode", "reset")  # the first one that an object has is called at the start of each episode


def hook_of(item: object) -> Callable[[], Any] | None:
    """Return the method of a module or function to be called at the start of each episode; None if it has none."""
    for name in HOOKS:
        hook = getattr(item, name, None)
        if callable(hook) and not hasattr(hook, "forward") and _takes_nothing(hook):  # a gate of a cell may have that name
            return hook  # type: ignore[no-any-return]
    return None


def _takes_nothing(hook: Callable[..., Any]) -> bool:
    try:
        inspect.signature(hook).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True


class CustomActor(_core.Actor):
    """An actor that calls hooks of its module or function at the start of each episode.

    Attributes:
        hooks: Called in order; empty for a policy without a memory, or without a way to clear it.
    """

    hooks: Sequence[Callable[[], Any]] = ()

    def begin_episode(self, noise_key: int = 0, action_noise: float = 0.0, sample: bool = False) -> None:
        """Begin an episode's action stream, and clear the policy's memory."""
        super().begin_episode(noise_key, action_noise, sample)
        self.reset_memory()

    def reset_memory(self) -> None:
        """Clear what the policy remembers."""
        try:
            for hook in self.hooks:
                hook()
        except Exception as error:
            blame_policy(error)
            raise


def warn_if_not_reset(
    what: str, actor: CustomActor, run: Callable[[float], Any], state: Callable[[], Any], also: str = ""
) -> None:
    """Warn if a policy's outputs depend on earlier observations.

    Args:
        what: The policy in words.
        actor: The policy's.
        run: Returns the outputs for an observation with this value everywhere; an exception ends the check.
        state: Returns the objects, other than parameters, in which the policy may remember.
        also: Further advice.
    """
    begin = functools.partial(set_global_states, global_states())  # so that each run draws the same
    with global_random_kept(), contextlib.suppress(Exception):
        actor.reset_memory()
        first, before = _frozen(run(0.0)), None if actor.hooks else _frozen(state())
        with contextlib.suppress(Exception):  # a table may lack an entry for it
            run(1.0)
        begin()
        actor.reset_memory()
        if (_frozen(run(0.0)), None if actor.hooks else _frozen(state())) == (first, before):
            return
        message = f"{what} remembers earlier observations, {_advice(actor.hooks)}{also}"
        warn_user(message, UserWarning)


def _advice(hooks: Sequence[Callable[[], Any]]) -> str:
    """Return advice about a memory that is not cleared, for the warning."""
    harm = "so that results depend on the number of workers"
    if hooks:
        name = getattr(hooks[0], "__name__", HOOKS[0])
        return f"also after its {name}(): it has to clear all that is remembered, {harm} otherwise"
    return (
        f"and nothing clears that where an episode begins, {harm}: give it a method reset() or begin_episode() without "
        "arguments, which is called at the start of each episode"
    )


def _frozen(value: Any, depth: int = 8) -> Any:
    """Return what is compared with a later value: bytes of arrays and tensors, only the type of objects of other kinds."""
    if hasattr(value, "detach"):
        with contextlib.suppress(Exception):
            value = value.detach().numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return (str(value.dtype), value.shape, value.tobytes()) if value.dtype.kind != "O" else None
    if isinstance(value, (bool, int, float, complex, str, bytes)) or value is None:
        return (type(value).__name__, repr(value))
    if depth and isinstance(value, dict):
        return [(repr(key), _frozen(inner, depth - 1)) for key, inner in value.items()]
    if depth and (isinstance(value, (list, tuple)) or type(value).__name__ == "deque"):
        return [_frozen(inner, depth - 1) for inner in value]
    return type(value).__name__
