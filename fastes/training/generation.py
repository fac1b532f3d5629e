"""One generation of a training: its candidates are run. Nothing here changes the state that it is given."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.es.fitness_shaping import mean_and_std
from fastes.es.perturbations import Perturbations
from fastes.es.strategy import Update
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.job import Batch
from fastes.training.evaluation import Evaluation, Pending, Told
from fastes.training.evaluator import Evaluator
from fastes.training.record import Record
from fastes.training.state import TrainingState


class Generation(NamedTuple):
    """A generation's perturbations and results."""

    perturbations: Perturbations
    batch: Batch


async def run_generation(state: TrainingState, evaluator: Evaluator) -> Generation:
    """Play the running generation's candidates, and begin with theta's noise-free episodes, which may play on afterwards.

    While the population's rule misses pairs, they are asked for beside those that were there, and played too.
    """
    perturbations, (training, evaluation) = state.perturbations(), state.episode_settings()
    await evaluator.keep_evaluations([pending.theta for pending in state.pending])

    asked = state.normalizer, training, state.strategy
    if not state.settings.eval_lag:  # what has no adaptive cap, and is waited for, should not be the last to start
        _begin_evaluations(state, evaluator, evaluation)
    ticket = evaluator.begin_generation(perturbations, *asked)
    if state.settings.eval_lag:
        _begin_evaluations(state, evaluator, evaluation)
    state.draw_ahead()
    batch = await evaluator.pool.result(ticket)
    while missing := state.population.missing_pairs(batch.lengths, state.progress_remaining):
        first = perturbations.num_pairs
        perturbations = state.perturbations(first + missing)
        batch = batch.joined(await evaluator.pool.result(evaluator.begin_generation(perturbations, *asked, first)))
    return Generation(perturbations, batch)


def _begin_evaluations(state: TrainingState, evaluator: Evaluator, episodes: EpisodeSettings) -> None:
    for pending in state.to_evaluate()[: state.settings.evaluations_at_once()]:  # a longer lag that was loaded has more
        if not evaluator.has_begun(pending.theta):
            seeds = state.eval_seeds(pending.drawn_as)
            evaluator.begin_evaluation(pending.theta, pending.normalizer, seeds, episodes, pending.generation, pending.calls)


async def finish_evaluation(state: TrainingState, evaluator: Evaluator, pending: Pending) -> Told:
    """Wait for the noise-free episodes of a generation's theta."""
    seeds = state.eval_seeds(pending.drawn_as)
    of, episodes = (pending.theta, pending.normalizer), state.episode_settings()[1]
    evaluation = await evaluator.finish_evaluation(*of, seeds, episodes, pending.generation, pending.calls)
    return Told(pending, evaluation)


async def play_start(state: TrainingState, evaluator: Evaluator) -> None:
    """Play the requests of a start, until it is judged. No callback runs.

    When the start really runs, the results of its requests are there.
    """
    while not state.starts.due(state.counters.num_timesteps, state.counters.budget):
        state = await warm_up(state, evaluator)
        generation = await run_generation(state, evaluator)
        due, waiting = state.due(generation.batch)
        for pending in due:
            await finish_evaluation(state, evaluator, pending)
        state, _ = state.updated(generation.batch, waiting)
    await evaluate(state, evaluator, state.starts.judges())


async def warm_up(state: TrainingState, evaluator: Evaluator) -> TrainingState:
    """Start the statistics of parameters that are new with what their first candidates observe; theta stays.

    The same state without obs_warmup, or where observations were seen, usable or not. The first generation plays the same
    candidates again.
    """
    settings = state.settings
    seen = state.normalizer.count or state.normalizer.skipped
    wanted = settings.obs_warmup and settings.normalize_obs and not seen and state.spec.obs_size  # images have none
    if not wanted or (state.strategy.generation and not state.starts.has_unjudged_starts):
        return state
    perturbations, (training, _) = state.perturbations(), state.episode_settings()
    ticket = evaluator.begin_generation(perturbations, state.normalizer, training, state.strategy)
    batch = await evaluator.pool.result(ticket)
    return state.warmed_up(batch)


async def evaluate(state: TrainingState, evaluator: Evaluator, seeds: npt.NDArray[np.int64]) -> Evaluation:
    """Noise-free episodes of theta, one for each environment seed."""
    return await evaluator.evaluate(state.strategy.theta, state.normalizer, seeds, state.episode_settings()[1])


def may_confirm(state: TrainingState) -> bool:
    """Whether a target that is reached may be confirmed.

    After a failure, training comes first for as many steps as that took: confirming costs half of the time at most.
    """
    return state.counters.num_timesteps >= state.counters.confirm_after


async def confirm_target(
    state: TrainingState, evaluator: Evaluator, pending: Pending, target: float
) -> tuple[bool, TrainingState, Evaluation]:
    """Evaluate theta on fresh seeds: one good episode is no solution.

    Returns:
        Whether it is one, the state after it, and the episodes. The state does not count the steps of a success.
    """
    counters = state.counters
    seeds = state.fresh_seeds(state.settings.target_episodes)
    confirmation = await evaluator.evaluate(pending.theta, pending.normalizer, seeds, state.episode_settings()[1])
    steps = confirmation.timesteps
    if confirmation.mean >= target:
        return True, state, confirmation
    counted = {"eval_timesteps": counters.eval_timesteps + steps, "confirm_after": counters.num_timesteps + steps}
    return False, state.counting(**counted), confirmation


def make_record(
    state: TrainingState, generation: Generation, told: Told | None, update: Update, n_workers: int, seconds: float
) -> Record:
    """The statistics of a generation.

    state: in which it is booked.
    told: the evaluation that is told with it.
    update: what it gave.
    n_workers: processes that worked, for their utilisation.
    seconds: wall time that it took.
    """
    (perturbations, batch), counters = generation, state.counters
    evaluated = None if told is None else told.evaluation
    finite = batch.returns[np.isfinite(batch.returns)]
    mean, std = mean_and_std(finite.tolist())
    steps, size, unknown = int(batch.lengths.sum()), batch.returns.size, math.nan
    all_steps = steps + (evaluated.timesteps if evaluated else 0)
    return Record(
        generation=perturbations.generation + 1,
        timesteps=counters.num_timesteps,
        return_mean=mean,
        return_max=float(finite.max()) if finite.size else unknown,
        return_std=std,
        eval_generation=told.pending.generation + 1 if told else 0,
        eval_at=told.pending.timesteps if told else 0,
        eval_return=evaluated.mean if evaluated else unknown,
        eval_std=evaluated.std if evaluated else unknown,
        eval_rank=told.rank if told else 0,
        elite_fraction=float(np.count_nonzero(finite > mean)) / size,
        theta_norm=update.theta_norm,
        gradient_norm=update.gradient_norm,
        update_ratio=update.update_ratio,
        learning_rate=update.learning_rate,
        sigma=perturbations.sigma,
        episode_length=steps / (size * batch.per_candidate),
        episode_cap=state.episode_settings()[0].max_steps,
        episodes_cut=int(batch.cuts.sum()),
        num_nonfinite=size - finite.size,
        episodes=counters.num_episodes,
        eval_timesteps=counters.eval_timesteps,
        jobs_rerun=batch.rerun,
        seconds=seconds,
        steps_per_second=_share(all_steps, seconds),
        utilisation=min(_share(batch.busy_seconds, max(n_workers, 1) * seconds), 1.0),
    )


def _share(amount: float, seconds: float) -> float:
    """amount / seconds; NaN where the clock stood still or went back, as in a test or a virtual machine."""
    return amount / seconds if seconds > 0.0 else math.nan
