"""One training: what it has learned and counted, and how a generation leads from one state to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import Kinds, check_arrays, check_record, is_count, is_generation
from fastes.checkpoints.file_format import Arrays
from fastes.es.optimizers import MissingOptimizer
from fastes.es.perturbations import CONFIRMATION_DRAWS, FINAL_SELECTION_DRAWS, Perturbations, draw_eval_seeds
from fastes.es.strategy import EvolutionStrategy, Update
from fastes.policies.custom_policy import AnySpec
from fastes.rollout.batch import Batch
from fastes.rollout.env_calls import EnvCalls
from fastes.rollout.episode import STEP_GUARD, EpisodeSettings, usual_limit
from fastes.rollout.obs_normalizer import PREFIX, ObsNormalizer
from fastes.settings.settings import Settings
from fastes.system.copies import shallow
from fastes.training.adaptive_population import AdaptivePopulation
from fastes.training.archive import Archive, Snapshot
from fastes.training.checkpoint_room import check_room
from fastes.training.counters import Counters
from fastes.training.episode_cap import EpisodeCap
from fastes.training.evaluation import FinishedEvaluation, PendingEvaluation, pending_from_fields, pending_to_fields
from fastes.training.fitness import fitness_of
from fastes.training.record import Record, Report, report_of

_NO_RETURNS = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Training:
    """One search for a policy, as data: a record that is replaced as a whole and never changed.

    `tell` makes a new record, and its holder takes that by one assignment. So a generation is committed as a whole or not at
    all, whatever exception comes at whatever moment. Records share arrays, which are read-only.

    Attributes:
        settings: All settings.
        spec: The policy's layers and spaces.
        seed: Of all draws.
        episode_limit: Steps after which the environment itself ends an episode at the latest; None if none is known.
        reference: The reference batch of a policy that needs one, (n, *observation shape).
        env_calls: Calls that environments are given. All records share it: it only grows.
        strategy: Parameters, optimiser and sigma.
        normalizer: Statistics of observations.
        cap: The adaptive cap on training episodes; None if it is off.
        population: The adaptive population; None if it is off.
        archive: Snapshots of good parameters; None if it is off.
        pending: Evaluations that are not part of a generation's statistics yet, the oldest first.
        latest_evaluations: Those that came with the last generation and after it; without one, the last one before.
        counters: Tallies.
        solved: Whether the last generation proved theta solved.
        report: The last generation's statistics, None before the first.
    """

    # the task
    settings: Settings
    spec: AnySpec
    seed: int
    episode_limit: int | None
    reference: npt.NDArray[Any] | None
    env_calls: EnvCalls
    # the search
    strategy: EvolutionStrategy
    normalizer: ObsNormalizer
    # optional components
    cap: EpisodeCap | None
    population: AdaptivePopulation | None
    archive: Archive | None
    # evaluations
    pending: tuple[PendingEvaluation, ...] = ()
    latest_evaluations: tuple[FinishedEvaluation, ...] = ()
    # progress
    counters: Counters = field(default_factory=Counters)
    solved: bool = False
    report: Report | None = None

    @classmethod
    def start(
        cls,
        settings: Settings,
        spec: AnySpec,
        seed: int,
        episode_limit: int | None = None,
        reference: npt.NDArray[Any] | None = None,
        env_calls: EnvCalls | None = None,
    ) -> Training:
        """A training before its first generation. Raises ValueError if a checkpoint could not hold what it gathers."""
        strategy = EvolutionStrategy(
            spec.initial_theta(seed),
            seed=seed,
            episodes=settings.most_episodes(),
            table_size=settings.noise_table_size,
            keep_best=False,
            **settings.hyperparameters(),
        )
        new = cls(
            settings=settings,
            spec=spec,
            seed=seed,
            episode_limit=episode_limit,
            reference=reference,
            env_calls=EnvCalls() if env_calls is None else env_calls,
            strategy=strategy,
            normalizer=ObsNormalizer(spec.obs_size, settings.obs_clip, settings.obs_std_floor),
            cap=EpisodeCap.start(settings),
            population=AdaptivePopulation.start(settings),
            archive=Archive.start(settings),
        )
        check_room(settings, new.arrays)
        return new

    def _replace(self, **changes: Any) -> Training:
        """A record with other values."""
        return shallow(self, **changes)

    @property
    def generation(self) -> int:
        """Updates of theta so far."""
        return self.strategy.generation

    # --- the running generation -------------------------------------------------------------------------------------

    @property
    def progress_remaining(self) -> float:
        """When the running generation begins: from 1 (start) to 0 (end of the budget), for schedules."""
        return max(0.0, 1.0 - self.counters.num_timesteps / max(self.counters.budget, 1))

    def ask(self, num_pairs: int | None = None) -> Perturbations:
        """The running generation's perturbations: as many pairs as it begins with, or num_pairs."""
        return self.strategy.ask(self.progress_remaining, self.num_pairs if num_pairs is None else num_pairs)

    def draw_ahead(self) -> None:
        """Draw the next generation's pairs while this process has nothing else to do, as many as this one has."""
        self.strategy.draw_ahead(self.num_pairs)

    @property
    def num_pairs(self) -> int:
        """Pairs with which the running generation begins."""
        return self.strategy.num_pairs if self.population is None else self.population.num_pairs

    def needs_warm_up(self) -> bool:
        """Whether the first candidates play once only to start the statistics of observations."""
        settings, seen = self.settings, self.normalizer.count or self.normalizer.skipped
        wanted = settings.obs_warmup and settings.normalize_obs and self.spec.obs_size  # images have no statistics
        return bool(wanted and not seen and not self.generation)

    @property
    def cuts_endless_episodes(self) -> bool:
        """Whether neither a setting nor the environment has a limit, so that `usual_limit` ends an episode."""
        return self.episode_limit is None and self.settings.longest_episode() is None

    def longest_episode(self) -> int:
        """Steps after which every episode is cut, unless its environment has ended it before."""
        settings = self.settings
        if (limit := settings.longest_episode()) is not None:
            return limit
        usual = usual_limit(self.counters.budget, settings.population_size * settings.most_episodes())
        return min(STEP_GUARD, max(usual, (self.episode_limit or 0) + 1))

    def episode_settings(self) -> tuple[EpisodeSettings, EpisodeSettings]:
        """The settings of training episodes, and those of noise-free ones."""
        settings, limit = self.settings, self.longest_episode()
        training = EpisodeSettings(
            limit if self.cap is None else min(self.cap.steps, limit),
            settings.action_noise,
            settings.sample_actions,
            settings.episodes_at(self.progress_remaining),
        )
        return training, EpisodeSettings(limit)

    # --- evaluations ------------------------------------------------------------------------------------------------

    def eval_seeds(self, generation: int) -> npt.NDArray[np.int64]:
        """Environment seeds of a generation's evaluation, int64 (eval_episodes,)."""
        return draw_eval_seeds(self.seed, generation, self.settings.eval_episodes)

    def fresh_seeds(self, episodes: int) -> npt.NDArray[np.int64]:
        """Environment seeds that no training episode of this run has."""
        return draw_eval_seeds(self.seed, CONFIRMATION_DRAWS - self.generation, episodes)

    def final_seeds(self, episodes: int) -> npt.NDArray[np.int64]:
        """Environment seeds of a final selection that runs now."""
        return draw_eval_seeds(self.seed, (FINAL_SELECTION_DRAWS + self.generation) % 2**32, episodes)

    def to_evaluate(self) -> tuple[PendingEvaluation, ...]:
        """The thetas whose noise-free episodes play beside the running generation, its own among them."""
        return (*self.pending, *self._own_evaluation())

    def _own_evaluation(self) -> tuple[PendingEvaluation, ...]:
        """The running generation's evaluation, if it has one; its candidates' returns are not known yet."""
        generation, theta = self.generation, self.strategy.theta
        if generation % self.settings.eval_every or any(pending.theta is theta for pending in self.pending):
            return ()
        timesteps, calls = self.counters.num_timesteps, len(self.env_calls)
        return (PendingEvaluation(generation, timesteps, theta, self.normalizer, _NO_RETURNS, calls=calls),)

    def due(self, batch: Batch) -> tuple[tuple[PendingEvaluation, ...], tuple[PendingEvaluation, ...]]:
        """Once the running generation's candidates have played: the evaluations to be processed with it, and later ones."""
        pending = (*self.pending, *(each._replace(returns=batch.finite_returns) for each in self._own_evaluation()))
        count = sum(each.generation <= self.generation - self.settings.eval_lag for each in pending)
        return pending[:count], pending[count:]

    def present(self) -> Snapshot:
        """The parameters as they are now, without an evaluation."""
        return Snapshot(self.generation, self.counters.num_timesteps, math.nan, 0.0, 0, self.strategy.theta, self.normalizer)

    # --- the next record --------------------------------------------------------------------------------------------

    def with_budget(self, timesteps: int, anew: bool) -> Training:
        """The training as `learn` begins.

        Args:
            timesteps: Steps to come; with 0 or less the schedules stay where they are.
            anew: Whether the steps so far count as none.
        """
        counters, pending, archive = self.counters, self.pending, self.archive
        if anew:
            pending = tuple(each._replace(timesteps=0) for each in pending)
            archive = archive and archive.counted_anew(counters.num_timesteps)
            counters = Counters(best_eval_return=counters.best_eval_return)
        total = counters.num_timesteps + timesteps
        counters = counters._replace(budget=total if timesteps > 0 else min(counters.budget or total, total))
        new = self._replace(counters=counters, pending=pending, archive=archive, solved=False)
        if self.population is None:
            return new
        return new._replace(population=self.population.moved(self.progress_remaining, new.progress_remaining))

    def tell(self, batch: Batch, waiting: Sequence[PendingEvaluation]) -> tuple[Training, Update]:
        """The training after a generation from which theta learns.

        Args:
            batch: The results of its candidates.
            waiting: Evaluations that come with a later one; `after_evaluation` has processed those that come with this one.

        Raises:
            FastESError: If every candidate failed, or the step is not finite.
        """
        fitness = fitness_of(batch, self.settings, self.generation + 1, self.strategy.progress_remaining)
        strategy = shallow(self.strategy)
        update = strategy.tell(fitness)
        new = self._replace(
            strategy=strategy,
            normalizer=self._merged(batch) if self._collects_statistics() else self.normalizer,
            pending=tuple(waiting),
            counters=self.counters.with_candidates(batch),
            solved=False,
        )
        if self.cap is not None:
            new = new._replace(cap=self.cap.after(batch))
        if self.population is not None:
            new = new._replace(population=self.population.after(batch.lengths, new.progress_remaining))
        return new, update

    def _collects_statistics(self) -> bool:
        settings = self.settings
        return settings.normalize_obs and not 0 < settings.obs_freeze_after <= self.normalizer.count

    def _merged(self, batch: Batch) -> ObsNormalizer:
        normalizer = shallow(self.normalizer)
        normalizer.merge(batch.moments, batch.lengths.ravel())
        return normalizer

    def warmed_up(self, batch: Batch) -> Training:
        """The training with the observations and steps of candidates from which nothing was learned."""
        return self._replace(normalizer=self._merged(batch), counters=self.counters.with_warm_up(batch))

    def with_observations(self, batch: Batch, of: Training) -> Training:
        """The training with the observations of another one's candidates, if its statistics are of the same values."""
        same = of.spec.obs_size == self.spec.obs_size and of.settings.normalize_obs and self.settings.normalize_obs
        return self._replace(normalizer=self._merged(batch)) if same else self

    def with_settings(self, **changes: Any) -> Training:
        """The training with other hyper-parameters of the strategy, before its first generation."""
        settings = self.settings.changed(**changes)
        return self._replace(settings=settings, strategy=self.strategy.changed(**settings.hyperparameters()))

    def after_evaluation(self, finished: FinishedEvaluation) -> Training:
        """The training once an evaluation is known; one that was reported before counts no more."""
        if finished.pending.already_reported:
            return self
        evaluation, best = finished.evaluation, self.counters.best_eval_return
        counters = self.counters.with_evaluation(evaluation.timesteps)._replace(best_eval_return=max(evaluation.mean, best))
        archive = self.archive and self.archive.after(finished, counters.budget)
        return self._replace(counters=counters, archive=archive)

    def after_last_evaluation(self, finished: FinishedEvaluation) -> Training:
        """The training that ends before an evaluation is due: callbacks get it now, and statistics include it later."""
        waiting = (each._replace(already_reported=True) if each is finished.pending else each for each in self.pending)
        return self._replace(pending=tuple(waiting), latest_evaluations=(*self.latest_evaluations, finished))

    def as_evaluated(self, of: PendingEvaluation | Snapshot) -> Training:
        """The training with the parameters of an evaluation; other ones than the present get a new optimiser."""
        if of.theta is self.strategy.theta:
            return self._replace(pending=())
        return self._restarted_at(of.theta, of.normalizer)

    def _restarted_at(self, theta: npt.NDArray[np.float32], normalizer: ObsNormalizer) -> Training:
        """The training with these parameters, and an optimiser that has made no step."""
        strategy = shallow(self.strategy)
        strategy.restart(theta)
        return self._replace(strategy=strategy, normalizer=normalizer, pending=())

    def as_begun(self) -> Training:
        """The training with the parameters that its seed gives, and no statistics of observations; it keeps its tallies."""
        normalizer = ObsNormalizer(self.spec.obs_size, self.settings.obs_clip, self.settings.obs_std_floor)
        return self._restarted_at(self.spec.initial_theta(self.seed), normalizer)

    def solved_by(self, finished: FinishedEvaluation) -> tuple[Training, Update]:
        """The training after fresh episodes have confirmed an evaluation: it returns to the theta that was evaluated.

        A resumed training processes that evaluation first, so the same target is confirmed again.
        """
        new, generation = self.as_evaluated(finished.pending), self.generation - self.settings.eval_lag
        if finished.pending.theta is not self.strategy.theta:
            again = max(0, min(finished.pending.generation, generation))
            new = new._replace(pending=(finished.pending._replace(generation=again, already_reported=False),))
        return new._replace(solved=True), self.strategy.no_step()

    def after_final_selection(self, winner: Snapshot, timesteps: int) -> Training:
        """Return the training with the winner's parameters. timesteps: environment steps that the final selection played."""
        assert self.archive is not None
        new = self.as_evaluated(winner)
        return new._replace(
            pending=self.pending,
            archive=self.archive.after_final_selection(new.present()),
            counters=self.counters.with_evaluation(timesteps),
        )

    def reporting(self, record: Record, batch: Batch, finished: Sequence[FinishedEvaluation]) -> Training:
        """The training with a report of its last generation."""
        latest = tuple(finished) or self.latest_evaluations[-1:]
        return self._replace(report=report_of(record, batch), latest_evaluations=latest)

    def with_parameters(self, theta: npt.ArrayLike, normalizer: ObsNormalizer | None = None) -> Training:
        """The training with parameters that were not learned here: what is known of others is dropped.

        Args:
            theta: float32 (num_params,).
            normalizer: Other statistics of observations; None for the present ones.
        """
        strategy = shallow(self.strategy)
        strategy.theta = theta
        return self.in_new_env()._replace(strategy=strategy, normalizer=self.normalizer if normalizer is None else normalizer)

    def in_new_env(self) -> Training:
        """The training with another environment from now on: evaluations in the last one are dropped, scores stay."""
        return self._replace(pending=(), archive=self.archive and self.archive.emptied())

    def with_seed(self, seed: int) -> Training:
        """The training with the draws of another seed from now on; parameters stay."""
        strategy = shallow(self.strategy)
        strategy.reseed(seed)
        return self._replace(seed=seed, pending=(), strategy=strategy)

    def with_episode_limit(self, episode_limit: int | None) -> Training:
        """The training once the environment's own limit is known."""
        return self._replace(episode_limit=episode_limit)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """Copies of what was learned: the strategy's arrays and the normaliser's."""
        return {**self.strategy.state(), **self.normalizer.named_state()}

    def with_fewer_calls(self, fewer: int) -> Training:
        """The training without this many of the first calls of environments, which no pending evaluation needs."""
        return self._replace(pending=tuple(each._replace(calls=max(0, each.calls - fewer)) for each in self.pending))

    def to_fields(self) -> tuple[dict[str, Any], Arrays]:
        """JSON values and arrays for a checkpoint; settings, policy, reference batch and calls are the model's."""
        pending, pending_arrays = pending_to_fields(self.pending)
        fields: dict[str, Any] = {
            "seed": self.seed,
            "generation": self.generation,
            "counters": self.counters.to_fields(),
            "pending": pending,
            "episode_cap": self.cap and self.cap.to_fields(),
            "population": self.population and self.population.to_fields(),
            "archive": None,
        }
        arrays = {**self.arrays(), **_prefixed(_PENDING, pending_arrays)}
        if self.archive is not None:
            fields["archive"], archive_arrays = self.archive.to_fields()
            arrays |= _prefixed(_ARCHIVE, archive_arrays)
        return fields, arrays

    def from_fields(
        self, place: str, fields: object, arrays: Mapping[str, npt.NDArray[Any]], sigma_factor: float = 1.0
    ) -> Training:
        """The training of `to_fields`. This one, which is new, has the settings and says which arrays fit.

        Args:
            place: The fields' place in the checkpoint, for messages.
            fields: JSON values.
            arrays: The arrays beside them.
            sigma_factor: Today's setting of a sigma that adapts, divided by the file's: sigmas keep their proportion to it.

        Raises:
            CheckpointError: If a field or an array does not fit.
        """
        values = check_record(place, fields, _KINDS)
        pending, rest = _taken(_PENDING, arrays)
        archive, rest = _taken(_ARCHIVE, rest)
        like = self.arrays()
        if isinstance(self.strategy.optimizer, MissingOptimizer):  # nothing says which arrays it had
            like |= {name: array for name, array in rest.items() if name.startswith("optimizer.")}
        check_arrays(place, rest, like)
        if sigma_factor != 1.0 and "sigma" in rest:
            with np.errstate(over="ignore"):  # they end within the bounds of today's
                rest = {**rest, "sigma": rest["sigma"] * sigma_factor}
        strategy, own = shallow(self.strategy), {n: x for n, x in rest.items() if not n.startswith(PREFIX)}
        strategy.load_state(own, values["generation"])
        strategy.reseed(values["seed"])
        normalizer = self.normalizer.like({name: rest[f"{PREFIX}{name}"] for name in self.normalizer.state()})
        policy = normalizer, strategy.theta
        new = self._replace(
            seed=values["seed"],
            strategy=strategy,
            normalizer=normalizer,
            pending=pending_from_fields(f"{place}.pending", values["pending"], pending, *policy),
            counters=Counters.from_fields(f"{place}.counters", values["counters"]),
        )
        if values["archive"] is not None or archive:
            room = self.archive or Archive(1)
            found = room.from_fields(f"{place}.archive", values["archive"], archive, *policy)
            new = new._replace(archive=self.archive and found)
        if self.cap is not None and values["episode_cap"] is not None:
            new = new._replace(cap=self.cap.from_fields(values["episode_cap"]))
        if self.population is not None and values["population"] is not None:
            new = new._replace(population=self.population.from_fields(values["population"]))
        return new


_PENDING, _ARCHIVE = "pending.", "archive."  # of names of arrays
_KINDS: Kinds = {
    "seed": lambda value: type(value) is int and 0 <= value < 2**63,
    "generation": is_generation,
    "counters": lambda value: isinstance(value, dict),
    "pending": lambda value: isinstance(value, list),
    "episode_cap": lambda value: value is None or is_count(value, low=1),
    "population": lambda value: value is None or is_count(value, low=1),
    "archive": lambda value: value is None or isinstance(value, dict),
}


def _prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _taken(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Arrays, Arrays]:
    """The arrays whose names have a prefix, without it, and the others."""
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return own, {name: array for name, array in arrays.items() if not name.startswith(prefix)}
