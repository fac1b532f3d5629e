"""Larger populations: generations and steps to a return, for multiples of a preset's population and rules for its step."""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.child_process import Child
from benchmarks.csv_records import read_records
from benchmarks.learning.reports.sections import write_sections
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.learning.studies.population_run import Point
from benchmarks.learning.studies.population_table import WORKERS, Reached, draw, first_reached, section, time_on
from benchmarks.machine import cpu_model, usable_cpus, versions
from benchmarks.options import COUNT, COUNT_OR_0, above_zero
from fastes.settings.preset_loader import choose_settings
from fastes.settings.settings import Settings

QUESTION = "Larger populations: what each factor saves in generations, and costs in steps"
RATES = {"same": 0.0, "fourth": 0.25, "root": 0.5, "linear": 1.0}  # powers of the factor that multiply the learning rate
GROWTHS = ("generations", "steps")  # what the horizon of episode_cap="grow" follows
ELITES = ("share", "number")  # what of the preset's best pairs stays as it is
_RUN = "benchmarks.learning.studies.population_run"


class Course(NamedTuple):
    """returns: whose first generations are looked for, rising; training ends at the last. most_steps: of candidates, at a
    factor of 1; others have a root of the factor times as many."""

    returns: tuple[float, ...]
    most_steps: int


COURSES = {
    "HalfCheetah-v5": Course((2000.0, 3000.0), 3_000_000),
    "Ant-v5": Course((1500.0, 2000.0), 1_500_000),
    "Hopper-v5": Course((1000.0, 2000.0), 2_000_000),
}


class Case(NamedTuple):
    """One training. rate, growth, elites: the rules, keys of RATES, GROWTHS and ELITES; at a factor of 1 they are one."""

    env: str
    factor: int
    rate: str
    growth: str
    elites: str
    seed: int

    @property
    def name(self) -> str:
        return "-".join(str(value).replace("/", "-") for value in self)


def first_value(schedule: Any) -> float:
    """What a schedule of the preset begins with: schedules follow a budget, and a run to a return has none."""
    return float(schedule.split("_")[1]) if isinstance(schedule, str) else float(schedule)


def preset_of(env: str) -> Settings:
    return choose_settings(env, None, {})


def changes_of(case: Case) -> dict[str, Any]:
    """What the case changes in the preset. One start, and schedules that stay at their first value: nothing has a budget."""
    preset, factor = preset_of(case.env), case.factor
    changes: dict[str, Any] = {
        "population_size": preset.population_size * factor,
        "learning_rate": first_value(preset.learning_rate) * factor ** RATES[case.rate],
        "sigma": first_value(preset.sigma),
        "starts": 1,
        "obs_freeze_after": preset.obs_freeze_after * factor,
    }
    if case.elites == "number":
        changes["top_fraction"] = preset.top_fraction / factor
    if preset.episode_cap == "grow" and case.growth == "steps":
        changes["episode_cap_factor"] = preset.episode_cap_factor**factor
    return changes


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """In an order that shows something early: seed by seed, small factors first."""
    found = []
    rules = list(itertools.product(arguments.rates, arguments.growths, arguments.elites))
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for env, seed, factor in itertools.product(arguments.courses, seeds, sorted(arguments.factors)):
        found += [Case(env, factor, *each, seed) for each in (rules if factor > 1 else [("same", "generations", "share")])]
    return list(dict.fromkeys(found))


class Training:
    """A case that is not done; its file is written when it is."""

    def __init__(self, case: Case, arguments: argparse.Namespace, failures: list[str]) -> None:
        self.case, self.folder, self.failures = case, arguments.out, failures
        self.course: Course = arguments.courses[case.env]

    def start(self, cpus: Sequence[int]) -> Child:
        case, folder = self.case, self.folder
        given = {
            "env": case.env,
            "preset": case.env,
            "seed": case.seed,
            "changes": changes_of(case),
            "stop_at": self.course.returns[-1],
            "most_steps": int(self.course.most_steps * math.sqrt(case.factor)),
            "n_workers": len(cpus) if len(cpus) > 1 else 0,
        }
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return Child(_RUN, given, cpus, 1, folder, logs / f"{case.name}.log")

    def note(self, record: dict[str, Any]) -> None:
        points = [Point(*point) for point in record["points"]]
        path = points_file(self.folder, self.case)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        with open(unfinished, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([Point._fields, *points])
        os.replace(unfinished, path)
        told = [f"{aim:g} {_told(points, first_reached(points, aim))}" for aim in self.course.returns]
        print(f"{self.case.name}: {', '.join(told)}; {points[-1].seconds:.0f} s", file=sys.stderr, flush=True)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"{self.case.name} failed: {failure}")


def _told(points: Sequence[Point], found: int | None) -> str:
    return "never" if found is None else f"after {points[found].generation} generations, {points[found].steps:,} steps"


def points_file(folder: Path, case: Case) -> Path:
    return folder / "points" / f"{case.name}.csv"


def read_reached(arguments: argparse.Namespace, cases: Iterable[Case]) -> list[Reached]:
    """A line a return of each case that is done."""
    found, machine = [], f"{cpu_model()}; {versions()}"
    for case in cases:
        points = read_records(points_file(arguments.out, case), Point)
        population = preset_of(case.env).population_size * case.factor
        for aim in arguments.courses[case.env].returns if points else ():
            at = first_reached(points, aim)
            when = [math.inf] * (2 + len(WORKERS))
            if at is not None:
                times = (time_on(workers, points[: at + 1], population) for workers in WORKERS)
                when = [points[at].generation, points[at].steps, *map(round, times)]
            found.append(Reached(*case, population, aim, *when, points[-1].steps, machine))
    return found


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.studies populations", description=QUESTION)
    parser.add_argument("--env", nargs="+", default=list(COURSES), metavar="ID", help="default: %(default)s")
    parser.add_argument("--factors", type=COUNT, nargs="+", default=[1, 2, 4, 8, 16], metavar="K", help="default: %(default)s")
    for name, choices, known in (("rates", RATES, "fourth"), ("growths", GROWTHS, "generations"), ("elites", ELITES, "share")):
        parser.add_argument(f"--{name}", nargs="+", default=[known], choices=choices, help=f"default: {known}")
    parser.add_argument("--returns", type=float, nargs="+", metavar="R", help="to look for (default: an environment's own)")
    parser.add_argument("--most-steps", type=above_zero, metavar="N", help="given up after, times the root of the factor")
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="trainings of each case (default: 3)")
    parser.add_argument("--first-seed", type=COUNT_OR_0, default=0, metavar="K", help="seeds are K, K + 1, ... (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="trainings finished in it are kept")
    parser.add_argument("--cores", type=COUNT, default=1, metavar="N", help="CPUs of a training (default: 1)")
    parser.add_argument("--report-only", action="store_true", help="run nothing: write the report anew from what is there")
    arguments = parser.parse_args(given)
    unknown = [env for env in arguments.env if env not in COURSES]
    if unknown and (arguments.returns is None or arguments.most_steps is None):
        parser.error(f"{unknown[0]} has no known returns: give --returns and --most-steps")
    for env in arguments.env:
        if steps := preset_of(env).generation_timesteps:
            parser.error(
                f"the preset of {env} has generation_timesteps = {steps!r}, so that its generations have no fixed number of "
                "candidates: leave it out"
            )
    arguments.courses = {
        env: Course(
            tuple(sorted(arguments.returns or COURSES[env].returns)), int(arguments.most_steps or COURSES[env].most_steps)
        )
        for env in arguments.env
    }
    arguments.out = (arguments.out / "populations").absolute()
    return arguments


def run(given: Sequence[str]) -> None:
    """Train what is missing; write populations.csv, populations.png and report.md of what was asked for."""
    arguments, failures = parsed(given), list[str]()
    cases = cases_of(arguments)
    if not arguments.report_only:
        arguments.out.mkdir(parents=True, exist_ok=True)
        missing = (Training(case, arguments, failures) for case in cases if not points_file(arguments.out, case).exists())
        with resumable():
            run_jobs(missing, [usable_cpus(arguments.cores)])
    print(write_report(arguments, cases).read_text(encoding="utf-8"))
    if failures:
        raise SystemExit("\n".join(failures))


def write_report(arguments: argparse.Namespace, cases: Sequence[Case]) -> Path:
    rows = read_reached(arguments, cases)
    if not rows:
        raise SystemExit(f"no finished training of these options in {arguments.out}")
    with open(arguments.out / "populations.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Reached._fields, *rows])
    draw(rows, arguments.out / "populations.png")
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in rows}))
    text = (
        "Theta whose noise-free evaluation has, with two before and two after it, a median of the return: generations and "
        f"environment steps of candidates until then, median and worst of seeds {seeds}. Faster: times computed for so many "
        "workers, in steps that follow one another."
    )
    courses = dict.fromkeys((row.env, row.aim) for row in rows)
    sections = [section([row for row in rows if (row.env, row.aim) == course]) for course in courses]
    return write_sections(arguments.out / "report.md", [f"# {QUESTION}", text, *sections, "![Populations](populations.png)"])
