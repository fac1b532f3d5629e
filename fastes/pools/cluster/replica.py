"""States of trainings that a node holds and updates by the same steps as the driver, and requests that are made from them."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Protocol

import numpy.typing as npt

from fastes.errors import FastESError
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import Perturbations, draw_pairs, draw_windows
from fastes.number_array import Float32
from fastes.pools.cluster.messages import CachedState, Draws, FullState, RequestMessage, StateMismatch, Step, Theta
from fastes.rollout.job import PoolSpec, Request


class Strategy(Protocol):
    """The part of EvolutionStrategy that a replica uses."""

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

    def ask(self, progress_remaining: float = ..., num_pairs: int | None = ...) -> Perturbations: ...

    def follow(self, last_tell: Any) -> Any: ...


class NotHeld(KeyError):
    """The node does not have a state."""


class Diverged(ValueError):
    """The node computed another state than the driver."""


def key_of(strategy: Strategy, training: int) -> bytes:
    """Hash a state and its hyperparameters to 16 bytes.

    Each training has keys of its own, since trainings may differ in things that are not hashed, such as functions.
    """
    own = [value for value in vars(strategy.hyperparameters).values() if not callable(value)]
    digest = hashlib.sha256(f"{training} {strategy.seed} {strategy.generation} {own}".encode())
    for name, array in sorted(strategy.state().items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.digest()[:16]


def key_of_theta(theta: Float32) -> bytes:
    """Hash theta, float32 (num_params,), to 16 bytes."""
    return hashlib.sha256(theta.tobytes()).digest()[:16]


class Replicas:
    """States by their keys, and parameters by theirs."""

    def __init__(self) -> None:
        self._states: dict[bytes, Strategy] = {}
        self._thetas: dict[bytes, Float32] = {}

    def find(self, wanted: CachedState | Step | FullState, table: NoiseTable | None, training: int = 0) -> Strategy:
        """Return a state, which is made first if it is new. An error changes nothing.

        Raises:
            NotHeld: If the state, or the one that it follows from, is not here.
            Diverged: If the new state is not the driver's.
        """
        if isinstance(wanted, FullState):
            state: Strategy = pickle.loads(wanted.strategy)
            if table is not None:
                state.table = table
            self._keep_if_same(wanted.key, state, training)
        elif isinstance(wanted, Step) and wanted.key not in self._states:
            state = copy.copy(self._state(wanted.before))
            if table is not None:
                state.table = table
            state.follow(wanted)
            self._keep_if_same(wanted.key, state, training)
        return self._state(wanted.key)

    def theta(self, key: bytes) -> Float32:
        """Return the parameters of a state by their own key.

        Raises:
            NotHeld: If no state has them.
        """
        if key not in self._thetas:
            raise NotHeld(key)
        return self._thetas[key]

    def drop(self, key: bytes) -> None:
        """Drop a state."""
        state = self._states.pop(key, None)
        if state is not None:
            self._thetas = {key_of_theta(other.theta): other.theta for other in self._states.values()}

    def _keep_if_same(self, key: bytes, state: Strategy, training: int) -> None:
        if (found := key_of(state, training)) != key:
            raise Diverged(
                f"its parameters after generation {state.generation} have the hash {found.hex()}, expected {key.hex()}"
            )
        self._states[key] = state
        self._thetas[key_of_theta(state.theta)] = state.theta

    def _state(self, key: bytes) -> Strategy:
        if key not in self._states:
            raise NotHeld(key)
        return self._states[key]


class KnownRequests:
    """The driver's requests, made again from its messages.

    Args:
        spec: The node's pool's.
        place_table: `Pool.place_table` of that pool.
    """

    def __init__(self, spec: PoolSpec, place_table: Callable[[NoiseTable, int], None]) -> None:
        self._spec, self._place_table = spec, place_table
        self._replicas = Replicas()
        self._tables: dict[int, NoiseTable] = {}  # by training
        self._messages: dict[int, RequestMessage] = {}  # by ticket
        self._found: dict[int, Request | StateMismatch | Exception] = {}

    def learn(self, message: RequestMessage) -> None:
        """Make a request from its message. An exception is stored: a state may need a module or memory that the node lacks."""
        self._messages[message.ticket] = message
        try:
            self._found[message.ticket] = self._made(message)
        except Exception as error:
            self._found[message.ticket] = error

    def message(self, ticket: int) -> RequestMessage:
        return self._messages[ticket]

    def find(self, ticket: int) -> Request | StateMismatch | Exception:
        """Return a request of all its jobs, or the reason why there is none."""
        return self._found.get(ticket, StateMismatch(0, ""))

    def forget(self, needed: Set[int]) -> None:
        """Drop all requests except these."""
        for known in (self._messages, self._found):
            for ticket in known.keys() - needed:
                del known[ticket]

    def drop(self, keys: Iterable[bytes]) -> None:
        """Drop the states that the driver no longer needs."""
        for key in keys:
            self._replicas.drop(key)

    def _made(self, message: RequestMessage) -> Request | StateMismatch:
        draws, wanted = message.draws, message.parameters
        perturbations: Perturbations | None = None
        try:
            if draws is None:
                theta = wanted.theta if isinstance(wanted, Theta) else self._replicas.theta(wanted.key)
            elif isinstance(wanted, Theta):
                theta, table = wanted.theta, self._table(message.training)
                perturbations = _drawn(message, draws, wanted, table, self._spec.trainings[message.training].episodes)
            else:
                strategy = self._replicas.find(wanted, self._table(message.training), message.training)
                perturbations = strategy.ask(draws.progress_remaining, draws.num_pairs)
                theta = perturbations.theta
        except NotHeld:
            return StateMismatch(0, "")
        except Diverged as error:
            return StateMismatch(0, str(error))
        except FastESError as error:
            return StateMismatch(0, f"it cannot take the driver's step ({error})")
        return Request(
            theta,
            message.normalizer,
            message.episodes,
            perturbations,
            message.eval_seeds,
            message.generation,
            training=message.training,
            calls=message.calls,
            compared=message.compared,
        )

    def _table(self, training: int) -> NoiseTable:
        """Return a training's noise table, which is drawn from its seed."""
        table = self._tables.get(training)
        if table is None:
            needs = self._spec.trainings[training]
            table = NoiseTable(needs.table_size, needs.table_seed)
            self._place_table(table, training)
            self._tables[training] = table
        return table


def _drawn(message: RequestMessage, draws: Draws, wanted: Theta, table: NoiseTable, episodes: int) -> Perturbations:
    """Draw a generation's candidates as EvolutionStrategy.ask does."""
    size = len(wanted.theta)
    drawn = draw_pairs(draws.seed, message.generation, draws.num_pairs, episodes, size, table.size)
    windows = None
    if draws.window_size:
        windows = draw_windows(draws.seed, message.generation, draws.num_pairs, size, draws.window_size)
    return Perturbations(message.generation, draws.sigma, wanted.theta, table, *drawn, wanted.sigma_each, windows)
