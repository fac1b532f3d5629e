"""Trainings of Humanoid-v5, from their run folders: what they reached after how many core-hours, beside published ones.

The trainings themselves are `fastes train Humanoid-v5`, with what a user gets. One takes hours: those that earlier calls
reported stay in the files of --out.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.csv_records import merge_records
from benchmarks.learning.reports.ended_trainings import machine_lines, machine_of, read_trainings, report_parser
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import print_report, write_sections
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.learning.runs.run_folder import Ended
from benchmarks.published import HUMANOID_MINUTES
from benchmarks.tables import markdown_table
from fastes import FastES
from fastes.checkpoints.locate import find_checkpoint

ENV = "Humanoid-v5"
RETURNS = (1000, 2000, 4000, 6000)  # whose core-hours are noted, as to_1000 and so on
EPISODES = 100
# Core-hours to a return of 6000 on the Humanoid of their day
PUBLISHED = {
    **{f"Salimans et al. 2017, {cores:,} cores": cores * minutes / 60 for cores, minutes in HUMANOID_MINUTES.items()},
    "ARS (Mania et al. 2018), 48 CPUs, median of 100 seeds": 48 * 21 / 60,
}
_PUBLISHED_RETURN = 6000
_POINTS = 60  # of a curve that is kept


class Training(NamedTuple):
    """One training.

    settings: their fingerprint.
    steps, core_hours: as `runs.run_folder` counts them.
    score, std, worst, length: returns and mean length of `episodes` noise-free ones with the parameters that were kept.
    to_*: core-hours until the running median of evaluations was first there, inf for never.
    machine: processor, of the machine that reports, and versions.
    """

    seed: int
    settings: str
    steps: int
    core_hours: float
    score: float
    std: float
    worst: float
    length: float
    episodes: int
    to_1000: float
    to_2000: float
    to_4000: float
    to_6000: float
    machine: str

    @property
    def reached(self) -> tuple[float, ...]:
        """Core-hours to each of RETURNS."""
        return self.to_1000, self.to_2000, self.to_4000, self.to_6000


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


def training_of(run: Ended) -> Training:
    """Plays the episodes that `fastes eval RUN` plays."""
    with FastES.load(find_checkpoint(run.folder, "best"), n_workers=1) as model:
        played, settings = model.evaluate(EPISODES), fingerprint(model.settings)
    told = (played.mean, played.std, float(played.returns.min()), float(played.lengths.mean()))
    reached = (round(hours_to(run, score), 3) for score in RETURNS)
    return Training(
        *(run.seed, settings, run.steps, round(run.core_hours, 3)),
        *(round(value, 2) for value in told),
        *(len(played.returns), *reached, machine_of(run)),
    )


def table(trainings: Sequence[Training]) -> str:
    header = ("seed", "settings", "steps", "core-hours", "episodes", "score", "worst", "mean length")
    rows = [
        (
            *(str(each.seed), each.settings, f"{each.steps / 1e6:.1f}M", f"{each.core_hours:.2f}", str(each.episodes)),
            *(f"{each.score:.0f} +- {each.std:.0f}", f"{each.worst:.0f}", f"{each.length:.0f}"),
            *(f"{hours:.2f}" if math.isfinite(hours) else "never" for hours in each.reached),
        )
        for each in trainings
    ]
    return markdown_table((*header, *(f"core-hours to {score}" for score in RETURNS)), rows)


def of_all(trainings: Sequence[Training]) -> str:
    """The median and the worst over seeds with the same settings, of the last seed's; '' for one seed."""
    same = [each for each in trainings if each.settings == trainings[-1].settings]
    if len(same) < 2:
        return ""
    scores, hours = [each.score for each in same], [each.to_6000 for each in same]
    reached = f"{sum(map(math.isfinite, hours))} of {len(same)} seeds with settings {same[0].settings} reach 6000"
    when = f", after {median:.2f} core-hours by the median" if math.isfinite(median := statistics.median(hours)) else ""
    return f"{reached}{when}; the median of their scores is {statistics.median(scores):.0f}, the worst {min(scores):.0f}."


def draw(points: Sequence[Point], path: Path) -> None:
    """A line a seed over core-hours, and where published trainings reached 6000."""
    figure, (panel,) = new_figure(1, 1)
    for seed in sorted({point.seed for point in points}):
        line = [point for point in points if point.seed == seed]
        panel.plot([point.core_hours for point in line], [point.score for point in line], label=f"seed {seed}")
    for (name, hours), marker in zip(PUBLISHED.items(), "ovs", strict=True):
        panel.plot([hours], [_PUBLISHED_RETURN], marker, color="grey", label=name)
    panel.set(title=ENV, xlabel="core-hours", ylabel="noise-free score, running median", xscale="log")
    figure.legend(fontsize=8, loc="outside lower center")  # a curve may be anywhere
    save(figure, path)


def write_report(arguments: argparse.Namespace) -> Path:
    runs = read_trainings(arguments.runs)
    if others := [run.env for run in runs if run.env != ENV]:
        raise SystemExit(f"expected run folders of {ENV}, got one of {others[0]}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    new = [training_of(run) for run in runs]
    trainings = merge_records(arguments.out / "runs.csv", Training, new, key=lambda each: each.seed)
    of_runs = [point for run in runs for point in points_of(run)]
    points = merge_records(arguments.out / "curves.csv", Point, of_runs, key=lambda point: point.seed)
    draw(points, arguments.out / "humanoid.png")
    told = (
        f"`python -m benchmarks.learning.humanoid`, from run folders of `fastes train {ENV}`, whose policy sees positions and "
        "velocities alone. Steps count those of evaluations, and not the archive's race at the end. Scores are of "
        "noise-free episodes with the parameters that were kept. A return is reached when the running "
        "median of evaluations is there. Published trainings were on the Humanoid of their day, with all observations."
    )
    published = markdown_table(
        (f"published, to {_PUBLISHED_RETURN}", "core-hours"), [(name, f"{hours:.0f}") for name, hours in PUBLISHED.items()]
    )
    machines = machine_lines(each.machine for each in trainings)
    parts = [f"# {ENV}", told, machines, table(trainings), of_all(trainings), published, "![Curves](humanoid.png)"]
    return write_sections(arguments.out / "humanoid.md", parts)


def main() -> None:
    files = "runs.csv, curves.csv, humanoid.md and humanoid.png"
    arguments = report_parser("benchmarks.learning.humanoid", __doc__, "runs/Humanoid-v5/1", files).parse_args()
    print_report(lambda: write_report(arguments))


if __name__ == "__main__":
    main()
