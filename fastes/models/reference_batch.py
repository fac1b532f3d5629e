"""The reference batch of virtual batch normalisation: what a random policy sees, drawn once from a training's seed."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs.source import Env
from fastes.envs.vector.vector_env import VectorEnv
from fastes.es.perturbations import draw_eval_seeds
from fastes.policies.choose_policy import AnySpec
from fastes.policies.layers.batch_norm import REFERENCE_SIZE
from fastes.rollout.episode import EpisodeSettings, observation_flattener, run_episode
from fastes.rollout.random_state import global_random_kept, one_thread
from fastes.system.interrupts import interrupts_wait

Batch = npt.NDArray[Any]

_DRAWN_AS = 3 * 2**30  # in the place of a generation: no other episodes have these seeds


class _RandomActor:
    """Acts uniformly at random, and keeps what it sees."""

    def __init__(self, action_space: Any, obs_shape: tuple[int, ...], seed: int) -> None:
        self.full_size = int(np.prod(obs_shape))
        self.seen: list[Batch] = []
        self._space, self._shape = copy.deepcopy(action_space), obs_shape
        self._space.seed(seed)

    def begin_episode(self, *_: Any) -> None:
        """It remembers nothing that an episode's beginning would change."""

    def act(self, obs: Any) -> Any:
        self.seen.append(as_read(obs, self._shape))
        return self._space.sample()


def as_read(obs: Any, shape: tuple[int, ...]) -> Batch:
    """A copy of an observation, of this shape and of a dtype that the core reads. ValueError for another number of values."""
    array = np.array(obs)
    if array.size != np.prod(shape):
        raise ValueError(f"observation has shape {array.shape}, the policy expects {shape}")
    dtype = array.dtype.newbyteorder("=") if array.dtype.name in _core.OBS_DTYPES else np.dtype(np.float64)
    return np.ascontiguousarray(array, dtype=dtype).reshape(shape)


def draw_reference(spec: AnySpec, env: Env | VectorEnv, seed: int) -> Batch | None:
    """The observations on which a random policy acts first, (REFERENCE_SIZE, *obs_shape); None where the policy needs none.

    env: is played in: as many episodes as it takes, from environment seeds of this seed. Of a vector environment the first one
    is watched. All observations get the dtype of the first.
    """
    if not spec.needs_reference:
        return None
    seeds = draw_eval_seeds(seed, _DRAWN_AS, REFERENCE_SIZE).tolist()
    actor = _RandomActor(env.action_space, spec.obs_shape, seeds[0])
    with global_random_kept(), one_thread():
        if isinstance(env, VectorEnv):
            _play_vector_env(env, actor, seeds)
        else:
            flatten = observation_flattener(env.observation_space)
            for env_seed in seeds:  # each episode has one observation at least
                if left := REFERENCE_SIZE - len(actor.seen):
                    run_episode(env, actor, env_seed, EpisodeSettings(left), 0, flatten)  # type: ignore[arg-type]
    batch = np.array(actor.seen[:REFERENCE_SIZE], dtype=actor.seen[0].dtype)
    batch.flags.writeable = False
    return batch


def _play_vector_env(env: VectorEnv, actor: _RandomActor, seeds: list[int]) -> None:
    env.check_process()
    flatten = observation_flattener(env.observation_space)
    with env.frozen():
        for env_seed in seeds:
            with interrupts_wait() if env.in_processes else contextlib.nullcontext():
                env.reset([env_seed] * env.num_envs)
            done = False
            while not done and len(actor.seen) < REFERENCE_SIZE:
                shown = next(iter(env.observations()))
                action = actor.act(shown if flatten is None else flatten(shown))
                actions = np.array([action] * env.num_envs, dtype=env.action_space.dtype)
                with interrupts_wait() if env.in_processes else contextlib.nullcontext():
                    done = bool(env.step(actions)[1][0])
            if len(actor.seen) >= REFERENCE_SIZE:
                return
