"""The pool that drives a vector environment in this process: each environment plays one candidate, all step together."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.envs.returned import success_of
from fastes.envs.vector.vector_env import VectorEnv
from fastes.errors import WorkerError, frames_of, origin_of, summary_of
from fastes.pools.block_pool import BlockPool, OpenRequest
from fastes.pools.pool import LocalPool
from fastes.rollout.episode import Episode
from fastes.rollout.job import PoolSpec, Request, RequestScalars, TrainingNeeds
from fastes.rollout.job_runner import begin_request, make_actor, parameter_loader
from fastes.rollout.last_infos import has_mask, write_info
from fastes.rollout.observations import ObservationReader
from fastes.rollout.shared_block import EVALUATION_STEPS, STEPS, SlotLayout
from fastes.system.forks import CopiesEndHere, end_copy
from fastes.system.interrupts import signal_handlers_kept
from fastes.system.random_state import global_random_kept, seed_global_random, torch_on_one_thread

_IDLE = -1
_ORIGINS = {"environment": "vector environment", "policy": "policy, on"}


class Job:
    """A job of an open request.

    Attributes:
        slot: The request's.
        number: The job's, in its slot.
        players: The actors of the request's training.
        scalars: The request's.
        is_candidate: Whether the job is a candidate's, and not a noise-free episode.
    """

    def __init__(self, request: OpenRequest, number: int, players: _TrainingActors) -> None:
        self.slot, self.number, self.players = request.slot, number, players
        self.scalars = RequestScalars.of(request.slot, request.ticket)
        self.is_candidate = bool(request.slot.layout.num_pairs)

    def replay_number(self) -> int:
        """Return the job's number in errors and for `replay`."""
        return self.number if self.is_candidate else 2 * self.players.needs.num_pairs + self.number


class _TrainingActors:
    """One training's actors, one per environment.

    Attributes:
        needs: The training's.
        actors: One per environment.
        can_act: Whether each of them can act: one that needs a reference batch has to get it first.
        load_parameters: Loads the parameters that a job evaluates into an actor.
    """

    def __init__(self, needs: TrainingNeeds, layout: SlotLayout, count: int, reader: ObservationReader) -> None:
        self.needs, self.load_parameters = needs, parameter_loader(layout, needs.policy)
        self.actors = [make_actor(needs, reader) for _ in range(count)]
        self.can_act = [not needs.policy.needs_reference] * count

    def acts_as(self, dtype: np.dtype[Any] | None) -> bool:
        """Whether the actors are the compiled ones, and their actions have a dtype."""
        head = self.needs.policy.head
        return type(self.actors[0]) is _core.Actor and head is not None and np.dtype(head.dtype) == dtype


class _Start(NamedTuple):
    """An episode to begin: its environment seed, the key of the noise on its actions, and its job."""

    seed: int
    key: int
    job: Job


class VectorPool(BlockPool, LocalPool):
    """Plays jobs in a vector environment; a job stays in the environment that began it.

    An environment whose episode is over starts the next one at once if it can (VectorEnv.restarts_alone); otherwise
    environments wait for each other, and all start together. Each episode has its own seed, so that the number of environments
    changes no result. There are two exceptions: wrappers that mix observations, as VecNormalize's statistics do, and
    environments or policies that draw from a global random state, which all environments share.
    """

    def __init__(self, vector_env: VectorEnv) -> None:
        super().__init__()
        self.vector_env = vector_env
        self._players: list[_TrainingActors] = []  # one per training

    def open(self, spec: PoolSpec) -> None:
        """Allocate the memory, and make an actor per training and environment."""
        vector_env = self.vector_env
        self.check_memory(spec, 0, actors=vector_env.num_envs)
        block = spec.block(0, shared=False)
        reader = ObservationReader(vector_env.observation_space, bounded=not vector_env.normalizes)
        self._flatten, self._shape = reader.flatten, vector_env.observation_space.shape
        self._players = [
            _TrainingActors(needs, layout.candidates, vector_env.num_envs, reader)
            for needs, layout in zip(spec.trainings, block.layout.trainings, strict=True)
        ]
        dtype = vector_env.action_space.dtype
        self._actions = (vector_env.num_envs, *_shape_of(vector_env.action_space)), dtype
        self._is_known = False  # whether the reader has seen an observation
        self._in_one_call = self._flatten is None and all(players.acts_as(dtype) for players in self._players)
        self._copies_end = CopiesEndHere(f"the environment {spec.source.name}")
        self._use(spec, block)

    def reset_after_fork(self) -> None:
        """End a forked copy that returns from the environment's step: it would play the same episodes once more."""
        super().reset_after_fork()
        for actor in (actor for players in self._players for actor in players.actors):
            actor.refuse_with(lambda: end_copy(self._copies_end.what))

    def close(self) -> None:
        """Release the memory. The environment stays open: it is the user's."""
        super().close()
        self._players = []

    def wait(self, tickets: Collection[int]) -> None:
        """Run all open requests together, unless one of these is finished.

        Noise-free episodes begin first: they have no adaptive cap, and the longest episode should not start last. Without
        candidates among the requests, running statistics of wrappers are frozen.
        """
        if any(self.is_finished(ticket) for ticket in tickets):
            return
        requests = sorted(self._requests.unfinished(), key=lambda open_: open_.request.perturbations is not None)
        jobs = [self._job(open_, job) for open_ in requests for job in open_.jobs.tolist()]
        learning = requests[-1].request.perturbations is not None
        try:
            with contextlib.nullcontext() if learning else self.vector_env.frozen():
                self._play(jobs)
        except WorkerError as error:
            for open_ in requests:
                open_.error = error
        except BaseException:
            self._requests.forget()
            raise
        for open_ in requests:
            open_.finished = True

    def play_job(self, job: int, request: Request) -> Episode:
        open_ = self._requests.add([request], self.block.slots)[0]
        try:
            self._play([self._job(open_, job)])
        finally:
            self._requests.forget()
        slot = open_.slot
        return Episode(float(slot.returns[job]), int(slot.lengths[job]), cut=int(slot.cuts[job]))

    def _job(self, open_: OpenRequest, number: int) -> Job:
        return Job(open_, number, self._players[open_.slot.training])

    def _play(self, jobs: Sequence[Job]) -> None:
        self.vector_env.check_process()
        run = _Run(self, jobs)
        with _core.UsualFloats(), signal_handlers_kept(), global_random_kept(), torch_on_one_thread():
            try:
                with self._copies_end:
                    run.to_the_end()
                self.vector_env.part(run.first_seed)
            except Exception as error:
                origin = _ORIGINS[origin_of(error)]
                generation = max(job.scalars.generation for job in jobs)
                when = f", generation {generation + 1}" if generation >= 0 else ""
                playing = [_IDLE if job is None else job.replay_number() for job in run.job]
                raise WorkerError(
                    f"{summary_of(error)}\n[in the {origin} {self.spec.source.name}{when}, while its "
                    f"environments played jobs {playing} (-1: none)]\n\n{frames_of(error)}",
                    generation + 1,
                    max(playing),
                    -1,
                ) from error

    def _is_as_read(self, observations: npt.NDArray[Any]) -> bool:
        """Whether kernels can read the observations as they are. A dtype's name does not tell the order of bytes."""
        dtype = observations.dtype
        return observations.shape[1:] == self._shape and dtype.isnative and dtype.name in _core.OBS_DTYPES

    def act(self, actors: list[_core.Actor]) -> npt.NDArray[Any]:
        """Compute the actions of all environments, (num_envs, *action shape), with one actor per environment."""
        observations = self.vector_env.observations()
        actions = np.empty(*self._actions)
        if self._in_one_call and self._is_known and isinstance(observations, np.ndarray) and self._is_as_read(observations):
            _core.act_rows(actors, np.ascontiguousarray(observations), actions)
            return actions
        for index, (actor, observation) in enumerate(zip(actors, observations, strict=True)):
            action = np.asarray(actor.act(observation if self._flatten is None else self._flatten(observation)))
            if action.shape != actions.shape[1:] or not np.can_cast(action.dtype, actions.dtype, "same_kind"):
                raise ValueError(
                    f"the policy's action has shape {action.shape} and dtype {action.dtype}: expected {actions.shape[1:]} and "
                    f"{actions.dtype}, as in the action space {self.vector_env.action_space}"
                )
            actions[index] = action
        self._is_known = True
        return actions


def _shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Return the shape of an action.

    Raises:
        ValueError: If actions of the space are not arrays.
    """
    if space.shape is None:
        raise ValueError(
            f"action space {space} has no shape: expected one in a vector environment. Pass the environment's id, or a "
            "function that builds one, as env"
        )
    return space.shape


class _Run:
    """Plays jobs on the environments.

    Arrays and lists have one item per environment.

    Attributes:
        waiting_jobs: Jobs that no environment plays yet.
        job: The job that the environment plays, or None.
        actors: The actor in it, of that job's training, or of the last job's.
    """

    def __init__(self, pool: VectorPool, jobs: Sequence[Job]) -> None:
        self.spec, self.vector_env, self.act = pool.spec, pool.vector_env, pool.act
        self.actors = list(jobs[0].players.actors)
        self.waiting_jobs = deque(jobs)
        for job in jobs:
            job.slot.seconds[job.number] = 0.0  # the first job gets the time of all
        self.seconds = jobs[0].slot.seconds[jobs[0].number : jobs[0].number + 1]
        count = self.vector_env.num_envs
        self.job: list[Job | None] = [None] * count
        self.begun: list[int] = [0] * count  # the ticket whose normaliser and reference batch the actor has
        self.episode = np.zeros(count, dtype=np.int64)
        self.playing = np.zeros(count, dtype=bool)
        self.total = np.zeros(count)
        self.length = np.zeros(count, dtype=np.int64)
        self.returns, self.lengths = np.zeros(count), np.zeros(count, dtype=np.int64)  # sums over the job's finished episodes
        self.successes, self.cuts = np.zeros(count), np.zeros(count, dtype=np.int64)
        self.limit = np.zeros(count, dtype=np.int64)
        self.to_start: dict[int, _Start] = {}
        self.first_seed = 0  # of the last episodes that began together
        self.counted, self.uncounted = pool.block.workers[0], np.zeros(1, dtype=np.int64)

    def to_the_end(self) -> None:
        """Play all jobs."""
        first = self.waiting_jobs[0]
        for index in range(self.vector_env.num_envs):
            self._take_job(index)
            if self.job[index] is None and not first.players.can_act[index]:
                self._prepare(index, first)  # it has to act: all environments step together
        self._start_all()
        while self.playing.any():
            self._step()
            if self.to_start and self.playing.any() and self.vector_env.restarts_alone:
                with self.vector_env.whole_call():
                    self.vector_env.restart({index: start.seed for index, start in self.to_start.items()})
                self._begin_episodes()
            elif self.to_start and not self.playing.any():
                self._start_all()

    def _step(self) -> None:
        actions = self.act(self.actors)
        before = time.perf_counter()
        with self.vector_env.whole_call():
            rewards, dones = self.vector_env.step(actions)
        self.seconds += time.perf_counter() - before
        self.total += rewards
        self.length += 1
        over = (dones | (self.length >= self.limit)) & self.playing
        if over.any():
            for index in np.flatnonzero(over).tolist():
                if (job := self.job[index]) is not None:
                    is_cut = not dones[index]
                    self.cuts[index] += is_cut
                    self._end_episode(index, job, is_cut)

    def _take_job(self, index: int) -> None:
        """Give an environment the next job, or none."""
        self.job[index] = job = self.waiting_jobs.popleft() if self.waiting_jobs else None
        if job is None:
            self.actors[index].count_steps(self.uncounted)
        else:
            column = STEPS if job.is_candidate else EVALUATION_STEPS
            self.actors[index] = job.players.actors[index]
            self.actors[index].count_steps(self.counted[column : column + 1])
            self._prepare(index, job)
            self.episode[index] = self.lengths[index] = self.cuts[index] = 0
            self.returns[index] = self.successes[index] = 0.0
            self._plan_episode(index, job)

    def _prepare(self, index: int, job: Job) -> None:
        """Prepare an environment's actor for a job."""
        players, actor, scalars = job.players, self.actors[index], job.scalars
        if self.begun[index] != scalars.ticket:
            begin_request(actor, players.needs, job.slot, scalars)
            self.begun[index] = scalars.ticket
        players.load_parameters(actor, job.slot, job.number, scalars.sigma)
        players.can_act[index] = True

    def _plan_episode(self, index: int, job: Job) -> None:
        slot, number, episode = job.slot, job.number, int(self.episode[index])
        if job.is_candidate:
            seed, key = int(slot.env_seed[number // 2, episode]), int(slot.action_key[number // 2, episode])
        else:
            seed, key = int(slot.eval_seed[number]), 0
        self.to_start[index] = _Start(seed, key, job)

    def _start_all(self) -> None:
        """Start an episode in every environment; one without a job gets the first job's seed."""
        first = next(iter(self.to_start.values()))
        self.first_seed = first.seed
        seed_global_random(first.seed % 2**32)
        with self.vector_env.whole_call():
            self.vector_env.reset([self.to_start.get(index, first).seed for index in range(self.vector_env.num_envs)])
        self._begin_episodes()

    def _begin_episodes(self) -> None:
        for index, start in self.to_start.items():
            actor, job = self.actors[index], start.job
            settings = job.scalars.episodes
            actor.begin_episode(start.key, settings.action_noise, settings.sample)
            counts = job.players.needs.normalize_obs and job.is_candidate
            actor.count_moments(counts)
            if counts and self.episode[index]:
                actor.observation_moments[:] = job.slot.moments[job.number]  # continue the sums of the last episode
            self.playing[index] = True
            self.total[index], self.length[index], self.limit[index] = 0.0, 0, settings.max_steps
        self.to_start.clear()

    def _end_episode(self, index: int, job: Job, is_cut: bool) -> None:
        actor, slot, number = self.actors[index], job.slot, job.number
        self.playing[index] = False
        self.returns[index] += self.total[index]
        info = self.vector_env.info(index)
        self.successes[index] += success_of(info)
        self.lengths[index] += self.length[index]
        if job.is_candidate:
            slot.masks[number] = has_mask(info)
            if slot.layout.info_bytes:
                timed_out = is_cut or self.vector_env.timed_out(index)
                write_info(slot.infos[number, self.episode[index]], info, self.spec.info_keywords, timed_out)
        self.episode[index] += 1
        episodes = job.scalars.episodes.per_candidate if job.is_candidate else 1
        if job.is_candidate:
            slot.moments[number] = actor.observation_moments
            actor.count_moments(False)
            if self.episode[index] < episodes:
                self._plan_episode(index, job)
                return
        slot.returns[number], slot.successes[number] = self.returns[index] / episodes, self.successes[index] / episodes
        slot.lengths[number], slot.cuts[number] = self.lengths[index], self.cuts[index]
        self._take_job(index)
