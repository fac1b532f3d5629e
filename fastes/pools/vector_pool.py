"""The pool that drives a vector environment: each environment plays one candidate, all step together, in this process."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.envs.vector.vector_env import VectorEnv
from fastes.errors import WorkerError, frames_of, origin_of, summary_of
from fastes.rollout.episode import Episode, EpisodeSettings, observation_flattener
from fastes.rollout.job import Batch, PoolSpec, Request, Round, collect, publish
from fastes.rollout.job_runner import parameter_loader
from fastes.rollout.random_state import global_random_kept, one_thread, seed_global_random
from fastes.rollout.shared_block import Block
from fastes.system.interrupts import handlers_kept, interrupts_wait

_IDLE = -1
_ORIGINS = {"environment": "vector environment", "policy": "policy, on"}


class _Start(NamedTuple):
    """An episode to begin: its environment seed, the key of its action noise, and its settings."""

    seed: int
    key: int
    settings: EpisodeSettings


class VectorPool:
    """Runs the jobs of ProcessPool in a vector environment; a job stays in the environment that began it.

    An environment whose episode is over starts the next one at once where that is possible (VectorEnv.restarts_alone); else
    environments wait for each other, and then all start together. Every episode starts from its own seed, so that the number
    of environments changes no result, unless wrappers mix what they show, as VecNormalize's statistics do, or environment or
    policy draw from Python's, NumPy's or torch's global random state, which all environments share.
    """

    n_workers = 0

    def __init__(self, spec: PoolSpec, vector_env: VectorEnv) -> None:
        self.spec, self.vector_env = spec, vector_env
        self.block = Block(spec.layout(0), shared=False)
        self.load_parameters = parameter_loader(self.block.layout)
        self._actors = [spec.policy.make_actor() for _ in range(vector_env.num_envs)]
        self._flatten = observation_flattener(vector_env.observation_space)
        self._actions = (vector_env.num_envs, *_shape_of(vector_env.action_space)), vector_env.action_space.dtype
        head = spec.policy.head
        one_call = self._flatten is None and head is not None and not head.cast
        self._in_one_call = one_call and type(self._actors[0]) is _core.Actor
        self._rounds = 0

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """Memory for the noise table, float32 (table_size,)."""
        return self.block.noise

    def start(self) -> None:
        """Nothing to start: the environment is there."""

    def close(self) -> None:
        """Nothing to end: the environment is its owner's to close."""

    def evaluate(self, request: Request) -> Batch:
        """Run a request's jobs, as many at a time as there are environments. Raises WorkerError for an exception in them.

        Evaluation only leaves running statistics of wrappers as they are.
        """
        jobs = publish(self.block, request)
        with contextlib.nullcontext() if request.perturbations is not None else self.vector_env.frozen():
            self._play(jobs, request)
        return collect(self.block, jobs, 0, "")

    def play(self, job: int, request: Request) -> Episode:
        """One job of a request, in the first environment: the mean return of its episodes, and their total length.

        Raises WorkerError for an exception in the environments.
        """
        publish(self.block, request)
        self._play(np.array([job]), request)
        return Episode(float(self.block.returns[job]), int(self.block.lengths[job]))

    def _play(self, jobs: npt.NDArray[np.int64], request: Request) -> None:
        self.vector_env.check_process()
        self._rounds += 1
        round_ = Round.of(self._rounds, len(jobs), request)
        if self.spec.normalize_obs:
            for actor in self._actors:
                actor.set_normalizer(self.block.obs_mean, self.block.obs_inv_std, round_.obs_clip)
        run = _Run(self, round_, jobs)
        with handlers_kept(), global_random_kept(), one_thread():
            try:
                run.to_the_end()
            except Exception as error:
                origin = _ORIGINS[origin_of(error)]
                when = f", generation {round_.generation + 1}" if round_.generation >= 0 else ""
                raise WorkerError(
                    f"{summary_of(error)}\n[in the {origin} {self.spec.source.name}{when}, while its "
                    f"environments played jobs {run.job.tolist()} (-1: none)]\n\n{frames_of(error)}",
                    round_.generation + 1,
                    int(run.job.max(initial=_IDLE)),
                    -1,
                ) from error

    def act(self) -> npt.NDArray[Any]:
        """The actions of all environments, (num_envs, *action shape)."""
        observations = self.vector_env.observations()
        actions = np.empty(*self._actions)
        if self._in_one_call and isinstance(observations, np.ndarray) and _is_read_as_it_is(observations.dtype):
            _core.act_rows(self._actors, np.ascontiguousarray(observations), actions)
            return actions
        for index, (actor, observation) in enumerate(zip(self._actors, observations, strict=True)):
            action = np.asarray(actor.act(observation if self._flatten is None else self._flatten(observation)))
            if action.shape != actions.shape[1:] or not np.can_cast(action.dtype, actions.dtype, "same_kind"):
                raise ValueError(
                    f"the policy's action has shape {action.shape} and dtype {action.dtype}: expected {actions.shape[1:]} and "
                    f"{actions.dtype}, as in the action space {self.vector_env.action_space}"
                )
            actions[index] = action
        return actions


def _is_read_as_it_is(dtype: np.dtype[Any]) -> bool:
    """Whether kernels read it; a name says nothing of the order of bytes."""
    return dtype.isnative and dtype.name in _core.OBS_DTYPES


def _shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Of an action, or ValueError for a space whose actions are no arrays (a CallablePolicy may act in any)."""
    if space.shape is None:
        raise ValueError(
            f"action space {space} has no shape: expected one in a vector environment. Pass the environment's id, or a "
            "function that builds one, as env"
        )
    return space.shape


class _Run:
    """A round's jobs on the environments. Arrays have an item an environment; job: the one it plays, or -1."""

    def __init__(self, pool: VectorPool, round_: Round, jobs: npt.NDArray[np.int64]) -> None:
        self.spec, self.block, self.vector_env, self.actors, self.act = (
            pool.spec,
            pool.block,
            pool.vector_env,
            pool._actors,
            pool.act,
        )
        self.load_parameters = pool.load_parameters
        self.round, self.waiting_jobs = round_, deque(jobs.tolist())
        self.block.seconds[jobs] = 0.0  # the first job's gets the time that the environment took for all
        self.seconds = self.block.seconds[jobs[0] : jobs[0] + 1]
        self.candidates = 2 * pool.spec.num_pairs
        count = self.vector_env.num_envs
        self.job = np.full(count, _IDLE)
        self.episode = np.zeros(count, dtype=np.int64)
        self.playing = np.zeros(count, dtype=bool)
        self.total = np.zeros(count)
        self.length = np.zeros(count, dtype=np.int64)
        self.returns, self.lengths = np.zeros(count), np.zeros(count, dtype=np.int64)  # of the job's episodes that are over
        self.successes = np.zeros(count)
        self.limit = np.zeros(count, dtype=np.int64)
        self.to_start: dict[int, _Start] = {}

    def to_the_end(self) -> None:
        for index in range(self.vector_env.num_envs):
            self._take_job(index)
        self._start_all()
        while self.playing.any():
            self._step()
            if self.to_start and self.playing.any() and self.vector_env.restarts_alone:
                with self._whole():
                    self.vector_env.restart({index: start.seed for index, start in self.to_start.items()})
                self._begin_episodes()
            elif self.to_start and not self.playing.any():
                self._start_all()

    def _whole(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C waits for an answer of other processes: it would be taken for that to the next call."""
        return interrupts_wait() if self.vector_env.in_processes else contextlib.nullcontext()

    def _step(self) -> None:
        actions = self.act()
        before = time.perf_counter()
        with self._whole():
            rewards, dones = self.vector_env.step(actions)
        self.seconds += time.perf_counter() - before
        self.total += rewards
        self.length += 1
        over = (dones | (self.length >= self.limit)) & self.playing
        if over.any():
            for index in np.flatnonzero(over).tolist():
                self._end_episode(index)

    def _take_job(self, index: int) -> None:
        """Give an environment the next job, or none."""
        self.job[index] = job = self.waiting_jobs.popleft() if self.waiting_jobs else _IDLE
        if job != _IDLE:
            self.load_parameters(self.actors[index], self.block, job, self.round.sigma)
            self.episode[index] = self.lengths[index] = 0
            self.returns[index] = self.successes[index] = 0.0
            self._plan_episode(index)

    def _plan_episode(self, index: int) -> None:
        job, episode = int(self.job[index]), int(self.episode[index])
        if job < self.candidates:
            seed, key = self.block.env_seed[job // 2, episode], self.block.action_key[job // 2, episode]
            self.to_start[index] = _Start(int(seed), int(key), self.round.training)
        else:
            self.to_start[index] = _Start(int(self.block.eval_seed[job - self.candidates]), 0, self.round.evaluation)

    def _start_all(self) -> None:
        """Start an episode in every environment; one without a job gets any."""
        first = next(iter(self.to_start.values()))
        seed_global_random(first.seed % 2**32)
        with self._whole():
            self.vector_env.reset([self.to_start.get(index, first).seed for index in range(self.vector_env.num_envs)])
        self._begin_episodes()

    def _begin_episodes(self) -> None:
        for index, start in self.to_start.items():
            actor, job = self.actors[index], int(self.job[index])
            actor.begin_episode(start.key, start.settings.action_noise, start.settings.sample)
            if self.spec.normalize_obs and job < self.candidates:
                actor.count_moments(True)
                if self.episode[index]:
                    actor.observation_moments[:] = self.block.moments[job]  # go on where the last episode ended
            self.playing[index] = True
            self.total[index], self.length[index], self.limit[index] = 0.0, 0, start.settings.max_steps
        self.to_start.clear()

    def _end_episode(self, index: int) -> None:
        actor, job = self.actors[index], int(self.job[index])
        candidate = job < self.candidates
        self.playing[index] = False
        self.returns[index] += self.total[index]
        self.successes[index] += self.vector_env.success(index)
        self.lengths[index] += self.length[index]
        self.episode[index] += 1
        if candidate:
            self.block.moments[job] = actor.observation_moments
            actor.count_moments(False)
            if self.episode[index] < self.spec.episodes:
                self._plan_episode(index)
                return
        episodes = self.spec.episodes if candidate else 1
        self.block.returns[job], self.block.successes[job] = self.returns[index] / episodes, self.successes[index] / episodes
        self.block.lengths[job] = self.lengths[index]
        self._take_job(index)
