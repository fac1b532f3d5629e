"""One seed of a preset, in this process: `python -m benchmarks.learning.preset_run JSON`; its Result on stdout."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import NamedTuple

from benchmarks.child_process import answer_once
from benchmarks.learning.runs.training_folder import load, trained
from benchmarks.machine import versions
from fastes.runs.curves import read_curve

EPISODES = 100


class Result(NamedTuple):
    """One row of the CSV file.

    final_*, best_*: over 100 episodes, of the last parameters, and of those in best.zip or, in older rows, of those whose
        evaluation during training was the best.
    first_reached: timesteps that the first parameters whose evaluation during training reached the aim had been trained with,
        nan for none.
    wall_seconds: of the generations, without pauses; in older rows of the final selection, too.
    cpu_seconds: of training, all its processes.
    versions: when the parameters played.
    settings: the preset's fingerprint, empty in rows that are older than it.
    flags: given to `fastes train` in addition to the preset.
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
    flags: str

    @property
    def told(self) -> str:
        """In a few words, for messages."""
        return f"final {self.final_mean:.1f}, best {self.best_mean:.1f}"


def train(env: str, preset: str, settings: str, flags: str, seed: int, timesteps: int, aim: float, runs: str) -> Result:
    """Train with a preset, or resume what an earlier process left, then play the last and the best parameters.

    Args:
        runs: Folder for run folders.
    """
    folder = trained(env, ["--preset", preset, *shlex.split(flags)], seed, timesteps, Path(runs), settings)
    curve = read_curve(folder)
    reached = curve.steps[curve.returns >= aim]
    with load(folder / "best.zip", env) as model:
        best = model.evaluate(EPISODES)
    with load(folder / "checkpoint.zip", env) as model:
        final = model.evaluate(EPISODES)
    return Result(
        env,
        preset,
        seed,
        timesteps,
        *(float(value) for value in (final.mean, final.std, best.mean, best.std)),
        float(reached.min()) if len(reached) else math.nan,
        *(round(curve.clock.seconds, 1), round(curve.clock.cpu_seconds, 1)),
        versions(),
        aim,
        settings,
        flags,
    )


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
