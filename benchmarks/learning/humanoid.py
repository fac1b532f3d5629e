"""Trainings of Humanoid-v5, from their run folders: what they reached after how many core-hours, beside published ones.

The trainings themselves are `fastes train Humanoid-v5`, with what a user gets.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.csv_records import write_records
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import write_sections
from benchmarks.learning.runs.run_folder import Ended, read_ended
from benchmarks.machine import cpu_model
from benchmarks.published import HUMANOID_MINUTES
from benchmarks.tables import markdown_table
from fastes.errors import FastESError

ENV = "Humanoid-v5"
RETURNS = (1000, 2000, 4000, 6000)  # whose core-hours the table has
# Core-hours to a return of 6000 on the Humanoid of their day
PUBLISHED = {
    **{f"Salimans et al. 2017, {cores:,} cores": cores * minutes / 60 for cores, minutes in HUMANOID_MINUTES.items()},
    "ARS (Mania et al. 2018), 48 CPUs, median of 100 seeds": 48 * 21 / 60,
}
_PUBLISHED_RETURN = 6000
_POINTS = 60  # of a curve that is kept


class Point(NamedTuple):
    """The running median of a training's evaluations. steps: of candidates; core_hours: until then."""

    seed: int
    steps: int
    core_hours: float
    score: float


def points_of(run: Ended) -> list[Point]:
    return [
        Point(run.seed, int(run.at[k]), round(float(run.hours[k]), 4), round(float(run.median[k]), 1))
        for k in run.sampled(_POINTS)
    ]


def hours_to(run: Ended, score: float) -> float:
    """Core-hours until the running median was first there, inf for never."""
    there = np.flatnonzero(run.median >= score)
    return float(run.hours[there[0]]) if len(there) else math.inf


def table(runs: Sequence[Ended]) -> str:
    header = ("seed", "steps", "core-hours", "score", "worst", *(f"core-hours to {score}" for score in RETURNS))
    rows = [
        (
            *(str(run.seed), f"{run.steps / 1e6:.1f}M", f"{run.core_hours:.2f}"),
            f"{run.outcome.mean:.0f} +- {run.outcome.std:.0f}",
            f"{run.outcome.worst:.0f}",
            *(f"{hours:.2f}" if math.isfinite(hours) else "never" for hours in (hours_to(run, score) for score in RETURNS)),
        )
        for run in runs
    ]
    return markdown_table(header, rows)


def draw(points: Sequence[Point], path: Path) -> None:
    """A line a seed over core-hours, and where published trainings reached 6000."""
    figure, (panel,) = new_figure(1, 1)
    for seed in sorted({point.seed for point in points}):
        line = [point for point in points if point.seed == seed]
        panel.plot([point.core_hours for point in line], [point.score for point in line], label=f"seed {seed}")
    for (name, hours), marker in zip(PUBLISHED.items(), "ovs", strict=True):
        panel.plot([hours], [_PUBLISHED_RETURN], marker, color="grey", label=name)
    panel.set(title=ENV, xlabel="core-hours", ylabel="noise-free score, running median", xscale="log")
    panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16))  # below: a curve may be anywhere
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.humanoid", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, such as runs/Humanoid-v5/1")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where curves.csv, humanoid.md and .png go")
    arguments = parser.parse_args()
    try:
        runs = sorted((read_ended(folder) for folder in arguments.runs), key=lambda run: run.seed)
    except FastESError as error:
        raise SystemExit(str(error)) from None
    if others := [run.env for run in runs if run.env != ENV]:
        raise SystemExit(f"expected run folders of {ENV}, got one of {others[0]}")
    if len({run.seed for run in runs}) < len(runs):
        raise SystemExit("expected one run of each seed: the curve of a seed is one line")
    arguments.out.mkdir(parents=True, exist_ok=True)
    points = [point for run in runs for point in points_of(run)]
    write_records(arguments.out / "curves.csv", points)
    draw(points, arguments.out / "humanoid.png")
    told = (
        f"`python -m benchmarks.learning.humanoid`, from run folders of `fastes train {ENV}`, whose policy sees positions and "
        "velocities alone. Steps count those of evaluations, and not the archive's race at the end. Scores are over "
        f"{runs[0].outcome.episodes} noise-free episodes of the parameters that were kept. A score is reached when the running "
        "median of evaluations is there. Published trainings were on the Humanoid of their day, with all observations."
    )
    published = markdown_table(
        (f"published, to {_PUBLISHED_RETURN}", "core-hours"), [(name, f"{hours:.0f}") for name, hours in PUBLISHED.items()]
    )
    made = "\n".join(f"- {each}" for each in sorted({f"{cpu_model()}; {run.versions}" for run in runs}))
    parts = [f"# {ENV}", told, made, table(runs), published, "![Curves](humanoid.png)"]
    print(write_sections(arguments.out / "humanoid.md", parts).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
