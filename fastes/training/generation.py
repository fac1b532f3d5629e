"""One generation of a training: its candidates are run. Nothing here changes the state that it is given."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.es.fitness_shaping import mean_and_std
from fastes.es.perturbations import Perturbations
from fastes.es.strategy import Update
from fastes.rollout.job import Batch
from fastes.training.evaluation import Evaluation
from fastes.training.evaluator import Evaluator
from fastes.training.record import Record
from fastes.training.state import TrainingState

_NO_SEEDS = np.zeros(0, dtype=np.int64)


class Generation(NamedTuple):
    """What was asked for, and what it gave; theta was evaluated beside the candidates."""

    perturbations: Perturbations
    batch: Batch


def run_generation(state: TrainingState, evaluator: Evaluator) -> Generation:
    """Evaluate the running generation's candidates, and theta beside them.

    While the population's rule misses pairs, they are asked for beside those that were there, and evaluated too.
    """
    perturbations, episodes = state.perturbations(), state.episode_settings()
    batch = evaluator.run_generation(perturbations, state.normalizer, state.eval_seeds(), episodes)
    while missing := state.population.missing_pairs(batch.lengths):
        first = perturbations.num_pairs
        perturbations = state.perturbations(first + missing)
        batch = batch.joined(evaluator.run_generation(perturbations, state.normalizer, _NO_SEEDS, episodes, first))
    return Generation(perturbations, batch)


def warm_up(state: TrainingState, evaluator: Evaluator) -> TrainingState:
    """Start the statistics of parameters that are new with what their first candidates observe; theta stays.

    The same state without obs_warmup, or where observations were seen, usable or not. The first generation plays the same
    candidates again.
    """
    settings = state.settings
    seen = state.normalizer.count or state.normalizer.skipped
    wanted = settings.obs_warmup and settings.normalize_obs and not seen
    if not wanted or (state.strategy.generation and not state.starts.has_unjudged_starts):
        return state
    batch = evaluator.run_generation(state.perturbations(), state.normalizer, _NO_SEEDS, state.episode_settings())
    return state.warmed_up(batch)


def evaluate(state: TrainingState, evaluator: Evaluator, seeds: npt.NDArray[np.int64]) -> Evaluation:
    """Noise-free episodes of theta, one for each environment seed."""
    return evaluator.evaluate(state.strategy.theta, state.normalizer, seeds, state.episode_settings())


def confirm_target(state: TrainingState, evaluator: Evaluator, target: float) -> tuple[bool, TrainingState]:
    """Evaluate theta on fresh seeds: one good episode is no solution. Whether it is one, and the state that knows of it.

    After a failure, training comes first for as many steps as that took: confirming costs half of the time at most.
    """
    counters = state.counters
    if counters.num_timesteps < counters.confirm_after:
        return False, state
    confirmation = evaluate(state, evaluator, state.fresh_seeds(state.settings.target_episodes))
    if confirmation.mean >= target:
        return True, state
    steps = int(confirmation.lengths.sum())
    return False, state.counting(eval_timesteps=counters.eval_timesteps + steps, confirm_after=counters.num_timesteps + steps)


def make_record(
    state: TrainingState, generation: Generation, evaluation: Evaluation, update: Update, n_workers: int, seconds: float
) -> Record:
    """The statistics of a generation.

    state: in which it is booked.
    evaluation, update: what it gave.
    n_workers: processes that worked, for their utilisation.
    seconds: wall time that it took.
    """
    (perturbations, batch), counters = generation, state.counters
    finite = batch.returns[np.isfinite(batch.returns)]
    mean, std = mean_and_std(finite.ravel().tolist())
    steps = int(batch.lengths.sum() + batch.eval_lengths.sum())
    unknown = math.nan
    return Record(
        generation=perturbations.generation + 1,
        timesteps=counters.num_timesteps,
        return_mean=mean,
        return_max=float(finite.max()) if finite.size else unknown,
        return_std=std,
        eval_return=evaluation.mean,
        eval_std=evaluation.std,
        eval_rank=1 + int(np.count_nonzero(finite > evaluation.mean)),
        elite_share=float(np.count_nonzero(finite > mean)) / batch.returns.size,
        theta_norm=update.theta_norm,
        gradient_norm=update.gradient_norm,
        update_ratio=update.update_ratio,
        learning_rate=update.learning_rate,
        sigma=perturbations.sigma,
        episode_length=float(batch.lengths.sum()) / (batch.lengths.size * state.settings.episodes_per_candidate),
        episode_cap=state.cap.steps,
        num_nonfinite=batch.returns.size - finite.size,
        episodes=counters.num_episodes,
        eval_timesteps=counters.eval_timesteps,
        jobs_rerun=batch.rerun,
        seconds=seconds,
        steps_per_second=_share(steps, seconds),
        utilisation=_share(batch.busy_seconds, max(n_workers, 1) * seconds),
    )


def _share(amount: float, seconds: float) -> float:
    """amount / seconds; NaN where the clock stood still or went back, as in a test or a virtual machine."""
    return amount / seconds if seconds > 0.0 else math.nan
