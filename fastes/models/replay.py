"""One job of a generation, played again in this process."""

from __future__ import annotations

from dataclasses import replace

from fastes.errors import check_int
from fastes.pools.pool import LocalPool
from fastes.rollout.episode import Episode
from fastes.rollout.job import Request
from fastes.training.evaluator import Evaluator
from fastes.training.training import Training


def replay_job(pool: LocalPool, training: Training, evaluator: Evaluator, generation: int, job: int) -> Episode:
    """Play one job of a generation again in this process, which leads from an error message to a debugger.

    Args:
        pool: A pool of this process, not opened yet; it is closed afterwards.
        training: The training that failed, in the state before the generation.
        evaluator: The training's.
        generation, job: As in FastES.replay.
    """
    check_job(training, generation, job)
    table = training.strategy.table
    try:
        pool.open(replace(evaluator.pool_spec(), trainings=(evaluator.needs_of(training),)))
        theta, normalizer, candidates = training.strategy.theta, training.normalizer, training.settings.largest_population()
        candidate, evaluation = training.episode_settings()
        if job >= candidates:
            number = generation - 1
            of = next((pending for pending in training.pending if pending.generation == number), None)
            calls = training.env_calls.sent(None if of is None else of.calls)
            if of is not None:
                theta, normalizer = of.theta, of.normalizer
            request = Request(
                theta, normalizer, evaluation, eval_seeds=training.eval_seeds(number), generation=number, calls=calls
            )
            return pool.play_job(job - candidates, request)
        pool.place_table(table)
        perturbations, calls = training.ask(candidates // 2), training.env_calls.sent()
        return pool.play_job(job, Request(theta, normalizer, candidate, perturbations, calls=calls))
    finally:
        table.release()  # it must not stay in the memory of this pool
        pool.close()


def check_job(training: Training, generation: int, job: int) -> None:
    """Raise TypeError or ValueError for a job that cannot be played from this training."""
    done = training.strategy.generation
    check_int("generation", generation, 1)
    check_int("job", job, 0, training.settings.largest_population() + training.settings.eval_episodes - 1)
    of_candidates = job < training.settings.largest_population()
    if generation != done + 1 and (of_candidates or generation - 1 not in [pending.generation for pending in training.pending]):
        raise ValueError(
            f"generation = {generation} cannot be played again: the model has done {done}, so expected "
            f"{done + 1}; load the checkpoint of that generation (a training that fails saves it)"
        )
