"""One seed of a preset, in this process: `python -m benchmarks.learning.preset_run JSON`; its Result on stdout."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import answer_once
from benchmarks.learning.runs.clock import ended_cpu_seconds
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.machine import versions
from fastes import Callback, FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.training.record import Record

EPISODES = 100


class Result(NamedTuple):
    """One row of the CSV file.

    final_*, best_*: over 100 episodes, of the last parameters and of those whose evaluation during training was the best.
    first_reached: timesteps that the first parameters whose evaluation during training reached the aim had been trained with,
        nan for none.
    cpu_seconds: of training, all its processes.
    settings: their fingerprint, empty in rows that are older than it.
    """

    env: str
    preset: str
    seed: int
    timesteps: int
    final_mean: float
    final_std: float
    best_mean: float
    best_std: float
    first_reached: float
    wall_seconds: float
    cpu_seconds: float
    versions: str
    aim: float
    settings: str


class Watch(Callback):
    """Keeps the best parameters so far, and when the aim was first reached."""

    def __init__(self, aim: float) -> None:
        self.aim, self.first_reached = aim, math.nan
        self.best: Checkpoint | None = None

    def on_new_best(self, model: FastES, eval_return: float) -> None:  # noqa: ARG002
        self.best = model.snapshot()

    def on_generation(self, model: FastES, record: Record) -> None:  # noqa: ARG002
        self._look(model)

    def on_end(self, model: FastES) -> None:
        self._look(model)  # evaluations that were still played when the last generation ended

    def _look(self, model: FastES) -> None:
        for of, evaluation in model.training.latest_evaluations:
            if evaluation.mean >= self.aim and math.isnan(self.first_reached):
                self.first_reached = of.timesteps


def train(env: str, preset: str, seed: int, timesteps: int, aim: float, n_workers: int, changes: dict[str, Any]) -> Result:
    """Train with a preset and changed settings to the end of the budget, then evaluate twice."""
    watch, started, started_cpu = Watch(aim), time.perf_counter(), ended_cpu_seconds()
    with FastES(env, preset=preset, n_workers=n_workers, seed=seed, target_return="none", **changes) as model:
        model.learn(timesteps, watch)
        wall = time.perf_counter() - started
        model.close()  # its workers' CPU time counts once they have ended
        used = ended_cpu_seconds() - started_cpu
        final, settings = model.evaluate(EPISODES), fingerprint(model.settings)
    assert watch.best is not None
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "best.zip", watch.best)
        with FastES.load(Path(folder) / "best.zip", n_workers=n_workers) as model:
            best = model.evaluate(EPISODES)
    statistics = (final.mean, final.std, best.mean, best.std, watch.first_reached)
    return Result(env, preset, seed, timesteps, *statistics, round(wall, 1), round(used, 1), versions(), aim, settings)


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
