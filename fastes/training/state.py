"""The state of one training: everything that a checkpoint holds, and how a generation leads from one state to the next."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.file_format import Arrays
from fastes.es.perturbations import Perturbations, draw_eval_seeds
from fastes.es.strategy import EvolutionStrategy, Update
from fastes.policies.choose_policy import AnySpec
from fastes.rollout.env_calls import EnvCalls
from fastes.rollout.episode import STEP_GUARD, EpisodeSettings, usual_limit
from fastes.rollout.job import Batch
from fastes.rollout.obs_normalizer import PREFIX, ObsNormalizer
from fastes.settings.settings import Settings
from fastes.training.archive.checkpoint_room import check_room
from fastes.training.archive.snapshots import FINAL, HEAT, Archive, Snapshot
from fastes.training.counters import Counters
from fastes.training.episode_cap import EpisodeCap
from fastes.training.evaluation import Evaluation, Pending, Told
from fastes.training.fitness import fitness_of
from fastes.training.population import Population
from fastes.training.record import Record, Report, report_of
from fastes.training.starts.parts import Start, usual_parts
from fastes.training.starts.starts import Starts

_Part = TypeVar("_Part")
_NO_RETURNS = np.zeros(0)
_RACES = 2**31 + 1  # in the place of a generation, behind the one that judges starts: no other episodes have these seeds
_PARTS = ("strategy", "normalizer", "cap", "population", "starts", "archive")  # what a generation changes


class TrainingState:
    """What one training has learned and counted.

    A state is replaced and not changed: `updated` gives a new one, and whoever holds it takes that by one assignment. So a
    generation is booked as a whole or not at all, whatever exception comes at whatever moment. Both states share arrays, which
    nobody writes to.

    settings: what was set; from where several starts begin on, with the present one's alternatives.
    spec: the policy's.
    seed: of all draws.
    episode_limit: steps after which the environment itself ends an episode at the latest; None where none are known of.
    strategy, normalizer, cap, population, starts, archive: the parts that a generation changes.
    pending: evaluations that are not part of a generation's statistics yet, the oldest first.
    told_last: the evaluations that were told with the last generation and after it; the one before where there is none.
    counters: tallies.
    solved: whether the last generation proved theta solved.
    report: of the last generation, None before the first.
    is_reported: whether callbacks were told of it.
    reference: the reference batch of a policy that needs one, (n, *observation shape), drawn once and never replaced.
    """

    def __init__(self, settings: Settings, spec: AnySpec, seed: int, episode_limit: int | None = None) -> None:
        self.settings, self.spec, self.seed, self.episode_limit = settings, spec, seed, episode_limit
        self.strategy = EvolutionStrategy(
            spec.initial_theta(seed),
            seed=seed,
            episodes=settings.most_episodes(),
            table_size=settings.noise_table_size,
            keep_best=False,
            **settings.hyperparameters(),
        )
        self.normalizer = ObsNormalizer(spec.obs_size, settings.obs_clip, settings.obs_std_floor)
        self.cap = EpisodeCap(settings)
        self.population = Population(settings)
        self.starts = Starts(settings, spec, seed, episode_limit)
        self.archive = Archive(settings)
        check_room(settings, self.arrays)
        self.pending: tuple[Pending, ...] = ()
        self.told_last: tuple[Told, ...] = ()
        self.counters = Counters()
        self.solved = False
        self.report: Report | None = None
        self.is_reported = True
        self.reference: npt.NDArray[Any] | None = None
        self.env_calls = EnvCalls()  # shared by all states that follow: nothing takes a call back

    def copied(self) -> TrainingState:
        """A state whose parts can be changed without changing this one's."""
        new = _shallow(self)
        for name in _PARTS:
            setattr(new, name, _shallow(getattr(self, name)))
        return new

    def counting(self, **counters: Any) -> TrainingState:
        """This state with other counters."""
        new = _shallow(self)
        new.counters = self.counters._replace(**counters)
        return new

    def limited(self, episode_limit: int | None) -> TrainingState:
        """This state once the environment's own limit is known."""
        new = _shallow(self)
        new.episode_limit = episode_limit
        return new

    def begun(self, budget: int, anew: bool) -> TrainingState:
        """As `learn` begins: with so many timesteps to come, and with anew none behind.

        With none to come the schedules stay where they are: only a start is left to be judged.
        """
        new, counters = self.copied(), self.counters
        if anew:
            new.starts.begun_at -= counters.num_timesteps
            new.archive.count_anew(counters.num_timesteps)
            counters = Counters(best_eval_return=counters.best_eval_return, draws_ahead=counters.draws_ahead)
            new.pending = tuple(pending._replace(timesteps=0) for pending in self.pending)
        total = counters.num_timesteps + budget
        new.counters = counters._replace(budget=total if budget else min(counters.budget or total, total))
        if self.strategy.generation:
            new.starts.follow(self.counters.budget, new.counters.budget)
        elif new.starts.has_unjudged_starts and new.counters.budget:
            new.starts.strides = usual_parts(self.settings, new.counters.budget, self.starts.episode_limit)
            if self.settings.of_start(0) != self.settings:
                new._begin_start()
        new.population.move(self.progress_remaining, new.progress_remaining)
        new.solved, new.is_reported = False, True
        return new

    # --- the running generation -------------------------------------------------------------------------------------

    @property
    def cuts_endless_episodes(self) -> bool:
        """Whether neither a setting nor the environment has a limit, so that `usual_limit` is what ends an episode."""
        return self.episode_limit is None and self.settings.longest_episode() is None

    @property
    def progress_remaining(self) -> float:
        """When the running generation begins: from 1 (start) to 0 (end of the budget), for schedules."""
        timesteps, budget = self.counters.num_timesteps, self.counters.budget
        reached = self.starts.reached(timesteps)
        if reached != timesteps:  # whole generations of starts may lie beyond the budget; what remains is never nothing
            reached = min(reached, budget - 1)
        return max(0.0, 1.0 - reached / max(budget, 1))

    def perturbations(self, num_pairs: int | None = None) -> Perturbations:
        """The running generation's, as many as it begins with or num_pairs; schedules run towards the budget."""
        count = self.population.num_pairs if num_pairs is None else num_pairs
        return self.strategy.ask(self.progress_remaining, count, self.drawn_as(self.strategy.generation))

    def drawn_as(self, generation: int) -> int:
        """The number that a generation is drawn with."""
        return self.starts.drawn_as(generation + self.counters.draws_ahead)

    def draw_ahead(self) -> None:
        """Draw the next generation's pairs while nothing else is to be done, as many as this one has."""
        self.strategy.draw_ahead(self.population.num_pairs, self.drawn_as(self.strategy.generation + 1))

    def eval_seeds(self, drawn_as: int) -> npt.NDArray[np.int64]:
        """Environment seeds of a generation's noise-free evaluation."""
        return draw_eval_seeds(self.seed, drawn_as, self.settings.eval_episodes)

    def to_evaluate(self) -> tuple[Pending, ...]:
        """The thetas whose noise-free episodes play beside the running generation, its own among them."""
        return (*self.pending, *self._own_evaluation())

    def _own_evaluation(self) -> tuple[Pending, ...]:
        """That of the running generation, where it has one; its candidates' returns are not known yet."""
        generation = self.strategy.generation
        if generation % self.settings.eval_every or any(pending.theta is self.strategy.theta for pending in self.pending):
            return ()
        drawn_as, timesteps = self.drawn_as(generation), self.counters.num_timesteps
        calls = len(self.env_calls)
        return (Pending(generation, drawn_as, timesteps, self.strategy.theta, self.normalizer, _NO_RETURNS, calls=calls),)

    def due(self, batch: Batch) -> tuple[tuple[Pending, ...], tuple[Pending, ...]]:
        """Once the running generation's candidates are played: the evaluations to be told with it, and those that wait on."""
        finite = batch.returns[np.isfinite(batch.returns)]
        own = [each._replace(returns=finite) for each in self._own_evaluation()]
        pending = (*self.pending, *own)
        told = sum(each.generation <= self.strategy.generation - self.settings.eval_lag for each in pending)
        return pending[:told], pending[told:]

    def fresh_seeds(self, episodes: int) -> npt.NDArray[np.int64]:
        """Environment seeds that no training episode of this run has."""
        return draw_eval_seeds(self.seed, 2**32 - 1 - self.strategy.generation, episodes)

    def race_seeds(self) -> npt.NDArray[np.int64]:
        """Environment seeds of a race that is run now: those of its heat, and then of its final."""
        return draw_eval_seeds(self.seed, (_RACES + self.strategy.generation) % 2**32, HEAT + FINAL)

    def present(self) -> Snapshot:
        """The parameters as they are now, of which no evaluation was told."""
        generation, timesteps = self.strategy.generation, self.counters.num_timesteps
        own = self.settings.alternatives()
        return Snapshot(generation, timesteps, math.nan, 0.0, 0, own, self.strategy.theta, self.normalizer)

    def episode_settings(self) -> tuple[EpisodeSettings, EpisodeSettings]:
        """Those of training episodes, and of noise-free ones."""
        settings, remaining = self.settings, self.progress_remaining
        limit = self.longest_episode()
        how = settings.action_noise, settings.sample_actions, settings.episodes_at(remaining)
        training = EpisodeSettings(min(self.cap.steps, limit), *how)
        return training, EpisodeSettings(limit)

    def longest_episode(self) -> int:
        """Steps after which every episode is cut, if its environment has not ended it before."""
        settings = self.settings
        if (limit := settings.longest_episode()) is not None:
            return limit
        usual = usual_limit(self.counters.budget, settings.population_size * settings.most_episodes())
        return min(STEP_GUARD, max(usual, (self.episode_limit or 0) + 1))

    # --- the next state ---------------------------------------------------------------------------------------------

    def warmed_up(self, batch: Batch) -> TrainingState:
        """With the observations and steps of candidates that nothing was learned from."""
        new = self.copied()
        new.normalizer.merge(batch.moments, batch.lengths.ravel())
        new.counters = self.counters.with_warm_up(batch)
        return new

    def told(self, told: Told) -> TrainingState:
        """Once an evaluation is known; one that was told before counts no more."""
        if told.pending.is_told:
            return self
        evaluation = told.evaluation
        best = evaluation.mean if evaluation.mean > -math.inf else self.counters.best_eval_return
        new = self.counting(
            eval_timesteps=self.counters.eval_timesteps + evaluation.timesteps,
            best_eval_return=max(best, self.counters.best_eval_return),
        )
        if self.archive.size:
            new.archive = _shallow(self.archive)
            own = told.pending.alternatives or self.settings.alternatives()
            new.archive.note(told._replace(pending=told.pending._replace(alternatives=own)), self.counters.budget)
        return new

    def updated(self, batch: Batch, waiting: Sequence[Pending]) -> tuple[TrainingState, Update]:
        """After a generation that theta learns from. waiting: evaluations that will be told later."""
        new, settings = self.copied(), self.settings
        fitness = fitness_of(batch, settings, self.strategy.generation + 1, self.strategy.progress_remaining)
        update = new.strategy.tell(fitness)
        if self._collects_statistics():
            new.normalizer.merge(batch.moments, batch.lengths.ravel())
        new.cap.update(int(batch.lengths.sum()), int(batch.cuts.sum()), batch.returns.size * batch.per_candidate)
        new.pending = tuple(waiting)
        new.counters = self.counters.with_candidates(batch)
        new.population.update(batch.lengths, new.progress_remaining)
        new.solved = False
        return new, update

    def ended(self, told: Told) -> TrainingState:
        """When a training ends before the turn of an evaluation: that is told now, and waits to be part of statistics."""
        new = copy.copy(self)
        new.pending = tuple(each._replace(is_told=True) if each is told.pending else each for each in self.pending)
        new.told_last = (*self.told_last, told)
        return new

    def as_evaluated(self, of: Pending | Snapshot) -> TrainingState:
        """With the parameters that an evaluation is of, and an optimiser that knows of no step."""
        new = self.copied()
        new.pending = ()
        new._differ(of.alternatives)
        if of.theta is not self.strategy.theta:
            new.strategy.restart(of.theta)
            new.normalizer = copy.copy(of.normalizer)
        return new

    def raced(self, winner: Snapshot, timesteps: int) -> TrainingState:
        """After a race of so many timesteps: with the winner's parameters. Where these are the present ones, all stays."""
        new, counters = self.as_evaluated(winner), self.counters
        new.pending = self.pending
        if winner.theta is not self.strategy.theta:
            new.pending = self._left_behind()
        new.archive.end_race(new.present())
        new.counters = counters._replace(eval_timesteps=counters.eval_timesteps + timesteps)
        return new

    def finished(self, told: Told) -> tuple[TrainingState, Update]:
        """After a theta was proved solved: training goes back to it, learns no more, and no other start is wanted.

        Should it go on one day, that evaluation is told first, and the proof is the same, as long as the target is.
        """
        new, generation = self.as_evaluated(told.pending), self.strategy.generation - self.settings.eval_lag
        if told.pending.theta is not self.strategy.theta:
            new.pending = (told.pending._replace(generation=max(0, min(told.pending.generation, generation)), is_told=False),)
        new.starts.end()
        new._note_draws(self.starts)
        new.solved = True
        return new, self.strategy.no_step()

    def judged(self, evaluation: Evaluation) -> TrainingState:
        """After the present start was judged: with the next one's beginning, or with one that goes on as it was."""
        new, starts = self.copied(), self.starts
        new.counters = counters = self.counters._replace(eval_timesteps=self.counters.eval_timesteps + evaluation.timesteps)
        new.pending = self._left_behind()
        learned = self.cap.steps, self.population.first, self.settings.alternatives(), self.arrays()
        judged = Start(starts.running, starts.score(evaluation), *learned)
        new._begin_part(new.starts.judge(judged, counters.num_timesteps < counters.budget))
        new._note_draws(starts)
        return new

    def _note_draws(self, before: Starts) -> None:
        """Where one start is left of those before, what comes is drawn with numbers that none of them had."""
        if not self.starts.has_unjudged_starts:
            ahead = before.drawn(self.strategy.generation) - self.strategy.generation
            self.counters = self.counters._replace(draws_ahead=max(self.counters.draws_ahead, ahead))

    def _left_behind(self) -> tuple[Pending, ...]:
        """The evaluations that wait, where training goes on from other parameters, whose settings may be others."""
        own = self.settings.alternatives()
        return tuple(each._replace(alternatives=each.alternatives or own) for each in self.pending)

    def start_ahead(self, number: int) -> TrainingState:
        """What this training will be when a later start of the round begins, but for what only callbacks are told.

        number: of its place in the round, from 0.
        """
        new = self.copied()
        new.pending = ()
        new._begin_part(new.starts.advance(number - self.starts.judged))
        return new

    def _begin_part(self, start: Start | None) -> None:
        """A start goes on as it was, or the present one begins from scratch.

        The generation goes on counting, and what is drawn depends on the part alone.
        """
        self.starts.begun_at = self.counters.num_timesteps
        self.starts.begun_generation = self.archive.begun = generation = self.strategy.generation
        if start is None:
            self._begin_start()
            return
        self._differ(start.alternatives)
        self._load_arrays(start.arrays, generation)
        self.cap.resume(start.episode_cap)
        self.population.resume(start.first_blocks)

    def _begin_start(self) -> None:
        """From scratch, with its own settings."""
        self._differ(self.settings.of_start(self.starts.running).alternatives())
        self.strategy.restart(self.starts.initial_theta(self.spec, self.seed))
        self.normalizer.load_state(ObsNormalizer(self.spec.obs_size).state())
        self.cap, self.population = EpisodeCap(self.settings), Population(self.settings)

    def _differ(self, alternatives: Mapping[str, Any]) -> None:
        """Have a start's values of the settings in which starts differ; the optimiser knows of no step then."""
        if any(getattr(self.settings, name) != value for name, value in alternatives.items()):
            self.settings = self.settings.changed(**alternatives)
            self.strategy = self.strategy.changed(**self.settings.hyperparameters())
            self.normalizer.clip, self.normalizer.std_floor = self.settings.obs_clip, self.settings.obs_std_floor

    def arrays(self) -> Arrays:
        """Copies of what was learned: the strategy's arrays and the normaliser's."""
        return {**self.strategy.state(), **self.normalizer.named_state()}

    def _load_arrays(self, arrays: Arrays, generation: int) -> None:
        """Those of `arrays`."""
        self.strategy.load_state({n: x for n, x in arrays.items() if not n.startswith(PREFIX)}, generation)
        self.normalizer.load_state({name: arrays[f"{PREFIX}{name}"] for name in self.normalizer.state()})

    def reporting(self, record: Record, batch: Batch, told: Sequence[Told]) -> TrainingState:
        """With a report of its last generation, which callbacks are still to be told of."""
        new = _shallow(self)
        new.report, new.is_reported = report_of(record, batch), False
        new.told_last = tuple(told) or self.told_last[-1:]
        return new

    def reported(self) -> TrainingState:
        """Callbacks were told."""
        new = _shallow(self)
        new.is_reported = True
        return new

    def given(self, theta: npt.ArrayLike, normalizer: ObsNormalizer | None = None) -> TrainingState:
        """With parameters (num_params,) that were not learned here: what is known of others is forgotten.

        normalizer: with other statistics of observations; None for the present ones.
        """
        new = self.copied()
        new.strategy.theta = theta
        new.normalizer = new.normalizer if normalizer is None else normalizer
        new.starts.end()
        new._note_draws(self.starts)
        new.archive.forget()
        new.pending = ()
        return new

    def in_new_env(self) -> TrainingState:
        """With another environment from now on: what evaluations in the last one gave is forgotten, but for scores."""
        new = self.copied()
        new.archive.forget()
        new.pending = ()
        return new

    def reseeded(self, seed: int) -> TrainingState:
        """With the draws of another seed from now on; parameters stay."""
        new = self.copied()
        new.seed, new.pending = seed, ()
        new.strategy.reseed(seed)
        return new

    def _collects_statistics(self) -> bool:
        settings = self.settings
        return settings.normalize_obs and not 0 < settings.obs_freeze_after <= self.normalizer.count


def _shallow(part: _Part) -> _Part:
    """A copy that shares what it holds, as copy.copy makes one, which takes pickle's way there and several times as long."""
    new = object.__new__(type(part))
    vars(new).update(vars(part))
    return new
