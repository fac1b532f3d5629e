"""One training on a game, in this process: `python -m benchmarks.learning.game_run JSON`; its Score on stdout."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from benchmarks.child_process import answer_once
from benchmarks.machine import versions
from fastes import FastES
from fastes.cli.main import main
from fastes.reports.progress_rows import read_progress
from fastes.runs.run_config import PROGRESS
from fastes.runs.run_folder import RunFolder

EPISODES = 30
_FIRST_SEED = 20_000  # of games that no training, evaluation or choice between checkpoints has


class Score(NamedTuple):
    """A line of the CSV file.

    Attributes:
        flags: Given to `fastes train`; '' for the preset alone.
        timesteps: The budget, in decisions.
        decisions: That were played, those of evaluations included.
        cpu_seconds: Spent by the training in all its processes, one after the other.
        score, std, worst: Returns of the parameters in best.zip, over EPISODES games without noise.
    """

    game: str
    flags: str
    seed: int
    timesteps: int
    decisions: int
    cpu_seconds: float
    score: float
    std: float
    worst: float
    versions: str


def train(game: str, flags: str, seed: int, timesteps: int, runs: str) -> Score:
    """Train as `fastes train` does, or resume the run folder of an earlier process, then play what it leaves in best.zip.

    Args:
        runs: Folder for run folders; those of this training lie in one of its own in it.
    """
    home = Path(runs) / "-".join((game, str(seed), str(timesteps), *shlex.split(flags))).replace("/", "-")
    saved = list(home.glob("*/*/checkpoint.zip"))  # a process that was killed before its first checkpoint leaves other folders
    folder = saved[0].parent if saved else None
    if folder is None:
        own = ["--seed", str(seed), "--runs", str(home), "--target-return", "none", "--total-timesteps", str(timesteps)]
        _fastes("train", f"ALE/{game}-v5", *own, *shlex.split(flags))
        folder = next(home.glob("*/*/checkpoint.zip")).parent
    elif not RunFolder(folder).finished:
        _fastes("train", "--resume", str(folder))  # which keeps its settings and its budget
    counted = read_progress(folder / PROGRESS, ("timesteps", "eval_timesteps", "cpu_seconds"))
    played, in_evaluations, cpu_seconds = (float(column[-1]) for column in counted.values())
    with FastES.load(folder / "best.zip", n_workers=0) as model:
        returns = model.evaluate(EPISODES, first_seed=_FIRST_SEED).returns
    mean, std, worst = (round(float(value), 1) for value in (returns.mean(), returns.std(), returns.min()))
    return Score(
        game, flags, seed, timesteps, round(played + in_evaluations), round(cpu_seconds), mean, std, worst, versions("ale-py")
    )


def _fastes(*arguments: str) -> None:
    if status := main([*arguments, "--workers", "0", "--quiet"]):
        raise RuntimeError(f"fastes {shlex.join(arguments)} ended with status {status}, as is said above")


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
