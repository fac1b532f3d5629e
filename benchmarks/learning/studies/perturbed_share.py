"""Steps until two small tasks are solved by policies of 1.7 million parameters, over the share of them that a pair perturbs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes, final_scores
from benchmarks.learning.reports.thresholds import first_reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.memory import row_of
from benchmarks.learning.studies.short import fastes_for
from benchmarks.learning.studies.study import Study, nothing_to_check
from benchmarks.options import COUNT
from benchmarks.peers.zoo import changed_settings
from benchmarks.tables import markdown_table

SHARES = (1.0, 0.5, 0.1, 0.01)


class Large(NamedTuple):
    """A task and a policy far larger than it needs. solved: the return at which a training ends."""

    solved: float
    settings: dict[str, Any]


_ALIKE: dict[str, Any] = {"population_size": 64, "sigma": 0.05, "learning_rate": 0.02, "obs_warmup": False}
TASKS = {
    "CartPole-v1": Large(475.0, {**_ALIKE, "policy": "MlpPolicy", "policy_kwargs": {"net_arch": [1300, 1300]}}),
    "fastes/Catch-v0": Large(
        1.0,
        {
            **_ALIKE,
            "policy_kwargs": {"cnn": [[16, 3, 1]], "features_extractor_kwargs": {"features_dim": 4400}},
        },
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--envs", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="ID", help="(default: all)")
    parser.add_argument("--timesteps", type=COUNT, default=400_000, metavar="N", help="given up after (default: 400,000)")


def contestant(env: str, share: float) -> str:
    return fastes_for(env, **TASKS[env].settings, perturbed_share=share)


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    budget = Budget(steps=arguments.timesteps)
    return [
        Task(env, contestant(env, share), seed, budget, points=60, episodes=50, final_episodes=100, stop_at=TASKS[env].solved)
        for seed in seeds
        for env in arguments.envs
        for share in SHARES
    ]


def condition(row: Row) -> dict[str, Any]:
    share = changed_settings(row.algo)["perturbed_share"]
    return {"env": row.env, "share": share, "solved": row.score >= TASKS[row.env].solved}


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    figure, panels = new_figure(len(arguments.envs))
    rows = []
    for env, panel in zip(arguments.envs, panels, strict=True):
        medians = []
        for share in SHARES:
            found = [run for run in runs if (run.final.env, run.final.algo) == (env, contestant(env, share))]
            steps = sorted(first_reached(run, TASKS[env].solved, "steps") for run in found)
            if steps:
                rows.append((env, f"{share:g}", *row_of(steps), final_scores(found)))
                medians.append((share, min(float(np.median(steps)), arguments.timesteps)))
        panel.plot(*zip(*medians, strict=True), marker="o")
        panel.set(xlabel="perturbed_share", ylabel=f"steps until solved ({arguments.timesteps:,}: never)", title=env)
        panel.set(xscale="log", yscale="log")
    save(figure, folder / "perturbed_share.png")
    header = ("environment", "share", "solved", "median steps", "most steps", "final return")
    return "\n\n".join(
        (
            "Steps until the mean of 50 noise-free episodes is that of a solved task, evaluation steps of the training among "
            "them; then the return of 100 other episodes, median and range over seeds.",
            markdown_table(header, rows),
            cpu_minutes(runs),
        )
    )


STUDY = Study(
    "Shares of a large policy's parameters that a pair perturbs: steps until solved",
    3,
    add_options,
    nothing_to_check,
    tasks,
    condition,
    write,
)
