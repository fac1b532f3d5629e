"""States of a training that a node holds itself, and moves on by the same steps as the driver."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import Perturbations
from fastes.pools.cluster.messages import Float32, Held, Step, Whole


class Strategy(Protocol):
    """What a replica needs of an EvolutionStrategy."""

    seed: int
    table: NoiseTable
    progress_remaining: float
    hyperparameters: Any

    @property
    def theta(self) -> Float32: ...

    @property
    def generation(self) -> int: ...

    @property
    def last_tell(self) -> Any: ...

    def state(self) -> Mapping[str, npt.NDArray[Any]]: ...

    def ask(
        self, progress_remaining: float = ..., num_pairs: int | None = ..., drawn_as: int | None = ...
    ) -> Perturbations: ...

    def follow(self, last_tell: Any) -> Any: ...


class NotHeld(KeyError):
    """A state that the node does not have."""


class Diverged(ValueError):
    """The node came to another state than the driver."""


def key_of(strategy: Strategy) -> bytes:
    """A hash of everything that a step depends on, and that steps change or several starts differ in, 16 bytes."""
    own = [value for value in vars(strategy.hyperparameters).values() if not callable(value)]  # starts differ in no function
    digest = hashlib.sha256(f"{strategy.seed} {strategy.generation} {own}".encode())
    for name, array in sorted(strategy.state().items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.digest()[:16]


def key_of_theta(theta: Float32) -> bytes:
    """The first 16 bytes of theta's SHA-256: float32 (num_params,), bit for bit."""
    return hashlib.sha256(theta.tobytes()).digest()[:16]


class Replicas:
    """States by their keys, and by those of their parameters."""

    def __init__(self) -> None:
        self._states: dict[bytes, Strategy] = {}
        self._thetas: dict[bytes, Float32] = {}

    def find(self, wanted: Held | Step | Whole, table: NoiseTable | None) -> Strategy:
        """The state that is meant, made first where it is new. Raises NotHeld or Diverged, and holds what it held then."""
        if isinstance(wanted, Whole):
            state: Strategy = pickle.loads(wanted.strategy)
            if table is not None:
                state.table = table
            self._keep_if_same(wanted.key, state)
        elif isinstance(wanted, Step) and wanted.key not in self._states:
            state = copy.copy(self._state(wanted.before))
            if table is not None:
                state.table = table
            state.follow(wanted)
            self._keep_if_same(wanted.key, state)
        return self._state(wanted.key)

    def theta(self, key: bytes) -> Float32:
        """The parameters of any state that is held, by their own key."""
        if key not in self._thetas:
            raise NotHeld(key)
        return self._thetas[key]

    def drop(self, key: bytes) -> None:
        """Hold a state no longer."""
        state = self._states.pop(key, None)
        if state is not None:
            self._thetas = {key_of_theta(other.theta): other.theta for other in self._states.values()}

    def _keep_if_same(self, key: bytes, state: Strategy) -> None:
        if (found := key_of(state)) != key:
            raise Diverged(
                f"its parameters after generation {state.generation} have the hash {found.hex()}, expected {key.hex()}"
            )
        self._states[key] = state
        self._thetas[key_of_theta(state.theta)] = state.theta

    def _state(self, key: bytes) -> Strategy:
        if key not in self._states:
            raise NotHeld(key)
        return self._states[key]
