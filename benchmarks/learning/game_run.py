"""One training on a game, in this process: `python -m benchmarks.learning.game_run JSON`; its Score on stdout."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.child_process import answer_once
from benchmarks.learning.runs.training_folder import load, trained
from benchmarks.learning.runs.training_queue import parsed_flags
from benchmarks.machine import versions
from fastes.cli.arguments import parse_env_kwargs
from fastes.reports.progress_rows import Numbers, read_progress
from fastes.runs.run_config import PROGRESS

EPISODES = 30
FRAME_SKIP = 4  # frames that a decision lasts, unless flags say otherwise
_FIRST_SEED = 20_000  # of games that no training, evaluation or choice between checkpoints has


class Score(NamedTuple):
    """A line of the CSV file.

    Attributes:
        flags: Given to `fastes train`; '' for the preset alone.
        timesteps: The budget, in decisions.
        decisions: That were played, those of evaluations included.
        cpu_seconds: Spent by the training in all its processes, one after the other.
        score, std, worst: Returns of the parameters in best.zip, over EPISODES games without noise.
        curve: Medians of the evaluations in each tenth of the training, separated by spaces.
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
    curve: str
    versions: str

    @property
    def frames(self) -> float:
        """Frames of the decisions that were played."""
        return self.decisions * parse_env_kwargs(parsed_flags(self.flags).env_kwargs or ()).get("frame_skip", FRAME_SKIP)

    @property
    def returns(self) -> list[float]:
        """The medians of `curve`."""
        return [float(median) for median in self.curve.split()]

    @property
    def told(self) -> str:
        """In a few words, for messages."""
        return f"{self.score:g} +- {self.std:g}, worst {self.worst:g}"


def train(game: str, flags: str, seed: int, timesteps: int, runs: str) -> Score:
    """Train, or resume what an earlier process left, then play what is in best.zip.

    Args:
        runs: Folder for run folders.
    """
    folder = trained(f"ALE/{game}-v5", shlex.split(flags), seed, timesteps, Path(runs))
    rows = read_progress(folder / PROGRESS, ("timesteps", "eval_timesteps", "cpu_seconds", "eval_at", "eval_return"))
    played, in_evaluations, cpu_seconds = (float(rows[name][-1]) for name in ("timesteps", "eval_timesteps", "cpu_seconds"))
    with load(folder / "best.zip", f"ALE/{game}-v5") as model:
        returns = model.evaluate(EPISODES, first_seed=_FIRST_SEED).returns
    mean, std, worst = (round(float(value), 1) for value in (returns.mean(), returns.std(), returns.min()))
    decisions, seconds = round(played + in_evaluations), round(cpu_seconds)
    curve = _curve(rows["eval_at"], rows["eval_return"], timesteps)
    return Score(game, flags, seed, timesteps, decisions, seconds, mean, std, worst, curve, versions("ale-py"))


def _curve(at: Numbers, returns: Numbers, timesteps: int) -> str:
    """Score.curve of evaluations (rows,): NaN in rows without one, and for tenths without one."""
    told = np.isfinite(returns)
    tenths = np.split(returns[told], np.searchsorted(at[told], timesteps * np.arange(1, 10) / 10))
    return " ".join(f"{np.median(tenth):g}" if len(tenth) else "nan" for tenth in tenths)


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
