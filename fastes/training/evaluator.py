"""The use of a pool by one model: it is opened when a training needs it, and the environment is inspected only once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastes._core import Actor
from fastes.envs.closing import close_env
from fastes.envs.env_facts import EnvFacts, env_facts
from fastes.envs.source import Env, EnvSource, MissingEnv
from fastes.errors import WorkerError
from fastes.es.noise_table import window_size
from fastes.number_array import Float32, Int64
from fastes.policies.custom_policy import CustomSpec
from fastes.pools.pool import Pool, run_to_end
from fastes.rollout.batch import Batch, StepsPlayed
from fastes.rollout.env_calls import LEAVE_C, EnvCalls, made_on
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.job import PoolSpec, Request, TrainingNeeds, comparable
from fastes.rollout.job_runner import make_actor
from fastes.rollout.last_infos import ROOM
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.observations import ObservationReader
from fastes.settings.settings import Settings
from fastes.system.console import fill_standard_descriptors
from fastes.system.forks import register_for_forks
from fastes.training.archive import FINAL_EPISODES
from fastes.training.evaluation import Evaluation
from fastes.training.idle_pools import end_idle, used
from fastes.training.training import Training

_Result = TypeVar("_Result")
EPISODES_AT_ONCE = 1000  # noise-free episodes: more at a time would only take memory


class RunningEvaluation(NamedTuple):
    """An evaluation that plays beside its training.

    Attributes:
        number: The training's.
        theta: Its array; evaluations are told apart by its identity.
        ticket: The request's.
        request: The request.
    """

    number: int
    theta: Float32
    ticket: int
    request: Request


class PoolShare(NamedTuple):
    """A model's part of a pool that several models use.

    Attributes:
        first: Place of the model's first training in `trainings`.
        trainings: The needs of all models' trainings.
        models: How many models use the pool.
    """

    first: int
    trainings: tuple[TrainingNeeds, ...]
    models: int


class Evaluator:
    """Opens a model's pool when its trainings need it, and knows the environment that they play in.

    Args:
        source: Builds the environments.
        trainings: The model's, by the number of their trial, for what they need of a pool. `Trainer` replaces them when that
            may have changed; ones that have lost meanwhile do no harm.
        pool: The model's.
    """

    def __init__(self, source: EnvSource, trainings: Mapping[int, Training], pool: Pool) -> None:
        self.source, self.trainings = source, trainings
        if source.vector_env is not None:
            _check_for_vector_env(self._first.settings)
        self.pool = self._own_pool = pool
        self.in_use, self.uses, self.last_turn = threading.RLock(), 0, 0  # see idle_pools
        self.env_shown = False  # whether building the environment here has shown what it prints; workers are silent then
        self.seen: EnvFacts | None = None  # that environment: workers' have to have the same spaces
        self._info_bytes, self._info_keywords = 0, tuple[str, ...]()
        self._shared: PoolShare | None = None  # while `pool` is one that other models use, too
        self.running: list[RunningEvaluation] = []
        self.openings = 0  # of the pool: requests from before the last one are gone
        self._worker_cpu_seconds = 0.0  # of the requests that were collected
        self.has_differed = False  # whether noise-free episodes had other numbers in C than in Python
        self._places: dict[int, int] = {}  # of trainings in the pool that is open, by number
        register_for_forks(self)

    @property
    def _first(self) -> Training:
        return next(iter(self.trainings.values()))

    @property
    def env_calls(self) -> EnvCalls:
        """Calls that environments are given."""
        return self._first.env_calls

    def collect_infos(self, keywords: Sequence[str] = ()) -> None:
        """From the next `start` on, generations come with the infos of their episodes' last steps, these keys first."""
        self._info_bytes, self._info_keywords = ROOM, tuple(keywords)

    def collect_infos_like(self, other: Evaluator) -> None:
        """Let generations come with the infos that those of another evaluator come with."""
        self._info_bytes, self._info_keywords = other._info_bytes, other._info_keywords

    def pool_spec(self, training: bool = True) -> PoolSpec:
        """The needs of the trainings, for `Pool.open`; evaluation alone needs no noise table."""
        first = self._first
        return PoolSpec(
            source=self.source,
            trainings=self.needs(training),
            on_env_error=first.settings.on_env_error,
            step_timeout=first.settings.timeout(),
            worker_max_episodes=first.settings.worker_max_episodes,
            env_shown=self.env_shown,
            spaces=None if self.seen is None else comparable((self.seen.observation_space, self.seen.action_space)),
            evaluations_first=not first.settings.eval_lag,
            info_bytes=self._info_bytes if training else 0,
            info_keywords=self._info_keywords,
            native=str(first.settings.native),  # a bool has become a word
        )

    def needs(self, training: bool = True) -> tuple[TrainingNeeds, ...]:
        """The needs of each training. training: as of `needs_of`."""
        several = len(self.trainings) > 1
        return tuple(
            replace(self.needs_of(each, training), name=f"trial {number + 1}" if several else "")
            for number, each in self.trainings.items()
        )

    def needs_of(self, of: Training, training: bool = True) -> TrainingNeeds:
        """The needs of one training. training: whether its candidates play, and not noise-free episodes alone."""
        settings, table = of.settings, of.strategy.table
        return TrainingNeeds(
            policy=of.spec,
            num_pairs=settings.largest_population() // 2 if training else 0,
            episodes=settings.most_episodes(),
            num_evals=_room_for_evaluations(settings, training),
            normalize_obs=settings.normalize_obs,
            table_size=table.size if training else 0,
            table_seed=table.seed,
            sigma_each=training and of.strategy.has_sigma_per_parameter,
            window_size=window_size(settings.perturbed_fraction, of.spec.num_params) if training else 0,
            num_evaluations=(settings.evaluations_at_once() if training else 0) + 1,
            reference=of.reference,
        )

    def opened(self) -> Pool:
        """The pool, if it is open: `start` once per generation is enough."""
        return self.pool if self.pool.is_open else self.start()

    def place(self, number: int) -> int:
        """The place of a training among those that the pool is open for."""
        return self._places.get(number, 0)

    def start(self, training: bool = True) -> Pool:
        """Open the pool, or open it again if it was opened for less.

        Args:
            training: Whether candidates are to be played, and not noise-free episodes alone.
        """
        fill_standard_descriptors()
        if self._shared is not None:
            if not self.pool.is_open:
                self.pool.open(replace(self.pool_spec(), trainings=self._shared.trainings))
            return self.pool
        if self.pool.is_open and training:
            if not self.pool.spec.trainings[0].num_pairs:
                self.pool.close()
                self.running = []
            elif self.pool.spec.info_bytes < self._info_bytes:
                self.close()
        if not self.pool.is_open:
            if isinstance(self.source.factory, MissingEnv):
                self.source.factory()  # raises here, and not in every worker
            end_idle(self)
            self._places = {number: place for place, number in enumerate(self.trainings)}
            self.openings += 1
            self.pool.open(self.pool_spec(training))  # workers build their environments while the parent draws the noise table
        return self.pool

    def steps_played(self) -> StepsPlayed:
        """Steps of the pool; if it is shared, those of all trainings together."""
        return self.pool.steps_played()

    @property
    def is_shared(self) -> bool:
        """Whether other trainings use its pool, too."""
        return self._shared is not None

    def cpu_seconds(self) -> float:
        """CPU time of the model so far, in seconds: of the workers in its jobs, and of this process since it began.

        Models that share a pool also share this process, in equal parts.
        """
        return self._worker_cpu_seconds + time.process_time() / (1 if self._shared is None else self._shared.models)

    async def result(self, ticket: int) -> Batch:
        """Await a request's results."""
        batch = await self.pool.result(ticket)
        self._worker_cpu_seconds += batch.cpu_seconds
        return batch

    async def noise_free(self, ticket: int, request: Request) -> Batch:
        """Await the results of noise-free episodes; they play again, in Python, if a comparison finds other numbers in C."""
        batch = await self.result(ticket)
        if not batch.differs:
            return batch
        self.has_differed = True
        again = await self.result(self.opened().submit(request._replace(calls=(*request.calls, LEAVE_C))))
        return replace(again, differs=True)

    def look(self) -> EnvFacts:
        """The spaces and limits of the environment. One is built for that, and closed, unless one was before.

        Raises ValueError if it does not fit the policy.
        """
        if self.seen is None:
            env = self.source(self.own_number if self.pool.is_open or self.is_shared else 0)
            try:
                self.pool_spec(training=False).check_spaces(env)
                found = self.see(env)
            finally:
                close_env(env, self.source.name)
            self.env_shown = True
            return found
        return self.seen

    def see(self, env: Env) -> EnvFacts:
        """Remember the spaces and limits of an environment, and return them."""
        self.seen = env_facts(env, self._actor_in)
        return self.seen

    def _actor_in(self, env: Env) -> Actor | None:
        """The first training's actor for an environment; None for a policy in Python."""
        if isinstance(self._first.spec, CustomSpec):
            return None
        return make_actor(self.needs_of(self._first, False), ObservationReader(env.observation_space, lambda *_: None))

    @property
    def python_because(self) -> str:
        """Why its environments step in Python, in words; "" if they step in C."""
        if self._first.settings.native == "off":
            return "native = 'off'"
        if self.source.vector_env is not None:
            return "it is a vector environment"
        if self.env_calls.in_python:
            return "its version in C differed"
        return self.look().python_because[self._info_bytes > 0]

    def build(self, **extra: Any) -> Env:
        """An environment of this process, beside those that play, after the calls so far. extra: as of EnvSource."""
        return made_on(self.source(self.own_number, **extra), self.env_calls.sent())

    @property
    def own_number(self) -> int:
        """The number of an environment of this process; no other has it: a worker may have a spare process beside it."""
        return 0 if self.pool.is_remote else max(1, 2 * self.pool.n_workers)

    async def evaluate(
        self,
        theta: Float32,
        normalizer: ObsNormalizer,
        seeds: Int64,
        episodes: EpisodeSettings,
        number: int = 0,
        compared: bool = True,
    ) -> Evaluation:
        """Play noise-free episodes of a training's parameters, one for each environment seed.

        Args:
            theta: float32 (num_params,).
            normalizer: Its statistics normalise observations.
            seeds: Environment seeds, int64 (n,).
            episodes: Settings of the episodes.
            number: The training's.
            compared: See `Request`.
        """
        pool, returns, lengths, place = self.start(training=False), list[Any](), list[Any](), self.place(number)
        room, calls = pool.spec.trainings[place].num_evals, self.env_calls.sent()
        for at in range(0, len(seeds), room):
            part = seeds[at : at + room]
            request = Request(theta, normalizer, episodes, eval_seeds=part, training=place, calls=calls, compared=compared)
            batch = await self.noise_free(pool.submit(request), request)
            returns.append(batch.returns)
            lengths.append(batch.lengths)
        return Evaluation(np.concatenate(returns), np.concatenate(lengths), seeds)

    def run(self, training: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine that awaits the methods above, to its end."""
        with used(self):
            if self.uses == 1:  # else a callback of a training plays episodes in between
                self._forget_abandoned()
            return run_to_end(training)

    @property
    def has_pool(self) -> bool:
        """Whether it keeps a pool of its own open on this machine."""
        return self._has_own_open_pool and not self.pool.is_remote

    @property
    def _has_own_open_pool(self) -> bool:
        return self._shared is None and self.pool.is_open

    def _forget_abandoned(self) -> None:
        """Free the slots of requests that an exception left between submission and collection."""
        if self._has_own_open_pool and not self.pool.tickets() <= {each.ticket for each in self.running}:
            self.pool.forget()

    def forget_requests(self) -> None:
        """Drop the requests of trials that end where they are. Those in a shared pool stay until `collect_abandoned`."""
        self.running = []
        if self._has_own_open_pool:
            self.pool.forget()

    async def collect_abandoned(self) -> None:
        """Wait for requests in a shared pool that trials have left where they ended: what follows needs their slots."""
        if not self.is_shared or not self.pool.is_open:
            return
        own, awaited = set(self._places.values()), {each.ticket for each in self.running}
        abandoned = [each for each in self.pool.tickets() - awaited if self.pool.training_of(each) in own]
        for ticket in sorted(abandoned):
            with contextlib.suppress(WorkerError):
                await self.result(ticket)

    def share(self, pool: Pool, part: PoolShare) -> None:
        """Use a pool that other models use, too, until `unshare`."""
        self.close()
        self.pool, self._shared = pool, part
        self._places = {number: part.first + place for place, number in enumerate(self.trainings)}

    def unshare(self) -> None:
        """Use the model's own pool again."""
        self.close()
        self.pool, self._shared = self._own_pool, None

    def close(self) -> None:
        """Close the pool; the next call opens it anew. A pool that is shared stays open."""
        is_own, was_open = self._shared is None, self.pool.is_open
        self.running = []
        self.openings += not is_own  # the requests of a shared one are abandoned
        if was_open or not is_own:
            self._release_tables()
        if is_own:
            self.pool.close()

    def reset_after_fork(self) -> None:
        """In a forked copy: open the model's own pool anew, and draw the noise table into it."""
        self.running, self.pool, self._shared = [], self._own_pool, None
        self._release_tables()

    def _release_tables(self) -> None:
        for training in self.trainings.values():
            training.strategy.table.release()


def _check_for_vector_env(settings: Settings) -> None:
    """Raise ValueError for a setting that a vector environment cannot have."""
    if settings.on_env_error != "stop":
        raise ValueError(
            f"on_env_error = {settings.on_env_error!r} needs environments of FastES's own: an exception in a vector "
            "environment belongs to no single episode. Pass the environment's id, or a function that builds one, as env"
        )
    if settings.worker_max_episodes:
        raise ValueError(
            f"worker_max_episodes = {settings.worker_max_episodes!r} needs environments of FastES's own: a vector "
            "environment that was given is not built again. Pass the environment's id, or a function that builds one, as env"
        )
    if settings.native == "on":
        raise ValueError(
            "native = 'on' (or True): a vector environment does not step in C. Pass the environment's id, or a function "
            "that builds one, as env; native = 'auto' steps the vector environment in Python"
        )


def _room_for_evaluations(settings: Settings, training: bool) -> int:
    """Episodes per request. A generation's own come in one request; any others may come in parts, whose bits are the same."""
    final = FINAL_EPISODES if settings.archive_size else 0
    others = min(max(settings.eval_episodes, settings.target_episodes, final), EPISODES_AT_ONCE)
    return max(settings.eval_episodes, others) if training else others
