"""Candidates of a search, trained side by side on one pool, with noise-free evaluations at rungs."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastes.errors import NotFinite
from fastes.models.one_pool import PoolUser, one_pool
from fastes.pools.pool import Condition, run_to_end, side_by_side
from fastes.rollout.episode import usual_limit
from fastes.training.evaluation import Evaluation

_POPULATION = 32  # used for every candidate, so that endless noise-free episodes are cut at the same step
FIRST_EPISODE = 2**30  # environment seed of the first noise-free episode: all candidates play the same ones


class Learner(PoolUser, Protocol):
    """A model, as far as a search trains it."""

    @property
    def num_timesteps(self) -> int: ...
    @property
    def observation_space(self) -> Any: ...
    @property
    def action_space(self) -> Any: ...
    def learn_async(
        self, total_timesteps: float | None, callback: Any, *, reset_num_timesteps: bool
    ) -> Coroutine[Any, Any, bool]: ...
    def play_seeds(self, seeds: npt.NDArray[np.int64], endless_limit: int) -> Coroutine[Any, Any, Evaluation]: ...
    def close(self) -> None: ...


@dataclass
class Candidate:
    """Settings with the trainings that score them, one per seed.

    Attributes:
        number: Its number in the study.
        models: The trainings.
        returns: For each rung that was reached, the mean noise-free return of each training.
        is_pruned: Whether it ended before its last rung.
        failure: The message of the error that ended one of its trainings, '' if there was none.
        seconds: Time from its start to its end, while others train, too.
    """

    number: int
    models: Sequence[Learner]
    returns: list[list[float]] = field(default_factory=list)
    is_pruned: bool = False
    failure: str = ""
    seconds: float = 0.0

    @property
    def score(self) -> float:
        """Mean over the seeds at the last rung that was reached; -inf if a return was not finite."""
        mean = statistics.fmean(self.returns[-1])
        return mean if math.isfinite(mean) else -math.inf


def _until(timesteps: float) -> Callable[[Learner, Any], bool]:
    """Return a callback that ends `learn` once a training has made this many steps."""
    return lambda model, _: model.num_timesteps < timesteps


def _to_the_end(_: Learner, __: Any) -> bool:
    """A callback that leaves the end to the budget, after which comes the final selection of an archive."""
    return True


class _Batch:
    """Trains candidates in step: no training begins a rung before all have been judged after the one before.

    So what is pruned does not depend on which training was the fastest.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        timesteps: int,
        seeds: npt.NDArray[np.int64],
        rungs: Sequence[int],
        judge: Callable[[Candidate, int], bool] | None,
    ) -> None:
        self.candidates, self.timesteps, self.seeds, self.rungs, self.judge = candidates, timesteps, seeds, rungs, judge
        self.endless_limit = usual_limit(timesteps, _POPULATION)
        self.judged = 0  # rungs
        self.arrived = 0  # trainings at the next one
        self.started = time.monotonic()

    async def train(self, candidate: Candidate, place: int) -> None:
        """Train one of a candidate's models, to the end or until the candidate is pruned."""
        model = candidate.models[place]
        for number, part in enumerate(self.rungs):
            score = await self._score(candidate, model, part)
            if len(candidate.returns) == number:
                candidate.returns.append([math.nan] * len(candidate.models))
            candidate.returns[number][place] = score
            self._arrive(part)
            await Condition(lambda passed=number: self.judged > passed)  # type: ignore[misc]
            if candidate.is_pruned:
                return

    async def _score(self, candidate: Candidate, model: Learner, part: int) -> float:
        """Train a model to the end of a rung. Returns its mean noise-free return, -inf if it cannot continue."""
        left = max(0, self.timesteps - model.num_timesteps)
        callback = _to_the_end if part == self.rungs[-1] else _until(self.timesteps * part / self.rungs[-1])
        try:
            await model.learn_async(left, callback, reset_num_timesteps=False)
        except NotFinite as error:
            candidate.failure = str(error)
            return -math.inf
        return (await model.play_seeds(self.seeds, self.endless_limit)).mean

    def _arrive(self, part: int) -> None:
        """Judge all candidates in their order, once the last training is at the rung."""
        self.arrived += 1
        running = [each for each in self.candidates if not each.is_pruned]
        if self.arrived < sum(len(each.models) for each in running):
            return
        for candidate in running:
            candidate.seconds = time.monotonic() - self.started
            if self.judge is not None:
                candidate.is_pruned = self.judge(candidate, part)
        self.judged, self.arrived = self.judged + 1, 0


def train_candidates(
    candidates: Sequence[Candidate],
    timesteps: int,
    episodes: int,
    first_episode: int,
    rungs: Sequence[int],
    judge: Callable[[Candidate, int], bool] | None = None,
) -> None:
    """Train candidates side by side, fill in their returns, and close their models.

    Args:
        candidates: With models that share no pool yet.
        timesteps: Budget of each training.
        episodes: Noise-free episodes of an evaluation.
        first_episode: Environment seed of the first one.
        rungs: Parts of the budget after which candidates are evaluated; the last one is the whole.
        judge: Called for each candidate after each rung, in their order, with (candidate, part); returns whether it is pruned.
            None prunes none.
    """
    models = [model for each in candidates for model in each.models]
    seeds = first_episode + np.arange(episodes, dtype=np.int64)
    batch = _Batch(candidates, timesteps, seeds, rungs, judge)
    with contextlib.ExitStack() as at_the_end:
        for model in models:
            at_the_end.callback(model.close)
        with one_pool(models):
            trainings = [batch.train(each, place) for each in candidates for place in range(len(each.models))]
            run_to_end(side_by_side(*trainings))
