"""Successive halving: several trainings side by side, of which the better half goes on after each rung, until one is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import Kinds, check_record, damaged, is_count, is_number_or_none
from fastes.es.perturbations import RUNG_DRAWS, draw_eval_seeds
from fastes.rollout.batch import Batch
from fastes.settings.recipes import for_few_generations
from fastes.settings.settings import MOST_RUNGS, MOST_TRIALS
from fastes.system.copies import shallow
from fastes.training.counters import Counters
from fastes.training.evaluation import Evaluation
from fastes.training.training import Training

TRIAL_EPISODES = 10  # noise-free episodes that score a trial after a rung
LEAST_GENERATIONS = 3  # of each recipe in the first rung of a race
MEASURING_FRACTION = 0.1  # of a race's budget that the first candidates may take, from which nothing is learned
_RETURN_WINDOW = 10  # generations that a running mean of returns remembers
_EVALUATION_WINDOW = 3  # that one of noise-free returns remembers: a single one may be of one episode
_STRIDE = 0x9E3779B97F4A7C15  # golden ratio of 2^64: seeds of trials that lie far from those of other runs


class Trial(NamedTuple):
    """One of the trainings.

    Attributes:
        number: From 0.
        training: Its present state.
        rung_timesteps: Steps that its candidates have made in the running rung.
        recipe: The name of its settings; '' if all trials have the same.
        recent_return: Running mean of the candidates' returns, to which each generation gives a tenth; -inf before the first.
            It ranks trials whose noise-free episodes are equally good, as where only actions drawn by chance find a reward.
        eval_return: Running mean of its noise-free evaluations, to which each gives a third; after a rung, the mean of the
            episodes that scored it. -inf before the first. A stop shows the trial in which it is the highest.
    """

    number: int
    training: Training
    rung_timesteps: int = 0
    recipe: str = ""
    recent_return: float = -math.inf
    eval_return: float = -math.inf

    def to_fields(self) -> dict[str, Any]:
        """JSON values for a checkpoint; the training has its own."""
        return {
            "number": self.number,
            "rung_timesteps": self.rung_timesteps,
            "recipe": self.recipe,
            "recent_return": self.recent_return if math.isfinite(self.recent_return) else None,
            "eval_return": self.eval_return if math.isfinite(self.eval_return) else None,
        }

    @classmethod
    def from_fields(cls, place: str, fields: object, training: Training) -> Trial:
        """The trial of `to_fields`; CheckpointError, which names the place in the checkpoint, if they cannot be one."""
        values = check_record(place, fields, _KINDS_OF_A_TRIAL, added={"eval_return": None})
        none = {name: -math.inf for name in ("recent_return", "eval_return") if values[name] is None}
        return cls(**{**values, "training": training, **none})


class Rung(NamedTuple):
    """The end of a rung. Trials and rungs count from 1.

    Attributes:
        number: Of the rung.
        of: How many rungs there are.
        scores: (trial, mean noise-free return) of each, the best first; of equal ones in their order.
        kept: How many of these go on.
        recipes: The name of each one's settings in the same order; () if all trials have the same.
        spread: Standard deviation over the episodes of the best one.
    """

    number: int
    of: int
    scores: tuple[tuple[int, float], ...]
    kept: int
    recipes: tuple[str, ...] = ()
    spread: float = 0.0

    @property
    def winner(self) -> int:
        """The trial that is left; 0 if several are."""
        return self.scores[0][0] if self.kept == 1 else 0


@dataclass(frozen=True, eq=False)
class Selection:
    """The trainings of a model: one, or several trials until successive halving has left one.

    Rungs have equal parts of fraction * budget, which the trials of each rung share evenly (Jamieson and Talwalkar 2016,
    arXiv 1502.07943). Each trial is a training with a seed, settings and a schedule of its own: what it learns depends on no
    other trial. Its budget is what it has if it wins: its parts of all rungs and the rest of the budget. After a rung each
    plays the same noise-free episodes, and the half with the better means goes on from its own state.

    Attributes:
        trials: Those that are left, the better in the last rung first.
        focus: Place among these of the trial that the model shows: the one that an event is of, after a stop the best.
        turn: Place of the one that made a generation last; the one after it is next.
        seed: Of the model; trial 0 has it, too.
        sizes: Trials in each rung.
        fraction: Share of the budget for all rungs.
        rung: The running one, from 0.
        budget: Steps of all trials together at which `learn` ends; 0 before the first.
        dropped: Tallies of the trials that are out.
        scoring_timesteps: Steps of the noise-free episodes that scored a race's rungs. They are part of num_timesteps, because
            a race has to fit in the budget.
        last_rung: The rung that ended last; None before.
    """

    trials: tuple[Trial, ...]
    seed: int
    sizes: tuple[int, ...] = (1,)
    fraction: float = 1.0
    focus: int = 0
    turn: int = 0
    rung: int = 0
    budget: int = 0
    dropped: Counters = Counters()
    scoring_timesteps: int = 0
    last_rung: Rung | None = None

    @classmethod
    def start(
        cls, trainings: Sequence[Training], seed: int, rungs: int, fraction: float, recipes: Sequence[str] = ()
    ) -> Selection:
        """A selection among new trainings, which may differ in any setting. recipes: their names if they do."""
        names = recipes or [""] * len(trainings)
        trials = tuple(
            Trial(number, training, recipe=name) for number, (training, name) in enumerate(zip(trainings, names, strict=True))
        )
        return cls(trials, seed, rung_sizes(len(trials), rungs), fraction)

    def _replace(self, **changes: Any) -> Selection:
        """A record with other values."""
        return shallow(self, **changes)

    @property
    def is_open(self) -> bool:
        """Whether several trials are left."""
        return len(self.trials) > 1

    @property
    def is_race(self) -> bool:
        """Whether the trials are recipes, also the winner that is left."""
        return bool(self.trials[0].recipe)

    @property
    def is_open_race(self) -> bool:
        """Whether several recipes may still win."""
        return self.is_open and self.is_race

    @property
    def is_new_race(self) -> bool:
        """Whether it is a race of recipes in which nothing was played yet."""
        is_begun = self.rung or self.num_timesteps or any(trial.training.generation for trial in self.trials)
        return self.is_open_race and not is_begun

    @property
    def present(self) -> Trial:
        """The trial that the model shows."""
        return self.trials[self.focus]

    @property
    def training(self) -> Training:
        """The training that the model shows."""
        return self.present.training

    @property
    def last(self) -> Trial:
        """The trial that made a generation last."""
        return self.trials[self.turn]

    def place_of(self, number: int) -> int:
        """Return the index in `trials` of the trial with this number."""
        return next(place for place, trial in enumerate(self.trials) if trial.number == number)

    # --- tallies ----------------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """The tallies of all trials together, with those that are out."""
        return self.counters_with(self.training)

    def counters_with(self, training: Training) -> Counters:
        """The tallies of all once the trial that is shown has this state."""
        total, shown = training.counters.plus(self.dropped), self.present
        for trial in self.trials:
            if trial is not shown:
                total = total.plus(trial.training.counters)
        return total._replace(num_timesteps=total.num_timesteps + self.scoring_timesteps, budget=self.budget)

    @property
    def num_timesteps(self) -> int:
        """Environment steps of all trials' candidates, and of a race's scoring episodes."""
        candidates = self.dropped.num_timesteps + sum(trial.training.counters.num_timesteps for trial in self.trials)
        return candidates + self.scoring_timesteps

    @property
    def steps_of_others(self) -> int:
        """Environment steps of all trials but the candidates' of the one that is shown."""
        return self.steps_beside(self.present)

    def steps_beside(self, trial: Trial) -> int:
        """Environment steps of all trials but the candidates' of this one."""
        return self.num_timesteps - trial.training.counters.num_timesteps

    def rung_budget(self, rung: int) -> float:
        """Steps that each trial has in a rung."""
        return self.fraction * self.budget / (len(self.sizes) * self.sizes[rung])

    def has_rung_budget(self, number: int) -> bool:
        """Whether a trial has steps left in the running rung."""
        trial = self.trials[self.place_of(number)]
        return trial.rung_timesteps < self.rung_budget(self.rung)

    def episodes_to_come(self) -> int:
        """Noise-free episodes that are to score trials, in this rung and in later ones."""
        if not self.is_open:
            return 0
        return TRIAL_EPISODES * (len(self.trials) + sum(self.sizes[self.rung + 1 :]))

    def seeds(self) -> npt.NDArray[np.int64]:
        """Environment seeds of the episodes that score the running rung, int64 (TRIAL_EPISODES,)."""
        return draw_eval_seeds(self.seed, RUNG_DRAWS - self.rung, TRIAL_EPISODES)

    # --- the next record --------------------------------------------------------------------------------------------

    def with_budget(self, timesteps: int, anew: bool) -> Selection:
        """The selection as `learn` begins.

        Args:
            timesteps: Steps to come, of all trials together; with 0 the schedules stay where they are.
            anew: Whether the steps so far count as none.
        """
        total = (0 if anew else self.num_timesteps) + timesteps
        budget = total if timesteps else min(self.budget or total, total)
        new = self._replace(budget=budget)
        if anew:
            new = new._replace(dropped=Counters(), scoring_timesteps=0)
        if anew or budget != self.budget:
            return new._with_own_budgets(timesteps, anew)

        def left(counters: Counters) -> int:  # towards the same end: each keeps its own
            return counters.budget - counters.num_timesteps

        return new._each(lambda training: training.with_budget(left(training.counters), anew=False))

    def _with_own_budgets(self, timesteps: int, anew: bool = False) -> Selection:
        """The selection whose trials share these steps to come."""
        trials = (
            trial._replace(training=trial.training.with_budget(self._own_timesteps(trial, timesteps), anew))
            for trial in self.trials
        )
        return self._replace(trials=tuple(trials))

    def _own_timesteps(self, trial: Trial, timesteps: int) -> int:
        """Steps that a trial has from now on if it wins."""
        if not self.is_open or not timesteps:
            return timesteps
        left = {each.number: self._rung_budget_left(each) for each in self.trials}
        later = range(self.rung + 1, len(self.sizes))
        rest = timesteps - sum(left.values()) - sum(self.rung_budget(rung) * self.sizes[rung] for rung in later)
        return max(1, math.ceil(left[trial.number] + sum(map(self.rung_budget, later)) + max(0.0, rest)))

    def _rung_budget_left(self, trial: Trial) -> float:
        """Steps that a trial has left in the running rung."""
        return max(0.0, self.rung_budget(self.rung) - trial.rung_timesteps)

    def focused(self, number: int) -> Selection:
        """The selection that shows the trial of this number."""
        place = self.place_of(number)
        return self if place == self.focus else self._replace(focus=place)

    def in_turn(self, number: int) -> Selection:
        """The selection that shows the trial of this number, which makes a generation."""
        return self.focused(number)._replace(turn=self.place_of(number))

    def showing_best(self) -> Selection:
        """The selection that shows the best trial so far."""
        return self.focused(min(self.trials, key=lambda trial: (-trial.eval_return, -trial.recent_return)).number)

    def with_training(self, training: Training, number: int | None = None) -> Selection:
        """The selection with another state of a training: of the trial of this number, or of the one that is shown."""
        place = self.focus if number is None else self.place_of(number)
        before = self.trials[place]
        played = training.counters.num_timesteps - before.training.counters.num_timesteps
        after = before._replace(training=training, rung_timesteps=before.rung_timesteps + played)
        if training.report is not None and training.report is not before.training.report:
            after = after._replace(
                recent_return=_running_mean(before.recent_return, training.report.record.return_mean, _RETURN_WINDOW)
            )
        known = {id(each) for each in before.training.latest_evaluations}
        for each in training.latest_evaluations:
            if id(each) not in known and not each.pending.already_reported:  # a stop has played it before its turn
                after = after._replace(eval_return=eval_return_after(after.eval_return, [each.evaluation.mean]))
        return self._replace(trials=(*self.trials[:place], after, *self.trials[place + 1 :]))

    def after_rung(self, scored: Mapping[int, Evaluation], is_last: bool) -> Selection:
        """The selection after a rung: the better trials go on from their own state.

        Args:
            scored: Each trial's noise-free episodes, by its number. The mean ranks it; of equal ones the one whose recent
                candidates were better goes on, then the first.
            is_last: Whether one alone goes on, as the budget is spent.
        """
        trials = self.trials if self.is_race else tuple(self._scored(trial, scored[trial.number]) for trial in self.trials)
        scores = {number: evaluation.mean for number, evaluation in scored.items()}
        ranked = sorted(trials, key=lambda trial: (-scores[trial.number], -trial.recent_return, trial.number))
        is_last = is_last or self.rung + 1 >= len(self.sizes)
        kept = 1 if is_last else self.sizes[self.rung + 1]
        new = self._without(ranked[kept:])._replace(
            trials=tuple(
                trial._replace(rung_timesteps=self._debt(trial), eval_return=scores[trial.number]) for trial in ranked[:kept]
            ),
            focus=0,
            turn=0,
            rung=min(self.rung + 1, len(self.sizes) - 1),
            last_rung=Rung(
                self.rung + 1,
                len(self.sizes),
                tuple((trial.number + 1, scores[trial.number]) for trial in ranked),
                kept,
                tuple(trial.recipe for trial in ranked) if self.is_race else (),
                scored[ranked[0].number].std,
            ),
        )
        if not self.is_race:
            return new
        steps = sum(evaluation.timesteps for evaluation in scored.values())
        new = new._replace(scoring_timesteps=self.scoring_timesteps + steps)
        return new._with_own_budgets(max(1, new.budget - new.num_timesteps))

    @staticmethod
    def _scored(trial: Trial, evaluation: Evaluation) -> Trial:
        counters = trial.training.counters.with_evaluation(evaluation.timesteps)
        return trial._replace(training=trial.training._replace(counters=counters))

    def trial_to_measure(self) -> Trial:
        """The trial of a new race whose candidates play first: one whose episodes no adaptive cap cuts, if there is one."""
        return next((trial for trial in self.trials if trial.training.cap is None), self.trials[0])

    def least_budget(self, count: int, length: float) -> float:
        """The least budget with which the first trials race: LEAST_GENERATIONS each in the first rung, on average.

        Trials have equal parts of a rung, so those with more episodes per generation have fewer generations.

        Args:
            count: The number of trials.
            length: Mean steps of a whole episode.
        """
        episodes = sum(trial.training.settings.first_episodes() for trial in self.trials[:count])
        return LEAST_GENERATIONS * episodes * length * len(rung_sizes(count, len(self.sizes))) / self.fraction

    def measured(self, batch: Batch, of: Trial) -> Selection:
        """The selection of a new race after the first candidates of one trial, from which nothing is learned.

        All trainings start with the statistics of these observations. The last recipes are left out if the budget is too small
        for them, assuming that all episodes are as long as these. Of the others, those for which the budget is only a few
        generations get their settings for that, as `for_few_generations` returns them.
        """
        length = float(batch.lengths.mean()) / batch.per_candidate
        count, rungs = len(self.trials), len(self.sizes)
        while count > 1 and self.budget < self.least_budget(count, length):
            count -= 1
        racing = [trial.training.settings for trial in self.trials]

        def after_measuring(trial: Trial) -> Trial:
            training = trial.training.with_observations(batch, of.training)
            generations = self.budget / (length * training.settings.first_episodes())
            changes = for_few_generations(trial.recipe, generations, racing)
            return trial._replace(training=training.with_settings(**changes) if changes else training)

        first, *others = map(after_measuring, self.trials[:count])
        first = first._replace(training=first.training._replace(counters=first.training.counters.with_warm_up(batch)))
        new = self._replace(trials=(first, *others), sizes=rung_sizes(count, rungs), focus=0, turn=0)
        return new._with_own_budgets(self.budget - new.num_timesteps)

    def _debt(self, trial: Trial) -> int:
        """Steps that a trial has made beyond the rung's budget. In a race they count in the next one: it keeps its share."""
        return max(0, trial.rung_timesteps - math.floor(self.rung_budget(self.rung))) if self.is_race else 0

    def with_winner(self, number: int | None = None) -> Selection:
        """The selection that one trial has won without a rung: it is solved, or was given parameters.

        The winner has the rest of the budget, with the steps that the others do not need.
        """
        winner = self.present if number is None else self.trials[self.place_of(number)]
        if not self.is_open:
            return self
        new = self._without([trial for trial in self.trials if trial is not winner])._replace(focus=0, turn=0)
        training = winner.training.with_budget(max(0, self.budget - self.num_timesteps), anew=False)
        return new._replace(trials=(winner._replace(training=training._replace(solved=winner.training.solved)),))

    def _without(self, trials: Sequence[Trial]) -> Selection:
        """The selection with the tallies of these trials among those that are out."""
        dropped = self.dropped
        for trial in trials:
            dropped = dropped.plus(trial.training.counters)
        return self._replace(dropped=dropped)

    def with_seed(self, seed: int) -> Selection:
        """The selection with the draws of another seed from now on."""
        trials = (t._replace(training=t.training.with_seed(trial_seed(seed, t.number))) for t in self.trials)
        return self._replace(trials=tuple(trials), seed=seed)

    def with_episode_limit(self, episode_limit: int | None) -> Selection:
        """The selection once the environment's own limit is known."""
        return self._each(lambda training: training.with_episode_limit(episode_limit))

    def in_new_env(self) -> Selection:
        """The selection with another environment from now on."""
        return self._each(Training.in_new_env)

    def with_num_timesteps(self, value: int) -> Selection:
        """The selection with another number of steps so far; the tally of the shown trial takes the difference first."""
        others = self.steps_of_others
        own = max(0, value - others)
        counters = self.training.counters._replace(num_timesteps=own)
        present = self.present._replace(training=self.training._replace(counters=counters))
        dropped = max(0, self.dropped.num_timesteps + value - others - own)
        trials = (*self.trials[: self.focus], present, *self.trials[self.focus + 1 :])
        return self._replace(trials=trials, dropped=self.dropped._replace(num_timesteps=dropped))

    def _each(self, change: Callable[[Training], Training]) -> Selection:
        return self._replace(trials=tuple(trial._replace(training=change(trial.training)) for trial in self.trials))

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def to_fields(self) -> dict[str, Any]:
        """JSON values for a checkpoint; the trainings have their own."""
        return {
            "budget": self.budget,
            "focus": self.focus,
            "turn": self.turn,
            "rung": self.rung,
            "sizes": list(self.sizes),
            "fraction": self.fraction,
            "dropped": self.dropped.to_fields(),
            "scoring_timesteps": self.scoring_timesteps,
            "trials": [trial.to_fields() for trial in self.trials],
        }

    @classmethod
    def from_fields(cls, place: str, fields: object, seed: int, trainings: Sequence[Training]) -> Selection:
        """The selection of `to_fields`.

        Args:
            place: The fields' place in the checkpoint, for messages.
            fields: JSON values.
            seed: The model's.
            trainings: One for each of the trials.

        Raises:
            CheckpointError: If the fields cannot be a selection, or contradict each other.
        """
        if isinstance(fields, dict):  # older files lack some
            fields = {"scoring_timesteps": 0, "turn": fields.get("focus"), **fields}
        values = check_record(place, fields, _KINDS)
        if len(values["trials"]) != len(trainings):
            raise damaged(f"{place}.trials", values["trials"])
        trials = tuple(
            Trial.from_fields(f"{place}.trials.{n}", own, training)
            for n, (own, training) in enumerate(zip(values["trials"], trainings, strict=True))
        )
        numbers, sizes = [trial.number for trial in trials], tuple(values["sizes"])
        if len(set(numbers)) != len(numbers) or max(numbers) >= sizes[0]:
            raise damaged(f"{place}.trials", values["trials"])
        for key, count in (("focus", len(numbers)), ("turn", len(numbers)), ("rung", len(sizes))):
            if values[key] >= count:
                raise damaged(f"{place}.{key}", values[key])
        if len(numbers) > 1 and len(numbers) != sizes[values["rung"]]:
            raise damaged(f"{place}.sizes", values["sizes"])
        return cls(
            trials=trials,
            seed=seed,
            sizes=sizes,
            fraction=values["fraction"],
            focus=values["focus"],
            turn=values["turn"],
            rung=values["rung"],
            budget=values["budget"],
            dropped=Counters.from_fields(f"{place}.dropped", values["dropped"]),
            scoring_timesteps=values["scoring_timesteps"],
        )


def rung_sizes(trials: int, rungs: int) -> tuple[int, ...]:
    """Trials in each rung: half of those before, rounded up. No rung has a single trial, unless there is only one."""
    sizes = [trials]
    while len(sizes) < rungs and sizes[-1] > 2:
        sizes.append(-(-sizes[-1] // 2))
    return tuple(sizes)


def trial_seed(seed: int, number: int) -> int:
    """The seed of a trial of a model with this seed; the first trial has the model's own."""
    return (seed + number * _STRIDE) % 2**63


def eval_return_after(before: float, means: Iterable[float]) -> float:
    """Return `Trial.eval_return` after further evaluations. before: -inf if there was none."""
    for mean in means:
        before = _running_mean(before, mean, _EVALUATION_WINDOW)
    return before


def _running_mean(mean: float, value: float, remembered: int) -> float:
    """Return a running mean with one more value, which counts 1 / remembered; one that is not finite changes nothing."""
    if not math.isfinite(value):
        return mean
    return mean + (value - mean) / remembered if math.isfinite(mean) else value


def _are_sizes(value: object) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_RUNGS:
        return False
    return all(is_count(size, low=1) and size <= MOST_TRIALS for size in value) and tuple(value) == rung_sizes(
        value[0], len(value)
    )


_KINDS: Kinds = {
    "budget": is_count,
    "focus": is_count,
    "turn": is_count,
    "rung": is_count,
    "sizes": _are_sizes,
    "fraction": lambda value: type(value) in (int, float) and 0.0 < value <= 1.0,
    "dropped": lambda value: isinstance(value, dict),
    "scoring_timesteps": is_count,
    "trials": lambda value: isinstance(value, list) and 0 < len(value) <= MOST_TRIALS,
}
_KINDS_OF_A_TRIAL: Kinds = {
    "number": is_count,
    "rung_timesteps": is_count,
    "recipe": lambda value: isinstance(value, str) and len(value) < 100,
    "recent_return": is_number_or_none,
    "eval_return": is_number_or_none,
}
