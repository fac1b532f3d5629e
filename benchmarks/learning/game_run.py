"""One training on a game, in this process: `python -m benchmarks.learning.game_run JSON`; its Score on stdout."""

from __future__ import annotations

import csv
import os
import shlex
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from benchmarks.child_process import answer_once
from benchmarks.machine import versions
from fastes import FastES
from fastes.cli.main import main

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
    home = Path(runs) / "-".join((game, str(seed), *shlex.split(flags))).replace("/", "-")
    if (played := _played(home))["timesteps"] < timesteps:
        if played["timesteps"]:
            given = ["--resume", str(_run_folder(home))]  # which keeps its settings
        else:
            own = ["--seed", str(seed), "--runs", str(home), "--target-return", "none"]
            given = [f"ALE/{game}-v5", *own, *shlex.split(flags)]
        if status := main(["train", *given, "--total-timesteps", str(timesteps), "--workers", "0", "--quiet"]):
            raise RuntimeError(f"fastes train ended with status {status}")
        played = _played(home)
    with FastES.load(_run_folder(home) / "best.zip", n_workers=0) as model:
        returns = model.evaluate(EPISODES, first_seed=_FIRST_SEED).returns
    decisions = round(played["timesteps"] + played["eval_timesteps"])
    mean, std, worst = (round(float(value), 1) for value in (returns.mean(), returns.std(), returns.min()))
    return Score(game, flags, seed, timesteps, decisions, round(played["cpu_seconds"]), mean, std, worst, _versions())


def _versions() -> str:
    return f"{versions()}, ale-py {metadata.version('ale-py')}"


def _run_folder(home: Path) -> Path:
    """The run folder of a training that has one; a process that was killed before its first checkpoint leaves others."""
    return max(home.glob("*/*/checkpoint.zip"), key=os.path.getmtime).parent


def _played(home: Path) -> dict[str, float]:
    """The counters of a training so far, as the last line of progress.csv has them."""
    if not list(home.glob("*/*/checkpoint.zip")):
        return {"timesteps": 0.0}
    with open(_run_folder(home) / "progress.csv", newline="", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    return {name: float(last[name]) for name in ("timesteps", "eval_timesteps", "cpu_seconds")}


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
