"""Playing one job of a generation again in this process: the way from an error message to a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastes.parallel import ProcessPool, Request, make_pool
from fastes.rollout import Episode
from fastes.strategy import check_int

if TYPE_CHECKING:
    from fastes.agent import FastES


def replay_job(model: FastES, generation: int, job: int) -> Episode:
    """See FastES.replay."""
    check_job(model, generation, job)
    state = model.state
    pool = make_pool(model.evaluator.pool_spec(), 0)
    assert not isinstance(pool, ProcessPool)
    try:
        asked = state.perturbations(model.settings.largest_population() // 2)
        model.strategy.table.place(pool.noise)
        request = Request(model.theta, asked, state.normalizer, state.eval_seeds(), *state.episode_settings())
        return pool.play(job, request)
    finally:
        model.strategy.table.forget()  # it must not stay in this pool's memory
        pool.close()


def check_job(model: FastES, generation: int, job: int) -> None:
    """TypeError or ValueError for a job that the model cannot play."""
    check_int("generation", generation, 1)
    check_int("job", job, 0, model.settings.largest_population() + model.settings.eval_episodes - 1)
    if generation != model.generation + 1:
        raise ValueError(
            f"generation = {generation} cannot be played again: the model has done {model.generation}, so expected "
            f"{model.generation + 1}; load the checkpoint of that generation (a training that fails saves it)"
        )
