"""Wall time to the optimal cycle of the cyclic MDP: FastES beside PPO, with the library's settings and with CartPole's."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.learning.reports.plots import COLOURS, new_figure, save
from benchmarks.learning.reports.sections import cpu_minutes
from benchmarks.learning.reports.thresholds import first_reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run
from benchmarks.learning.studies.changed import CYCLE, CYCLE_STEPS, cut_after
from benchmarks.learning.studies.study import Study, nothing_to_check
from benchmarks.options import above_zero
from benchmarks.tables import markdown_table

ALGOS = {
    "fastes": "FastES",
    "ppo": "PPO, SB3's defaults (Zoo has none)",
    "ppo+CartPole-v1": "PPO, Zoo's settings for CartPole",
}
AIM_SECONDS = 10.0
_STEPS = (CYCLE_STEPS[0], int(gymnasium.spec(CYCLE).max_episode_steps or 0), *CYCLE_STEPS[1:])


def optimum(steps: int) -> float:
    """The best return within a cap of so many steps: +1, +1, +2 in turn."""
    return 4.0 * (steps // 3) + steps % 3


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[30, 99, 300], choices=_STEPS, help="caps (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=above_zero, default=20.0, metavar="S", help="given up after (default: 20)")


def tasks(arguments: argparse.Namespace, seeds: range) -> list[Task]:
    """Evaluated at 64 points, each 9 % later than the last one: nothing is random, so that one episode says all."""
    budget = Budget(seconds=arguments.seconds)
    return [
        Task(cut_after(steps), algo, seed, budget, points=64, episodes=1, final_episodes=1, stop_at=optimum(steps))
        for seed in seeds
        for steps in arguments.steps
        for algo in ALGOS
    ]


def steps_of(env: str) -> int:
    return int(env.partition(":steps")[2].partition("/")[0] or _STEPS[1])


def condition(row: Row) -> dict[str, Any]:
    return {"cap": steps_of(row.env), "algo": row.algo, "solved": row.score >= optimum(steps_of(row.env))}


def seconds_of(run: Run) -> float:
    """Wall seconds, imports left out, until an evaluation gave the optimum; infinity for never."""
    return first_reached(run, optimum(steps_of(run.final.env)), "wall")


def write(arguments: argparse.Namespace, runs: list[Run], folder: Path) -> str:
    figure, axes = new_figure(len(arguments.steps), sharey=True)
    rows, ours = [], []
    for panel, steps in zip(axes, arguments.steps, strict=True):
        for position, (algo, label) in enumerate(ALGOS.items()):
            times = sorted(seconds_of(run) for run in runs if run.final.env == cut_after(steps) and run.final.algo == algo)
            if not times:
                continue
            solved = [time for time in times if math.isfinite(time)]
            unsolved = [arguments.seconds] * (len(times) - len(solved))
            for marker, seconds in (("o", solved), ("x", unsolved)):
                panel.scatter([position] * len(seconds), seconds, color=COLOURS[algo], marker=marker, alpha=0.6)
            rows.append(row_of(f"{steps}", label, times))
            ours += times if algo == "fastes" else []
        panel.axhline(AIM_SECONDS, color="grey", linestyle=":")
        panel.set_yscale("log")
        panel.set_xticks(range(len(ALGOS)), ["FastES", "PPO,\ndefaults", "PPO,\nCartPole's"])
        panel.set_title(f"cap {steps}, optimum {optimum(steps):g}")
    axes[0].set_ylabel("wall seconds to the optimal cycle (x: not found)")
    save(figure, folder / "cyclic_mdp.png")
    header = ("cap", "contestant", "solved", f"under {AIM_SECONDS:g} s", "median s", "slowest s")
    return "\n\n".join(
        (
            "Wall seconds until the noise-free policy walks the optimal cycle to the cap; the clock starts after imports, "
            f"stands during evaluation, and is read at 64 points up to {arguments.seconds:g} s.",
            markdown_table(header, rows),
            f"{verdict(ours)} {cpu_minutes(runs)}",
        )
    )


def row_of(cap: str, label: str, times: list[float]) -> tuple[str, ...]:
    solved = [time for time in times if math.isfinite(time)]
    fast = sum(time < AIM_SECONDS for time in times)
    statistics = (f"{time:.2f}" if math.isfinite(time) else "never" for time in (float(np.median(times)), times[-1]))
    return (cap, label, f"{len(solved)} of {len(times)}", f"{fast} of {len(times)}", *statistics)


def verdict(times: list[float]) -> str:
    """FastES against the aim: every run, at every cap."""
    if not times:
        return "FastES has no finished run."
    fast = sum(time < AIM_SECONDS for time in times)
    reached = "reached" if fast == len(times) else "missed"
    return f"Aim, FastES in under {AIM_SECONDS:g} s on every seed: {reached} ({fast} of {len(times)} runs)."


STUDY = Study(
    "CyclicMDP: wall time to the optimal cycle, FastES and PPO", 10, add_options, nothing_to_check, tasks, condition, write
)
