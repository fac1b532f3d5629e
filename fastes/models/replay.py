"""Playing one job of a generation again in this process: the way from an error message to a debugger."""

from __future__ import annotations

from fastes.errors import check_int
from fastes.pools.make_pool import make_local_pool
from fastes.rollout.episode import Episode
from fastes.rollout.job import Request
from fastes.training.evaluator import Evaluator
from fastes.training.state import TrainingState


def replay_job(state: TrainingState, evaluator: Evaluator, generation: int, job: int) -> Episode:
    """See FastES.replay."""
    check_job(state, generation, job)
    table = state.strategy.table
    pool = make_local_pool(evaluator.source)
    try:
        pool.open(evaluator.pool_spec())
        theta, normalizer, candidates = state.strategy.theta, state.normalizer, state.settings.largest_population()
        training, evaluation = state.episode_settings()
        if job >= candidates:
            number = generation - 1
            of = next((pending for pending in state.pending if pending.generation == number), None)
            drawn_as = state.drawn_as(number) if of is None else of.drawn_as
            calls = state.env_calls.sent(None if of is None else of.calls)
            if of is not None:
                theta, normalizer = of.theta, of.normalizer
            request = Request(
                theta, normalizer, evaluation, eval_seeds=state.eval_seeds(drawn_as), generation=number, calls=calls
            )
            return pool.play_job(job - candidates, request)
        pool.place_table(table)
        perturbations, calls = state.perturbations(candidates // 2), state.env_calls.sent()
        return pool.play_job(job, Request(theta, normalizer, training, perturbations, calls=calls))
    finally:
        table.release()  # it must not stay in this pool's memory
        pool.close()


def check_job(state: TrainingState, generation: int, job: int) -> None:
    """TypeError or ValueError for a job that cannot be played from this state."""
    done = state.strategy.generation
    check_int("generation", generation, 1)
    check_int("job", job, 0, state.settings.largest_population() + state.settings.eval_episodes - 1)
    of_candidates = job < state.settings.largest_population()
    if generation != done + 1 and (of_candidates or generation - 1 not in [pending.generation for pending in state.pending]):
        raise ValueError(
            f"generation = {generation} cannot be played again: the model has done {done}, so expected "
            f"{done + 1}; load the checkpoint of that generation (a training that fails saves it)"
        )
