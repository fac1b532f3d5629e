"""A training's client of its pool: it makes requests and awaits their results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fastes.envs.closing import close_env
from fastes.envs.seen import Seen, look_at
from fastes.envs.source import Env, EnvSource, MissingEnv
from fastes.errors import WorkerError
from fastes.es.noise_table import NoiseTable
from fastes.es.parameter_windows import window_size
from fastes.es.perturbations import Perturbations
from fastes.es.strategy import EvolutionStrategy
from fastes.policies.choose_policy import AnySpec
from fastes.pools.ahead_pool import AheadPool
from fastes.pools.pool import Pool, run_trainings
from fastes.rollout.env_calls import EnvCalls, made_on
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.job import PoolSpec, Request, StepsPlayed, TrainingNeeds
from fastes.rollout.last_infos import ROOM
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.space_checks import check_spaces, comparable
from fastes.settings.settings import Settings
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.forks import tell_of_forks
from fastes.training.archive.snapshots import FINAL
from fastes.training.evaluation import Evaluation
from fastes.training.idle_pools import end_idle, used

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
_Result = TypeVar("_Result")
_PART = 1000  # noise-free episodes: more at a time would only take memory


class Shared(NamedTuple):
    """A training's part of a pool that several trainings use.

    Attributes:
        number: The training's, a position in `trainings`.
        trainings: The needs of all of them.
    """

    number: int
    trainings: tuple[TrainingNeeds, ...]


class Evaluator:
    """Plays a generation's candidates, and noise-free episodes of theta, on a pool, which it opens when it needs it.

    Args:
        source: Builds the environments.
        policy: The spec that theta belongs to.
        settings: The training's.
        table: The noise table, which moves into the pool's memory.
        pool: The model's.
        env_calls: Calls that environments are given; None for none.
    """

    def __init__(
        self,
        source: EnvSource,
        policy: AnySpec,
        settings: Settings,
        table: NoiseTable,
        pool: Pool,
        env_calls: EnvCalls | None = None,
    ) -> None:
        if source.vector_env is not None and settings.on_env_error != "stop":
            raise ValueError(
                f"on_env_error = {settings.on_env_error!r} needs environments of FastES's own: an exception in a vector "
                "environment belongs to no single episode. Pass the environment's id, or a function that builds one, as env"
            )
        if source.vector_env is not None and settings.worker_max_episodes:
            raise ValueError(
                f"worker_max_episodes = {settings.worker_max_episodes!r} needs environments of FastES's own: a vector "
                "environment that was given is not built anew. Pass the environment's id, or a function that builds one, as env"
            )
        self.source, self.policy, self.settings, self.table = source, policy, settings, table
        self.pool = self._own_pool = pool
        self.in_use, self.uses, self.last_turn = threading.RLock(), 0, 0  # see idle_pools
        self.env_calls = EnvCalls() if env_calls is None else env_calls
        self.env_shown = False  # whether building the environment here has shown what it prints; workers are silent then
        self.reference: npt.NDArray[Any] | None = None  # the reference batch of a policy that needs one
        self.seen: Seen | None = None  # that environment: workers' have to have the same spaces
        self._info_bytes, self._info_keywords = 0, tuple[str, ...]()
        self._shared: Shared | None = None  # while `pool` is one that other trainings use, too
        self._ahead: set[tuple[int, int]] = set()  # rounds and places of starts that play beside the present one, or did
        self._running: list[tuple[Float32, int]] = []  # thetas whose noise-free episodes are played, and the tickets
        tell_of_forks(self)

    def tell_infos(self, keywords: Sequence[str] = ()) -> None:
        """From the next `start` on, generations come with the infos of their episodes' last steps, these keys first."""
        self._info_bytes, self._info_keywords = ROOM, tuple(keywords)

    def pool_spec(self, training: bool = True) -> PoolSpec:
        """The needs of a training, for `Pool.open`; evaluation alone needs no noise table."""
        settings, ahead = self.settings, self._room_for_starts_ahead() if training else 0
        return PoolSpec(
            source=self.source,
            trainings=(self.needs(training, ahead),),
            on_env_error=settings.on_env_error,
            step_timeout=settings.timeout(),
            worker_max_episodes=settings.worker_max_episodes,
            env_shown=self.env_shown,
            spaces=None if self.seen is None else comparable((self.seen.observation_space, self.seen.action_space)),
            evaluations_first=not settings.eval_lag,
            info_bytes=self._info_bytes if training else 0,
            info_keywords=self._info_keywords,
        )

    def needs(self, training: bool = True, ahead: int = 0) -> TrainingNeeds:
        """The training's part of `pool_spec`. ahead: the number of starts that play at the same time."""
        settings = self.settings
        return TrainingNeeds(
            policy=self.policy,
            num_pairs=settings.largest_population() // 2 if training else 0,
            episodes=settings.most_episodes(),
            num_evals=self._room_for_evaluations(training),
            normalize_obs=settings.normalize_obs,
            table_size=self.table.size if training else 0,
            table_seed=self.table.seed,
            sigma_each=training and settings.sigma_adaptation == "per_parameter",
            window_size=window_size(settings.perturbed_fraction, self.policy.num_params) if training else 0,
            num_generations=1 + ahead,
            num_evaluations=((settings.evaluations_at_once() if training else 0) + 1) * (1 + ahead),
            reference=self.reference,
        )

    def _opened(self) -> Pool:
        """The pool, if it is open: `start` once per generation is enough."""
        return self.pool if self.pool.is_open else self.start()

    @property
    def _number(self) -> int:
        """The training's number on its pool."""
        return 0 if self._shared is None else self._shared.number

    def starts_ahead(self) -> int:
        """How many starts may play beside the present one: as many as have a worker for each of their candidates."""
        if self._shared is not None:
            return 0
        return max(0, min(self.settings.starts - 1, self.pool.n_workers // self.settings.largest_population()))

    def _room_for_starts_ahead(self) -> int:
        """Upper bound of `starts_ahead`, since a cluster may gain workers."""
        several = self.pool.is_remote and self._shared is None
        return self.settings.starts - 1 if several else self.starts_ahead()

    def play_ahead(self, part: tuple[int, int], play: Callable[[Evaluator], Coroutine[Any, Any, None]]) -> None:
        """Let a start play beside the present one, unless it does already.

        Args:
            part: The start's round, and its place in that.
            play: The start's work with an evaluator. When this evaluator makes the same requests, their results are there.
        """
        self.start()
        if isinstance(self.pool, AheadPool) and part not in self._ahead:
            self._ahead.add(part)

            def work(pool: Pool) -> Coroutine[Any, Any, None]:
                return play(Evaluator(self.source, self.policy, self.settings, self.table, pool, self.env_calls))

            self.pool.begin(work)

    def end_ahead(self) -> None:
        """No start is to come: those that play beside the present one end."""
        if isinstance(self.pool, AheadPool) and self._ahead:
            self.pool.drop()

    def _room_for_evaluations(self, training: bool) -> int:
        """Episodes at a time. A generation's own come in one request; any others may come in parts, whose bits are the same."""
        race = FINAL if self.settings.archive_size else 0
        others = min(max(self.settings.eval_episodes, self.settings.target_episodes, race), _PART)
        return max(self.settings.eval_episodes, others) if training else others

    def start(self, training: bool = True) -> Pool:
        """Open the pool, if it is not open for at least this.

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
                self._running = []
            elif self.pool.spec.info_bytes < self._info_bytes:
                self.close()
        if not self.pool.is_open:
            if isinstance(self.source.factory, MissingEnv):
                self.source.factory()  # raises here, and not in every worker
            end_idle(self)
            spec = self.pool_spec(training)
            self.pool = AheadPool(self._own_pool) if spec.trainings[0].num_generations > 1 else self._own_pool
            self.pool.open(spec)  # workers build their environments while the parent draws the noise table
        return self.pool

    def steps_played(self) -> StepsPlayed:
        """Steps of the pool; if it is shared, those of all trainings together."""
        return self.pool.steps_played()

    @property
    def is_shared(self) -> bool:
        """Whether other trainings use its pool, too."""
        return self._shared is not None

    def look(self) -> Seen:
        """The spaces and limits of the environment. One is built for that, and closed, unless one was before.

        Raises ValueError if it does not fit the policy.
        """
        if self.seen is None:
            env = self.source(self.own_number if self.pool.is_open or self.is_shared else 0)
            try:
                check_spaces(env, self.pool_spec(training=False))
                self.seen = look_at(env)
            finally:
                close_env(env, self.source.name)
            self.env_shown = True
        return self.seen

    def build(self, **extra: Any) -> Env:
        """An environment of this process, beside those that play, after the calls so far. extra: as of EnvSource."""
        return made_on(self.source(self.own_number, **extra), self.env_calls.sent())

    @property
    def own_number(self) -> int:
        """The number of an environment of this process; no other has it: a worker may have a spare process beside it."""
        return 0 if self.pool.is_remote else max(1, 2 * self.pool.n_workers)

    def begin_generation(
        self,
        perturbations: Perturbations,
        normalizer: ObsNormalizer,
        episodes: EpisodeSettings,
        strategy: EvolutionStrategy,
        first_pair: int = 0,
    ) -> int:
        """Submit a generation's candidates.

        Args:
            perturbations: All pairs of the generation.
            normalizer: Its statistics normalise observations.
            episodes: The candidates' settings.
            strategy: In the state that drew the perturbations.
            first_pair: Earlier calls have evaluated the pairs before it.

        Returns:
            The request's ticket.
        """
        pool, number = self.start(), self._number
        pool.place_table(self.table, number)
        request = Request(
            perturbations.theta,
            normalizer,
            episodes,
            perturbations,
            first_pair=first_pair,
            training=number,
            strategy=strategy,
            calls=self.env_calls.sent(),
        )
        return pool.submit(request)

    def begin_evaluation(
        self, theta: Float32, normalizer: ObsNormalizer, seeds: Int64, episodes: EpisodeSettings, generation: int, calls: int
    ) -> int:
        """Begin noise-free episodes of a generation's theta, one for each environment seed, unless they have begun.

        An evaluation is known by its theta, the very array, which is read-only.

        Args:
            theta: float32 (num_params,).
            normalizer: Its statistics normalise observations.
            seeds: Environment seeds, int64 (n,).
            episodes: Settings of the episodes.
            generation: The generation that theta is of.
            calls: How many of the training's calls the environments are given.

        Returns:
            The evaluation's ticket.
        """
        pool = self._opened()
        if (begun := self._begun(theta)) is not None:
            return begun
        its_calls = self.env_calls.sent(calls)
        asked = Request(
            theta, normalizer, episodes, eval_seeds=seeds, generation=generation, training=self._number, calls=its_calls
        )
        ticket = pool.submit(asked)
        self._running = [*(each for each in self._running if pool.knows(each[1])), (theta, ticket)]
        return ticket

    def has_begun(self, theta: Float32) -> bool:
        """Whether its noise-free episodes are played, or were, and wait to be asked for."""
        return self._begun(theta) is not None

    def _begun(self, theta: Float32) -> int | None:
        """The ticket of their evaluation."""
        pool = self._opened()
        known = (ticket for its, ticket in self._running if its is theta and pool.knows(ticket))  # an error may make it forget
        return next(known, None)

    async def finish_evaluation(
        self, theta: Float32, normalizer: ObsNormalizer, seeds: Int64, episodes: EpisodeSettings, generation: int, calls: int
    ) -> Evaluation:
        """The results of these episodes, which begin here if they have not."""
        ticket = self.begin_evaluation(theta, normalizer, seeds, episodes, generation, calls)
        batch = await self._opened().result(ticket)
        self._running = [each for each in self._running if each[1] != ticket]
        return Evaluation(batch.returns, batch.lengths, seeds)

    async def keep_evaluations(self, wanted: Sequence[Float32]) -> None:
        """Discard running evaluations of any other theta: a training that was changed meanwhile does not need them."""
        kept = [(theta, ticket) for theta, ticket in self._running if any(theta is one for one in wanted)]
        if len(kept) == len(self._running):
            return
        pool, over = self.start(), self._running
        self._running = kept
        for theta, ticket in over:
            if not any(theta is one for one in wanted) and pool.knows(ticket):
                with contextlib.suppress(WorkerError):
                    await pool.result(ticket)

    async def evaluate(self, theta: Float32, normalizer: ObsNormalizer, seeds: Int64, episodes: EpisodeSettings) -> Evaluation:
        """Noise-free episodes of theta, one for each environment seed."""
        pool, returns, lengths = self.start(training=False), [], []
        room = pool.spec.trainings[self._number].num_evals
        for at in range(0, len(seeds), room):
            part = seeds[at : at + room]
            calls = self.env_calls.sent()
            request = Request(theta, normalizer, episodes, eval_seeds=part, training=self._number, calls=calls)
            batch = await pool.play(request)
            returns.append(batch.returns)
            lengths.append(batch.lengths)
        return Evaluation(np.concatenate(returns), np.concatenate(lengths), seeds)

    def run(self, training: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine that awaits the methods above, to its end."""
        with used(self):
            self._forget_abandoned()
            try:
                (result,) = run_trainings(training)
            except BaseException:
                if isinstance(self.pool, AheadPool) and self._ahead:  # they begin anew
                    self._ahead.clear()
                    self.pool.forget()
                raise
            return result

    @property
    def has_pool(self) -> bool:
        """Whether it keeps a pool of its own open on this machine."""
        return self._shared is None and self.pool.is_open and not self.pool.is_remote

    def _forget_abandoned(self) -> None:
        """Free the slots of requests that nobody will collect: an exception came between their submission and collection."""
        own = self._shared is None and self.pool.is_open
        if own and not self.pool.tickets() <= {ticket for _, ticket in self._running}:
            self.pool.forget()

    def share(self, pool: Pool, part: Shared) -> None:
        """Use a pool that other trainings use, too, until `unshare`."""
        self.close()
        self.pool, self._shared = pool, part

    def unshare(self) -> None:
        """Use the model's own pool again."""
        self.close()
        self.pool, self._shared = self._own_pool, None

    def close(self) -> None:
        """Close the pool; the next call opens it anew. A pool that is shared stays open."""
        is_own, was_open = self._shared is None, self.pool.is_open
        self._running, self._ahead = [], set()
        if was_open or not is_own:
            self.table.release()
        if is_own:
            self.pool.close()

    def leave_to_parent(self) -> None:
        """In a forked copy: open the model's own pool anew, and draw the noise table into it."""
        self._running, self._ahead = [], set()
        self.pool, self._shared = self._own_pool, None
        self.table.release()
