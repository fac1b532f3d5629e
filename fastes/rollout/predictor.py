"""Acting outside of training, on one observation or a batch, with the current parameters and statistics."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes._core import Actor
from fastes.policies.custom_policy import AnySpec
from fastes.policies.layers import State, cells_of, remembered_in, state_of
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.observations import CHANNELS_FIRST, ObservationReader, is_single, observation_rows, warn
from fastes.system.forks import register_for_forks
from fastes.system.random_state import torch_on_one_thread


class Choice(np.ndarray[Any, np.dtype[Any]]):
    """An array () with one choice, as SB3 returns it, that can be a dict's key, as an int can: Gymnasium has tables P[s][a]."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.item())

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array)[()]


def single_action(action: Any) -> Any:
    """Return one action as an array; a dict, a tuple or another object stays as the user's function returned it."""
    if isinstance(action, int):
        action = np.int64(action)
    if isinstance(action, (np.integer, np.bool_)):
        return np.array(action).view(Choice)
    return np.array(action) if isinstance(action, (float, np.floating, list)) else action


def _stacked(actions: list[Any]) -> npt.NDArray[Any]:
    """Return the actions of a user's function for a batch as an array; of tuples, if their parts cannot be stacked."""
    try:
        return np.array(actions)
    except ValueError:
        stacked = np.empty(len(actions), dtype=object)
        stacked[:] = actions
        return stacked


def _flags(episode_start: Any, rows: int) -> npt.NDArray[np.bool_]:
    """Return which rows begin an episode, (rows,).

    Raises:
        ValueError: If the number of flags is not that of rows.
    """
    given = np.asarray(False if episode_start is None else episode_start, dtype=bool)
    if given.size not in (1, rows):
        raise ValueError(f"episode_start has shape {given.shape}: expected one flag, or ({rows},), one for each observation")
    return np.broadcast_to(given.ravel(), rows)


class Predictor:
    """Acts with the current theta and normaliser.

    Args:
        spec: Builds the actor.
        normalize_obs: Whether observations are normalised.
        seed: The seed of the noise on actions.

    Attributes:
        reference: The reference batch, if the policy needs one.
        bounded: See ObservationReader.
        lock: To be held around `act`, whose calls share memory.
    """

    def __init__(self, spec: AnySpec, normalize_obs: bool, seed: int) -> None:
        self.spec, self.normalize_obs = spec, normalize_obs
        self.reference: npt.NDArray[Any] | None = None
        self.bounded = True
        self._actor = self.spec.make_actor()
        self._actors = [self._actor]
        self._begun = 0  # how many of them have begun an episode: with the parameters that they act with
        self._remembers = bool(getattr(self._actor, "hooks", ()))  # if so, each row of a batch has an actor of its own
        self._cells = cells_of(spec.layers)
        self._reader: ObservationReader | None = None
        self._loaded: tuple[npt.NDArray[np.float32] | None, int] = (None, -1)
        self.seed(seed)
        self.lock = threading.RLock()
        register_for_forks(self)

    def reset_after_fork(self) -> None:
        """Make a new lock: a thread that held the old one does not exist in a forked copy."""
        self.lock = threading.RLock()

    def seed(self, seed: int) -> None:
        """Seed the noise of actions that are not deterministic."""
        self._key = seed % 2**62 + 2**62

    def act(
        self,
        theta: npt.NDArray[np.float32],
        normalizer: ObsNormalizer,
        observation: Any,
        noise: tuple[float, bool],
        flat_space: Any = None,
        state: Any = None,
        episode_start: Any = None,
    ) -> tuple[Any, State | None]:
        """Compute the action for one observation, or the actions for a batch.

        An array of a Box's own shape is one observation; with one more axis in front it is a batch. For the other spaces see
        `observation_rows`.

        Args:
            theta: The policy's parameters, float32 (num_params,).
            normalizer: Normalises observations, if the policy was trained with that.
            observation: One, or a batch of n.
            noise: action_noise and whether to sample, as Actor.begin_episode takes them; each call and row draws its own.
            flat_space: The observation space if its observations are flattened first, None for a Box.
            state: A recurrent policy's memory, as the last call returned it; None if all rows begin an episode. Custom
                policies keep their own memory.
            episode_start: The rows that begin an episode, at which a policy's memory is reset: one flag per row, or one for
                all; None for no row.

        Returns:
            The action as an array, or an array (n, ...) for a batch; and the next call's state.
        """
        rows, single = self._rows(observation, flat_space)
        with _core.UsualFloats():
            self._load(theta, normalizer, len(rows))
            self._key += 1
            if self._cells:
                actions, state = self._recurrent_rows(rows, noise, state, episode_start)
            else:
                with contextlib.nullcontext() if self.spec.layers else torch_on_one_thread():
                    actions, state = self._act_rows(rows, noise, episode_start), None
        if single:
            return single_action(actions[0]), state
        head = self.spec.head
        if head is None:
            return _stacked(actions), state
        return np.array(actions, dtype=head.cast or head.dtype).reshape(len(actions), *head.shape), state

    def _act_rows(self, rows: Any, noise: tuple[float, bool], episode_start: Any) -> list[Any]:
        """Compute one action per row; a policy with a memory has one memory per row."""
        if not self._remembers:
            self._actor.begin_episode(self._key, *noise)
            return [self._actor.act(row) for row in rows]
        actions = []
        starts = _flags(episode_start, len(rows))
        for row, starting in zip(range(len(rows)), starts, strict=True):
            actor = self._actors[row]
            if starting:
                actor.begin_episode()
            self._key += 1
            Actor.begin_episode(actor, self._key, *noise)
            actions.append(actor.act(rows[row]))
        return actions

    def _recurrent_rows(self, rows: Any, noise: tuple[float, bool], state: Any, episode_start: Any) -> tuple[list[Any], State]:
        """Compute one action per row, each from its row of the state."""
        remembered = remembered_in(self._cells, state, len(rows))
        remembered[_flags(episode_start, len(rows))] = 0.0
        self._actor.begin_episode(self._key, *noise)
        actions, memory = [], self._actor.state
        for row, its_own in zip(rows, remembered, strict=True):
            memory[:] = its_own
            actions.append(self._actor.act(row))
            its_own[:] = memory
        return actions, state_of(self._cells, remembered)

    def _load(self, theta: npt.NDArray[np.float32], normalizer: ObsNormalizer, rows: int) -> None:
        while self._remembers and len(self._actors) < rows:
            self._actors.append(self.spec.make_actor())
            self._loaded = (None, -1)
        if self._loaded[0] is theta and self._loaded[1] == normalizer.count:
            return
        for actor in self._actors:
            actor.parameters[:] = theta
            if self.normalize_obs:
                actor.set_normalizer(normalizer.mean, 1.0 / normalizer.std, normalizer.clip)
            if self.reference is not None:
                actor.set_reference(self.reference)
                actor.fold()
        for actor in self._actors[self._begun :]:
            actor.begin_episode()
        self._begun = len(self._actors)
        self._loaded = (theta, normalizer.count)

    def _rows(self, observation: Any, flat_space: Any) -> tuple[Any, bool]:
        """Return observations as rows, and whether one was passed instead of a batch."""
        if flat_space is not None:
            return self._flat_rows(observation, flat_space)
        try:
            array, shape = np.asarray(observation), self.spec.obs_shape
        except ValueError as error:
            if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
                raise ValueError(
                    "observation is a tuple (observation, info), as a Gymnasium environment's reset() returns it (you may be "
                    "mixing Gym API with SB3 VecEnv API): pass its first item, as in predict(env.reset()[0])"
                ) from error
            raise
        if array.shape == shape:
            return array[np.newaxis], True
        if array.shape[1:] == shape:
            return array, False
        arrange = self._reader_of(spaces.Box(-np.inf, np.inf, shape)).read
        if (single := is_single(array.shape, shape)) is not None:
            return (arrange(array)[np.newaxis] if single else [arrange(row) for row in array]), single
        batch = f"(n, {', '.join(map(str, shape))})"
        raise ValueError(f"observation has shape {array.shape}: expected {shape}, or {batch} for a batch of n")

    def _flat_rows(self, observation: Any, space: Any) -> tuple[Any, bool]:
        flatten = self._reader_of(space).flatten
        if flatten is None:
            raise ValueError(
                f"the policy was made for observations that are flattened, the environment has {space}: pass its own env"
            )
        rows, single = observation_rows(space, observation)
        return [flatten(row) for row in rows], single

    def _reader_of(self, space: spaces.Space[Any]) -> ObservationReader:
        """Return the reader of a space, which is kept because it reports each thing once."""
        if self._reader is None or (self._reader.space, self._reader.bounded) != (space, self.bounded):
            self._reader = ObservationReader(space, _notify, self.bounded)
        return self._reader


def _notify(what: str, said: str) -> None:
    """Warn about a layout, but not about images with their channels first, as SB3's VecTransposeImage returns them."""
    if not what.endswith(CHANNELS_FIRST):
        warn(what, said)
