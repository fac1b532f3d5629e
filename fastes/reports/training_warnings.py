"""Warnings of odd statistics."""

from __future__ import annotations

import warnings

import numpy as np

from fastes.errors import level_outside
from fastes.es.fitness_shaping import mean_and_std
from fastes.rollout.batch import Batch
from fastes.training.evaluation import FinishedEvaluation
from fastes.training.training import Training

UNBEATEN, _EQUAL = 50, 20  # generations in a row


class StatisticsWarnings:
    """Warns once of each kind of odd statistic of a training."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._equal = 0  # generations in a row in which all returns were the same
        self._unbeaten = 0  # generations in a row in which every candidate's return was below that of theta

    def check(self, training: Training, generation: int, batch: Batch, finished: FinishedEvaluation | None) -> None:
        """Check a generation.

        Args:
            training: The training after the generation.
            generation: Its number, as in progress.csv.
            batch: Its results.
            finished: The evaluation that was reported with it, if any.
        """
        self._check_finite(training, generation, batch)
        self._check_longest_episode(training, generation, batch, finished)
        self._check_equal_returns(training, generation, batch, finished)
        if finished is not None:
            self._check_unbeaten(training, finished)

    def _check_finite(self, training: Training, generation: int, batch: Batch) -> None:
        """Check returns and observations, except after a penalty, which has its own warning."""
        if batch.penalised:
            return
        nonfinite = int(np.count_nonzero(~np.isfinite(batch.returns)))
        if nonfinite:
            self._say(
                "returns",
                f"{nonfinite} of {batch.returns.size} returns of generation {generation} are not finite: they rank worst "
                "(num_nonfinite counts them)",
            )
        if training.normalizer.skipped:
            self._say(
                "observations",
                f"{training.normalizer.skipped} candidates up to generation {generation} saw observations that are not finite "
                "or too large to square: the statistics leave them out. gymnasium.utils.env_checker.check_env(env) finds NaN",
            )

    def _check_longest_episode(
        self, training: Training, generation: int, batch: Batch, finished: FinishedEvaluation | None
    ) -> None:
        longest = int(batch.lengths.max()) // batch.per_candidate
        if finished is not None:
            longest = max(longest, int(finished.evaluation.lengths.max()))
        guard = training.episode_settings()[1].max_steps
        if training.settings.max_episode_steps <= 0 and longest >= guard:
            self._say(
                "steps",
                f"an episode of generation {generation} was cut after {guard:,} steps: the environment did not end it; set "
                "max_episode_steps to the steps that an episode should have",
            )

    def _check_equal_returns(
        self, training: Training, generation: int, batch: Batch, finished: FinishedEvaluation | None
    ) -> None:
        fitness_differs = training.settings.alive_bonus and len(set(batch.lengths.flat)) > 1
        self._equal = self._equal + 1 if _all_equal(batch, finished) and not fitness_differs else 0
        if self._equal == _EQUAL:
            self._say(
                "equal",
                f"in {_EQUAL} generations up to {generation} all candidates had the same return, so nothing could be learned: "
                f"{_exploring(training)}raise sigma, or give rewards that tell small improvements",
            )

    def _check_unbeaten(self, training: Training, finished: FinishedEvaluation) -> None:
        self._unbeaten = self._unbeaten + 1 if _is_unbeaten(training, finished) else 0
        generation = finished.pending.generation + 1
        if self._unbeaten == UNBEATEN:
            others = {"action_noise": training.settings.action_noise, "sample_actions": training.settings.sample_actions}
            noise = "".join(f" (or {name})" for name, value in others.items() if value)
            self._say(
                "unbeaten",
                f"in {UNBEATEN} generations up to {generation} no candidate reached the return of the parameters without "
                "noise. While eval_return still rises that does no harm. Where it does not, "
                f"sigma = {training.settings.sigma!r}{noise} is too large for this policy (try half of it), or the training is "
                "stuck: try another seed, a larger population_size, or a denser reward",
            )

    def _say(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=level_outside())


def _exploring(training: Training) -> str:
    """Return advice to draw actions, if the policy chooses among actions and does not draw them yet."""
    head = training.spec.head
    if head is None or head.noise != "sample_actions" or training.settings.sample_actions:
        return ""
    return "pass sample_actions=True (--sample-actions), which explores within each episode, "


def _all_equal(batch: Batch, finished: FinishedEvaluation | None) -> bool:
    """Return whether all candidates, and theta, had the same return."""
    first = float(batch.returns.flat[0])
    return bool((batch.returns == first).all() and (finished is None or (finished.evaluation.returns == first).all()))


def _is_unbeaten(training: Training, finished: FinishedEvaluation) -> bool:
    """Return whether theta's return is above that of every candidate. A tie is not: equal returns are normal."""
    candidates, evaluations = finished.pending.returns, finished.evaluation.returns
    if training.settings.episode_cap != "none" or not candidates.size or not np.isfinite(evaluations).all():
        return False  # the adaptive cap ends episodes of candidates alone
    mean, _ = mean_and_std(evaluations.tolist())
    return bool(candidates.max() < min(mean, evaluations.max()))  # a mean of equal numbers may round up
