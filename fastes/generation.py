"""One generation of a training: its candidates are run, and what they gave is booked, as a whole or not at all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fastes.callbacks import Callback
from fastes.evaluation import Evaluation
from fastes.interrupts import interrupts_wait
from fastes.noise import Perturbations
from fastes.parallel import Batch

if TYPE_CHECKING:
    from fastes.agent import FastES

_NO_SEEDS = np.zeros(0, dtype=np.int64)


def warm_up(model: FastES) -> None:
    """Start the statistics of parameters that are new with what their first candidates observe; theta stays.

    Nothing without obs_warmup, or where observations were seen, usable or not. The first generation plays the same
    candidates again.
    """
    seen = model.normalizer.count or model.normalizer.skipped
    wanted = model.settings.obs_warmup and model.settings.normalize_obs and not seen
    if not wanted or (model.generation and not model.starts.going):
        return
    asked = model.running_generation()
    batch = model.evaluator.run_generation(asked, model.normalizer, _NO_SEEDS, model.episode_settings())
    with interrupts_wait():  # as a whole or not at all
        model.normalizer.merge(batch.moments, batch.lengths.ravel())
        _count_candidates(model, batch)


def run_generation(model: FastES) -> tuple[Perturbations, Batch]:
    """Evaluate the running generation's candidates, and theta beside them; changes nothing.

    While the population's rule misses pairs, they are asked for beside those that were there, and evaluated too.
    """
    asked, episodes = model.running_generation(), model.episode_settings()
    batch = model.evaluator.run_generation(asked, model.normalizer, model.eval_seeds(), episodes)
    while missing := model.population.missing_pairs(batch.lengths):
        first = asked.num_pairs
        asked = model.running_generation(first + missing)
        batch = batch.joined(model.evaluator.run_generation(asked, model.normalizer, _NO_SEEDS, episodes, first))
    return asked, batch


@contextlib.contextmanager
def booking(model: FastES, evaluation: Evaluation, callbacks: Callback) -> Iterator[bool]:
    """Note a best, and give whether theta is solved; an exception, in the block too, takes it all back."""
    booked = model.best_eval_return, model.eval_timesteps, model.confirm_after
    try:
        if evaluation.mean > -math.inf and evaluation.mean >= model.best_eval_return:
            model.best_eval_return = evaluation.mean
            callbacks.on_new_best(model, evaluation.mean)
        yield evaluation.mean >= model.target_return and _target_confirmed(model)
    except BaseException:
        if model.untold is None:  # not booked
            model.best_eval_return, model.eval_timesteps, model.confirm_after = booked
        raise


def _target_confirmed(model: FastES) -> bool:
    """Evaluate theta on fresh seeds: one good episode is no solution.

    After a failure, training comes first for as many steps as that took: confirming costs half of the time at most.
    """
    if model.num_timesteps < model.confirm_after:
        return False
    confirmation = model.evaluate(model.settings.target_episodes, first_seed=None)
    if confirmation.mean < model.target_return:
        steps = int(confirmation.lengths.sum())
        model.eval_timesteps += steps
        model.confirm_after = model.num_timesteps + steps
        return False
    return True


def count(model: FastES, batch: Batch, solved: bool) -> None:
    """Book a generation. One that proved theta solved was not learned from: resuming would ask for it again."""
    model.solved = solved
    if solved:
        model.starts.end()  # no other one is wanted
    model.eval_timesteps += int(batch.eval_lengths.sum())
    if not solved:
        _count_candidates(model, batch)
        model.population.update(batch.lengths)


def _count_candidates(model: FastES, batch: Batch) -> None:
    model.num_timesteps += int(batch.lengths.sum())
    model.num_episodes += batch.returns.size * model.settings.episodes_per_candidate
