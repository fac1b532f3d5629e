"""The reference batch of virtual batch normalisation: observations of a random policy, drawn once from a training's seed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs.closing import close_env
from fastes.envs.source import Env, EnvSource
from fastes.envs.vector.vector_env import VectorEnv
from fastes.errors import WorkerError, frames_of, summary_of, trace_of, warn_user
from fastes.es.perturbations import REFERENCE_DRAWS, draw_eval_seeds
from fastes.policies.custom_policy import AnySpec
from fastes.policies.layers import REFERENCE_SIZE
from fastes.rollout.episode import EpisodeSettings, run_episode
from fastes.rollout.job import PENALISE
from fastes.rollout.observations import ObservationReader
from fastes.system.forks import CopiesEndHere
from fastes.system.random_state import global_random_kept, seed_global_random, torch_on_one_thread

Batch = npt.NDArray[Any]

_MOST_FAILURES = 20  # episodes in a row that may fail


class _RandomActor:
    """Acts uniformly at random, and keeps the observations."""

    def __init__(self, action_space: Any, obs_shape: tuple[int, ...], seed: int, copies_end: CopiesEndHere) -> None:
        self.full_size, self._copies_end = int(np.prod(obs_shape)), copies_end
        self.seen: list[Batch] = []
        self._space, self._shape = copy.deepcopy(action_space), obs_shape
        self._space.seed(seed)

    def begin_episode(self, *_: Any) -> None:
        """Do nothing: it has no state of an episode."""

    def act(self, obs: Any) -> Any:
        self._copies_end.check()
        self.seen.append(as_read(obs, self._shape))
        return self._space.sample()


def as_read(obs: Any, shape: tuple[int, ...]) -> Batch:
    """Return a copy of an observation in this shape and a dtype that the core reads; ValueError for another size."""
    array = np.array(obs)
    if array.size != np.prod(shape):
        raise ValueError(f"observation has shape {array.shape}, the policy expects {shape}")
    dtype = array.dtype.newbyteorder("=") if array.dtype.name in _core.OBS_DTYPES else np.dtype(np.float64)
    return np.ascontiguousarray(array, dtype=dtype).reshape(shape)


def draw_reference(spec: AnySpec, source: EnvSource, env: Env | VectorEnv, seed: int, on_env_error: str) -> Batch | None:
    """Play episodes with a random policy until there are enough observations.

    Args:
        spec: The policy's.
        source: Builds the environment.
        env: Plays the episodes; in a vector environment, only the first one is watched.
        seed: The seed from which environment seeds are drawn.
        on_env_error: With 'penalise' an episode that fails ends there, and the next one begins in a new environment.

    Returns:
        The first observations, (REFERENCE_SIZE, *obs_shape), of a dtype that holds all of them; None if the policy needs none.

    Raises:
        WorkerError: An exception in the environment.
    """
    if not spec.needs_reference:
        return None
    seeds = draw_eval_seeds(seed, REFERENCE_DRAWS, _MOST_FAILURES * REFERENCE_SIZE).tolist()
    copies_end = CopiesEndHere(f"the environment {source.name}")
    actor = _RandomActor(env.action_space, spec.obs_shape, seeds[0], copies_end)
    with global_random_kept(), torch_on_one_thread(), copies_end:
        if isinstance(env, VectorEnv):
            _play_vector_env(source, env, actor, seeds)
        else:
            _play(source, env, actor, seeds, on_env_error == PENALISE)
    seen = actor.seen[:REFERENCE_SIZE]
    batch = np.array(seen, dtype=np.result_type(*{each.dtype for each in seen}))
    batch.flags.writeable = False
    return batch


def _play(source: EnvSource, env: Env, actor: _RandomActor, seeds: list[int], penalises: bool) -> None:
    """Play episodes until there are enough observations: one without an error has at least one."""
    flatten, failures, known = ObservationReader(env.observation_space).read, 0, set[str]()
    with contextlib.ExitStack() as built:
        for env_seed in seeds:
            if not (left := REFERENCE_SIZE - len(actor.seen)):
                return
            try:
                run_episode(env, actor, env_seed, EpisodeSettings(left), 0, flatten)  # type: ignore[arg-type]
                failures = 0
            except Exception as error:
                failures += 1
                if not penalises or failures == _MOST_FAILURES:
                    raise _in_words(error, source, env_seed) from error
                _warn_once(known, error, _where(source, env_seed))
                close_env(env, source.name)
                built.close()
                env = source()  # the exception may have left the old one in any state
                built.callback(close_env, env, source.name)


def _warn_once(known: set[str], error: Exception, where: str) -> None:
    """Warn once per kind of exception."""
    if type(error).__name__ not in known:
        known.add(type(error).__name__)
        message = f"{summary_of(error)}: the rest of this episode is left out [{where}]\n{trace_of(error)}"
        warn_user(message)


def _in_words(error: Exception, source: EnvSource, env_seed: int) -> WorkerError:
    return WorkerError(f"{summary_of(error)}\n[{_where(source, env_seed)}]\n\n{frames_of(error)}", env_seed=env_seed)


def _where(source: EnvSource, env_seed: int) -> str:
    return (
        f"in the environment {source.name}, while a random policy played for the reference batch of virtual batch "
        f"normalisation, environment seed {env_seed}"
    )


def _play_vector_env(source: EnvSource, env: VectorEnv, actor: _RandomActor, seeds: list[int]) -> None:
    env.check_process()
    flatten = ObservationReader(env.observation_space).read
    with env.frozen():
        for env_seed in seeds:
            if len(actor.seen) >= REFERENCE_SIZE:
                return
            try:
                _play_vector_episode(env, actor, env_seed, flatten)
            except Exception as error:
                raise _in_words(error, source, env_seed) from error


def _play_vector_episode(env: VectorEnv, actor: _RandomActor, env_seed: int, flatten: Callable[[Any], Any]) -> None:
    """Play until the first environment's episode ends, or there are enough observations; seed global random state, too."""
    seed_global_random(env_seed)
    with env.whole_call():
        env.reset([env_seed] * env.num_envs)
    done = False
    while not done and len(actor.seen) < REFERENCE_SIZE:
        shown = next(iter(env.observations()))
        action = actor.act(flatten(shown))
        actions = np.array([action] * env.num_envs, dtype=env.action_space.dtype)
        with env.whole_call():
            done = bool(env.step(actions)[1][0])
