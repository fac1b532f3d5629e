"""Steps until the T-maze is solved, for policies with and without a memory, over the corridor's length."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes, final_scores
from benchmarks.learning.reports.thresholds import first_reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.changed import MAZE, of_length
from benchmarks.learning.studies.short import fastes_for
from benchmarks.learning.studies.study import Study, nothing_to_check
from benchmarks.options import COUNT
from benchmarks.tables import markdown_table

# tuned on seeds from 1000 up
SETTINGS: dict[str, Any] = {"population_size": 64, "sigma": 0.2, "learning_rate": 0.05}
POLICIES = {
    "MLP": fastes_for(MAZE, **SETTINGS, policy="MlpPolicy"),
    "LSTM": fastes_for(MAZE, **SETTINGS, policy="MlpLstmPolicy"),
    "GRU": fastes_for(MAZE, **SETTINGS, policy="MlpLstmPolicy", policy_kwargs={"cell": "gru"}),
}
_SOLVED = 1.0  # the best return, in each of the episodes
_LENGTH = 10  # of MAZE itself


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[5, 10, 20, 30], metavar="N", help="(default: 5 10 20 30)")
    parser.add_argument("--timesteps", type=COUNT, default=1_000_000, metavar="N", help="given up after (default: 1,000,000)")


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    """Evaluated at 100 points, each 5 % later than the last one, by 50 episodes: no guess is right as often."""
    budget = Budget(steps=arguments.timesteps)
    return [
        Task(of_length(length), algo, seed, budget, points=100, episodes=50, final_episodes=200, stop_at=_SOLVED)
        for seed in seeds
        for length in arguments.lengths
        for algo in POLICIES.values()
    ]


def length_of(env: str) -> int:
    return int(env.partition(":length")[2].partition("/")[0] or _LENGTH)


def condition(row: Row) -> dict[str, Any]:
    policy = next(name for name, algo in POLICIES.items() if algo == row.algo)
    return {"length": length_of(row.env), "policy": policy, "solved": row.score >= _SOLVED}


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    figure, (panel,) = new_figure(1)
    rows = []
    for name, algo in POLICIES.items():
        at, medians = [], []
        for length in arguments.lengths:
            found = [run for run in runs if run.final.algo == algo and length_of(run.final.env) == length]
            steps = sorted(first_reached(run, _SOLVED, "steps") for run in found)
            if steps:
                rows.append((f"{length}", name, *row_of(steps), final_scores(found)))
                at.append(length)
                medians.append(float(np.median(steps)))
        panel.plot(at, [min(each, arguments.timesteps) for each in medians], marker="o", label=name)
    panel.set(xlabel="length of the corridor", ylabel=f"steps until solved ({arguments.timesteps:,}: never)", yscale="log")
    panel.legend()
    save(figure, folder / "memory.png")
    header = ("length", "policy", "solved", "median steps", "most steps", "final return")
    return "\n\n".join(
        (
            "Steps until all of 50 noise-free episodes end on the right side, evaluation steps of the training among them; "
            "then the return of 200 other episodes, median and range over seeds. Whoever guesses gets 0.",
            markdown_table(header, sorted(rows, key=lambda row: int(row[0]))),
            cpu_minutes(runs),
        )
    )


def row_of(steps: list[float]) -> tuple[str, str, str]:
    solved = sum(math.isfinite(each) for each in steps)
    middle, most = (f"{each:,.0f}" if math.isfinite(each) else "never" for each in (float(np.median(steps)), steps[-1]))
    return f"{solved} of {len(steps)}", middle, most


STUDY = Study(
    "T-maze: steps until solved, with and without a memory", 5, add_options, nothing_to_check, tasks, condition, write
)
