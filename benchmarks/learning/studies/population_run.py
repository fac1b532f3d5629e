"""One training until a return is reached, in this process: `python -m benchmarks.learning.studies.population_run JSON`."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, NamedTuple

from benchmarks.child_process import answer_once
from fastes import Callback, FastES
from fastes.training.record import Record

WINDOW = 5  # evaluations whose median counts


class Point(NamedTuple):
    """One noise-free evaluation: of theta after so many generations, and so many environment steps of their candidates.

    seconds: of training until it was known.
    """

    generation: int
    steps: int
    score: float
    seconds: float


class Watch(Callback):
    """Keeps all evaluations, and ends the training when the median of the last ones is high enough, or steps are spent."""

    def __init__(self, stop_at: float, most_steps: int) -> None:
        self.stop_at, self.most_steps = stop_at, most_steps
        self.points: list[Point] = []
        self.before, self.started = (0, 0), time.perf_counter()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        seconds = round(time.perf_counter() - self.started, 2)
        self.points.append(Point(*self.before, record.eval_return, seconds))
        print(*self.points[-1], file=sys.stderr, flush=True)  # to the log
        self.before = record.generation, record.timesteps
        last = [point.score for point in self.points[-WINDOW:]]
        reached = len(last) == WINDOW and statistics.median(last) >= self.stop_at
        return not reached and record.timesteps < self.most_steps


def train(
    env: str, preset: str, seed: int, changes: dict[str, Any], stop_at: float, most_steps: int, n_workers: int
) -> list[Point]:
    """All evaluations. None lags, so that each is told with the generation of its theta; the parameters are the same."""
    watch = Watch(stop_at, most_steps)
    changes = {**changes, "eval_lag": 0, "eval_every": 1}
    with FastES(env, preset=preset, n_workers=n_workers, seed=seed, target_return="none", **changes) as model:
        model.learn(10**15, watch)
    return watch.points


if __name__ == "__main__":
    answer_once(lambda given: {"points": train(**given)})
