"""Warnings of odd statistics."""

from __future__ import annotations

import math

import numpy as np

from fastes.errors import warn_user
from fastes.es.portable_math import mean_and_std
from fastes.reports.returns_over_budget import ReturnsOverBudget
from fastes.rollout.batch import Batch
from fastes.rollout.obs_normalizer import number_skipped
from fastes.system.digits import number_in_words
from fastes.training.evaluation import FinishedEvaluation
from fastes.training.record import Record
from fastes.training.training import Training

UNBEATEN, _EQUAL, _SHORT, _DRAWN = 50, 20, 20, 20  # generations in a row
_AT_ONCE, _LONG = 2.0, 10.0  # mean steps of episodes that end at once, and of such that do not
_OF_ENV = ("steps", "observations")  # kinds of warnings
_DRAWING = "sample_actions"  # in their place: that a training has drawn actions, so that no other is told to
_HIDES = 0.7  # of the spread of candidates, which has the same noise in it: then half of their variance is noise
_NEAR = 0.25  # of the way from the first evaluation to the target: what is nearer is not stuck


class StatisticsWarnings:
    """Warns once of each kind of odd statistic of a training.

    Args:
        of_env: The kinds that were said of the environment, and _DRAWING, which the warnings of a model's trainings share.
    """

    def __init__(self, of_env: set[str] | None = None) -> None:
        self._said: set[str] = set()
        self.of_env = set[str]() if of_env is None else of_env
        self._equal = 0  # generations in a row in which all returns were the same
        self._unbeaten = 0  # generations in a row in which every candidate's return was below that of theta
        self._drawn = 0  # evaluations in a row that were below what candidates return whose actions are drawn
        self._short = 0  # generations in a row in which episodes ended at once
        self._lowest, self._highest = math.inf, -math.inf  # mean return of a generation so far, and return
        self._first_lengths: tuple[float, int] | None = None  # mean and shortest of the first generation, if it was seen
        self._candidates, self._evaluations = ReturnsOverBudget(), ReturnsOverBudget()
        self._skipped = 0  # candidates that the statistics of observations have left out so far
        self._is_racing = False

    def check(
        self,
        training: Training,
        record: Record,
        batch: Batch,
        finished: FinishedEvaluation | None,
        target_return: float = math.inf,
        has_raced: bool = False,
        is_racing: bool = False,
    ) -> None:
        """Check a generation. Numbers that the record has are not computed again: this runs after every generation.

        Args:
            training: The training after the generation.
            record: Its statistics.
            batch: Its results.
            finished: The evaluation that was reported with it, if any.
            target_return: Noise-free return at which the training ends.
            has_raced: Whether the training's settings are a recipe's, which raced against others.
            is_racing: Whether others may still win. Until then a recipe may fail to learn.
        """
        self._is_racing = is_racing
        if training.settings.sample_actions:
            self.of_env.add(_DRAWING)
        if record.generation == 1:
            self._first_lengths = record.episode_length, int(batch.lengths.min()) // batch.per_candidate
        self._check_finite(training, record, batch)
        self._check_longest_episode(training, record, batch, finished)
        self._check_shortest_episodes(training, record)
        self._check_equal_returns(training, record, batch, finished, has_raced)
        if finished is not None:
            self._check_unbeaten(training, record, finished)
            self._check_drawn(training, finished)
        self._check_course(training, record, batch, finished, target_return, has_raced)

    def _check_finite(self, training: Training, record: Record, batch: Batch) -> None:
        """Check returns and observations, except after a penalty, which has its own warning."""
        rises, self._skipped = training.normalizer.skipped != self._skipped, training.normalizer.skipped
        if batch.penalised:
            return
        if record.num_nonfinite:
            self._say(
                "returns",
                f"{record.num_nonfinite} of {batch.returns.size} returns of generation {record.generation} are not finite: "
                "they rank worst (num_nonfinite counts them)",
            )
        if rises and (left_out := number_skipped(batch.moments, batch.lengths.ravel())):
            self._say(
                "observations",
                f"{left_out} candidates of generation {record.generation} saw observations that are not finite or too large to "
                "square: the statistics leave them out. gymnasium.utils.env_checker.check_env(env) finds NaN",
            )

    def _check_longest_episode(
        self, training: Training, record: Record, batch: Batch, finished: FinishedEvaluation | None
    ) -> None:
        if training.settings.max_episode_steps > 0 or "steps" in self.of_env:
            return
        longest = int(batch.lengths.max()) // batch.per_candidate if record.episodes_cut else 0
        if finished is not None:
            longest = max(longest, *finished.evaluation.lengths.tolist())
        if longest >= (guard := training.longest_episode()):
            self._say(
                "steps",
                f"an episode of generation {record.generation} was cut after {guard:,} steps: the environment did not end it; "
                "set max_episode_steps to the steps that an episode should have",
            )

    def _check_equal_returns(
        self, training: Training, record: Record, batch: Batch, finished: FinishedEvaluation | None, has_raced: bool
    ) -> None:
        value = float(batch.returns.flat[0])
        are_equal = value == record.return_max and bool((batch.returns == value).all())
        self._lowest = min(self._lowest, value if are_equal else record.return_mean)  # NaN, if none is finite, changes nothing
        self._highest = max(self._highest, record.return_max)
        is_equal = are_equal and (finished is None or bool((finished.evaluation.returns == value).all()))
        if is_equal and training.settings.alive_bonus and len(set(batch.lengths.flat)) > 1:  # fitness differs
            is_equal = False
        if is_equal and self._is_at_its_best(value):
            is_equal = False
        self._equal = self._equal + 1 if is_equal else 0
        if self._equal >= _EQUAL:
            sigma = "" if has_raced else "raise sigma, "  # after a race of small and large ones it does not help
            advice = f"{self._exploring(training)}{sigma}"
            self._say(
                "equal",
                f"in {self._equal} generations up to {record.generation} all candidates had the same return, "
                f"{number_in_words(value)}, so nothing could be learned. Unless that is the best there is, "
                f"{advice}{'or ' if advice else ''}give rewards that tell small improvements",
            )

    def _is_at_its_best(self, value: float) -> bool:
        """Return whether a return that all candidates have is the highest so far, after lower ones or an unknown start."""
        return value >= self._highest and (value > self._lowest or self._first_lengths is None)

    def _check_shortest_episodes(self, training: Training, record: Record) -> None:
        length, generation = record.episode_length, record.generation
        self._short = self._short + 1 if length <= _AT_ONCE else 0
        if self._short < _SHORT or self._first_lengths is None:
            return
        first, _ = self._first_lengths
        limit = training.episode_limit or 0
        if first >= _LONG:
            self._say(
                "short",
                f"in {self._short} generations up to {generation} episodes ended after {length:.1f} steps, at first after "
                f"{first:.0f}: the policy ends them at once, which pays if each step costs. Let the end cost more than the "
                "steps that it saves",
            )
        elif limit >= _LONG:
            self._say(
                "short",
                f"in {self._short} generations up to {generation} episodes ended after {length:.1f} steps, of {limit:,} that "
                "they may have: see whether step returns terminated = True by mistake. If it does not, let the end cost more "
                "than the steps that it saves",
            )

    def _check_course(
        self,
        training: Training,
        record: Record,
        batch: Batch,
        finished: FinishedEvaluation | None,
        target_return: float,
        has_raced: bool,
    ) -> None:
        """Check that returns rise: since the start, and towards the target."""
        counters = training.counters
        at = counters.num_timesteps, counters.budget
        is_new_bin = self._candidates.add(record.return_mean, *at, is_first=record.generation == 1)
        evaluations = self._evaluations
        if finished is not None:
            is_first = self._candidates.first is not None and evaluations.first is None
            evaluations.add(finished.evaluation.mean, *at, is_first=is_first)
        if not is_new_bin or "equal" in self._said or not evaluations.is_flat:
            return
        first, level = evaluations.first, evaluations.level
        are_cut = training.settings.episode_cap != "none"  # returns of candidates change with the cap
        if evaluations.is_where_it_began and (are_cut or (self._candidates.is_flat and self._candidates.is_where_it_began)):
            began = f"evaluations are at {number_in_words(level)}, as at the start"
        elif first is not None and _is_far(target_return, level, first) and not evaluations.may_reach(target_return):
            began = f"evaluations stay at {number_in_words(level)}, below the target of {number_in_words(target_return)}"
        else:
            return
        self._say(
            "flat",
            f"returns have not risen for a third of the budget, up to generation {record.generation}: {began}. "
            f"{self._what_to_try(training, batch, has_raced)}",
        )

    def _what_to_try(self, training: Training, batch: Batch, has_raced: bool) -> str:
        """Return advice for returns that do not rise."""
        per = batch.per_candidate
        shortest, limit = int(batch.lengths.min()) // per, training.episode_limit
        if self._first_lengths is not None and limit and self._first_lengths[1] < limit <= shortest:
            return (
                f"All episodes now last to the limit of {limit:,} steps, at first they ended before: if waiting pays, take "
                "that reward away (alive_bonus)"
            )
        noise, spread = self._evaluations.noise, float(np.std(batch.finite_returns))
        if training.settings.eval_episodes == 1 and noise > _HIDES * spread:
            return (
                f"Episodes of the same parameters differ by +- {number_in_words(noise)}, those of candidates by +- "
                f"{number_in_words(spread)}: noise hides what is better. Try episodes_per_candidate=4, or a larger "
                "population_size"
            )
        before, advice = "", "try preset='auto', which races recipes, another policy, or a sigma three times larger or smaller"
        if has_raced:  # against other policies and sigmas
            before, advice = "Other recipes raced and were no better. ", "give rewards for small progress, or a larger budget"
        if exploring := self._exploring(training):
            advice = f"{exploring}or {advice}"
        return f"{before}{advice[0].upper()}{advice[1:]}"

    def _exploring(self, training: Training) -> str:
        """Return advice to draw actions, if the policy chooses among actions and no training of the model has drawn them."""
        head = training.spec.head
        if head is None or head.noise != "sample_actions" or _DRAWING in self.of_env:
            return ""
        return "pass sample_actions=True (--sample-actions), which explores within each episode, "

    def _check_unbeaten(self, training: Training, record: Record, finished: FinishedEvaluation) -> None:
        is_unbeaten = record.eval_rank == 1 and _is_unbeaten(training, finished)
        self._unbeaten = self._unbeaten + 1 if is_unbeaten else 0
        generation = finished.pending.generation + 1
        if self._unbeaten >= UNBEATEN:
            others = {"action_noise": training.settings.action_noise, "sample_actions": training.settings.sample_actions}
            noise = "".join(f" (or {name})" for name, value in others.items() if value)
            self._say(
                "unbeaten",
                f"in {self._unbeaten} generations up to {generation} no candidate reached the return of the parameters without "
                "noise. While eval_return still rises that does no harm. If it does not, "
                f"sigma = {training.settings.sigma!r}{noise} is too large for this policy (try half of it), or the training is "
                "stuck: try another seed, a larger population_size, or a denser reward",
            )

    def _check_drawn(self, training: Training, finished: FinishedEvaluation) -> None:
        """Check whether the policy acts well only if its actions are drawn, as those of candidates are."""
        if not training.settings.sample_actions or training.settings.episode_cap != "none":
            return  # the adaptive cap ends episodes of candidates alone
        evaluation, (mean, std) = finished.evaluation.mean, mean_and_std(finished.pending.returns.tolist())
        self._drawn = self._drawn + 1 if evaluation < mean - std else 0
        if self._drawn >= _DRAWN:
            self._say(
                "drawn",
                f"{self._drawn} evaluations in a row up to generation {finished.pending.generation + 1} take the likeliest "
                "actions and return less than the candidates, whose actions are drawn: in the last one "
                f"{number_in_words(evaluation)}, and the candidates {number_in_words(mean)} in mean. predict(observation) "
                "draws; predict(observation, deterministic=True), evaluate() and fastes eval take the likeliest",
            )

    def _say(self, kind: str, message: str) -> None:
        said = self.of_env if kind in _OF_ENV else self._said
        if kind not in said and (kind in _OF_ENV or kind == "returns" or not self._is_racing):
            said.add(kind)
            warn_user(message)


def _is_far(target_return: float, level: float, first: float) -> bool:
    """Return whether a level is further from the target than what counts as near. first: the first evaluation."""
    return math.isfinite(target_return) and target_return - level > _NEAR * abs(target_return - first)


def _is_unbeaten(training: Training, finished: FinishedEvaluation) -> bool:
    """Return whether theta's return is above that of every candidate. A tie is not: equal returns are normal."""
    candidates, evaluations = finished.pending.returns, finished.evaluation.returns
    if training.settings.episode_cap != "none" or not candidates.size or not np.isfinite(evaluations).all():
        return False  # the adaptive cap ends episodes of candidates alone
    mean, _ = mean_and_std(evaluations.tolist())
    return bool(candidates.max() < min(mean, evaluations.max()))  # a mean of equal numbers may round up
