"""Larger populations: generations and steps to a return, for multiples of a preset's population and rules for its step."""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.child_process import Child
from benchmarks.csv_records import read_records
from benchmarks.learning.reports.plots import new_figure, save
from benchmarks.learning.reports.sections import write_sections
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.learning.studies.population_run import WINDOW, Point
from benchmarks.machine import cpu_model, usable_cpus, versions
from benchmarks.options import COUNT, COUNT_OR_0, above_zero
from benchmarks.tables import amount, markdown_table
from fastes.settings.preset_loader import choose_settings
from fastes.settings.settings import Settings

QUESTION = "Larger populations: what each factor saves in generations, and costs in steps"
RATES = {"same": 0.0, "root": 0.5, "linear": 1.0}  # the power of the factor that multiplies the learning rate
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


class Reached(NamedTuple):
    """A line of populations.csv: when a training first had a return; both are infinite where it never did."""

    env: str
    factor: int
    rate: str
    growth: str
    elites: str
    seed: int
    population: int
    aim: float
    generations: float
    steps: float
    last_steps: int
    machine: str


def first_value(schedule: Any) -> float:
    """What a schedule of the preset begins with: schedules follow a budget, and a run to a return has none."""
    return float(schedule.split("_")[1]) if isinstance(schedule, str) else float(schedule)


def preset_of(env: str) -> Settings:
    return choose_settings(env, None, {})


def changes_of(case: Case) -> dict[str, Any]:
    """What the case changes in the preset. One start, and schedules that stay at their first value: no part of it has a budget."""
    preset, factor = preset_of(case.env), case.factor
    changes: dict[str, Any] = {
        "population_size": preset.population_size * factor,
        "learning_rate": first_value(preset.learning_rate) * factor ** RATES[case.rate],
        "sigma": first_value(preset.sigma),
        "starts": 1,
    }
    if case.elites == "number":
        changes["top_fraction"] = preset.top_fraction / factor
    if preset.episode_cap == "grow" and case.growth == "steps":
        changes["episode_cap_factor"] = preset.episode_cap_factor**factor
    return changes


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """In an order that shows something early: seed by seed, small factors first."""
    found = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for factor, rules in itertools.product(
            sorted(arguments.factors), itertools.product(arguments.rates, arguments.growths, arguments.elites)
        ):
            rules = rules if factor > 1 else ("same", "generations", "share")
            found.append(Case(arguments.env, factor, *rules, seed))
    return list(dict.fromkeys(found))


def first_reached(points: Sequence[Point], aim: float) -> Point | None:
    """The first evaluation that has a median of at least the aim together with two before and two after it."""
    half = WINDOW // 2
    for k in range(half, len(points) - half):
        if statistics.median(point.score for point in points[k - half : k + half + 1]) >= aim:
            return points[k]
    return None


class Training:
    """A case that is not done; its file is written when it is."""

    def __init__(self, case: Case, arguments: argparse.Namespace, failures: list[str]) -> None:
        self.case, self.arguments, self.failures = case, arguments, failures

    def start(self, cpus: Sequence[int]) -> Child:
        case, folder = self.case, self.arguments.out
        given = {
            "env": case.env,
            "preset": case.env,
            "seed": case.seed,
            "changes": changes_of(case),
            "stop_at": self.arguments.returns[-1],
            "most_steps": int(self.arguments.most_steps * math.sqrt(case.factor)),
            "n_workers": len(cpus) if len(cpus) > 1 else 0,
        }
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return Child(_RUN, given, cpus, 1, folder, logs / f"{case.name}.log")

    def note(self, record: dict[str, Any]) -> None:
        points = [Point(*point) for point in record["points"]]
        path = points_file(self.arguments.out, self.case)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        with open(unfinished, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([Point._fields, *points])
        os.replace(unfinished, path)
        said = [f"{aim:g} at {_told(first_reached(points, aim))}" for aim in self.arguments.returns]
        print(f"{self.case.name}: {', '.join(said)}; {points[-1].seconds:.0f} s", file=sys.stderr, flush=True)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"{self.case.name} failed: {failure}")


def _told(point: Point | None) -> str:
    return "no time" if point is None else f"generation {point.generation}, {point.steps:,} steps"


def points_file(folder: Path, case: Case) -> Path:
    return folder / "points" / f"{case.name}.csv"


def read_reached(arguments: argparse.Namespace, cases: Iterable[Case]) -> list[Reached]:
    """A line a case that is done and a return."""
    found = []
    machine = f"{cpu_model()}; {versions()}"
    for case in cases:
        points = read_records(points_file(arguments.out, case), Point)
        for aim in arguments.returns if points else ():
            point = first_reached(points, aim)
            when = (point.generation, point.steps) if point else (math.inf, math.inf)
            population = preset_of(case.env).population_size * case.factor
            found.append(Reached(*case, population, aim, *when, points[-1].steps, machine))
    return found


class Limit(NamedTuple):
    """McCandlish et al. 2018 (arXiv 1812.06162), equation 2.11 for populations: generations = least (1 + critical / factor).

    critical: the factor at which generations are twice the least, and steps twice those of a factor near 0.
    """

    least: float
    critical: float


def fitted_limit(factors: Sequence[float], generations: Sequence[float]) -> Limit:
    """Least squares of logarithms over factors and generations of single trainings; critical between 1/8 and 256."""
    at, seen = np.array(factors, dtype=np.float64), np.log(np.maximum(np.array(generations, dtype=np.float64), 1.0))
    criticals = 2.0 ** np.linspace(-3.0, 8.0, 221)
    shapes = np.log1p(criticals[:, None] / at)
    offsets = (seen - shapes).mean(axis=1)
    best = int(((seen - shapes - offsets[:, None]) ** 2).sum(axis=1).argmin())
    return Limit(float(np.exp(offsets[best])), float(criticals[best]))


def median_and_worst(values: Sequence[float]) -> str:
    """'38 (worst 52)'; 'never' for what is infinite."""
    median, worst = statistics.median(values), max(values)
    return f"{_amount(median)} (worst {_amount(worst)})" if len(values) > 1 else _amount(median)


def _amount(value: float) -> str:
    return amount(value) if math.isfinite(value) else "never"


def rules_of(row: Reached | Case) -> tuple[str, str, str]:
    return row.rate, row.growth, row.elites


def grouped(rows: Sequence[Reached], aim: float) -> dict[tuple[str, str, str], dict[int, list[Reached]]]:
    """Rules -> factor -> its lines for one return; a factor of 1 is in all."""
    plain = [row for row in rows if row.factor == 1 and row.aim == aim]
    rules = dict.fromkeys(rules_of(row) for row in rows if row.factor > 1) or dict.fromkeys(rules_of(row) for row in plain)
    return {
        each: {
            factor: [row for row in rows if row.factor == factor and row.aim == aim and rules_of(row) == each]
            for factor in sorted({row.factor for row in rows if rules_of(row) == each} - {1})
        }
        | ({1: plain} if plain else {})
        for each in rules
    }


def section(rows: Sequence[Reached], aim: float) -> str:
    """The table of one return."""
    header = ("rules: rate, growth, elites", "factor", "candidates", "generations", "1 / of 1", "steps", "times 1")
    lines = []
    for rules, by_factor in grouped(rows, aim).items():
        base = by_factor.get(1, [])
        for factor, found in sorted(by_factor.items()):
            medians = [statistics.median(getattr(row, name) for row in found) for name in ("generations", "steps")]
            bases = [statistics.median(getattr(row, name) for row in base) if base else math.nan for name in ("generations", "steps")]
            known = base and math.isfinite(sum(medians) + sum(bases))
            lines.append(
                (
                    ", ".join(rules),
                    str(factor),
                    str(found[0].population),
                    median_and_worst([row.generations for row in found]),
                    f"{bases[0] / max(medians[0], 1.0):.1f}" if known else "",
                    median_and_worst([row.steps for row in found]),
                    f"{medians[1] / max(bases[1], 1.0):.1f}" if known else "",
                )
            )
    return f"## {rows[0].env}: {aim:g}\n\n{markdown_table(header, lines)}\n\n{limits(rows, aim)}"


def limits(rows: Sequence[Reached], aim: float) -> str:
    """The fitted limit of each rule that has three factors."""
    told = []
    for rules, by_factor in grouped(rows, aim).items():
        found = [row for group in by_factor.values() for row in group if math.isfinite(row.generations)]
        if len({row.factor for row in found}) < 3:
            continue
        limit = fitted_limit([row.factor for row in found], [row.generations for row in found])
        size = found[0].population / found[0].factor * limit.critical
        told.append(
            f"- {', '.join(rules)}: generations = {limit.least:.1f} (1 + {limit.critical:.1f} / factor): critical factor "
            f"{limit.critical:.1f}, {size:.0f} candidates"
        )
    return "\n".join(told)


def draw(rows: Sequence[Reached], returns: Sequence[float], path: Path) -> None:
    """Generations and steps over the factor, a line a rule, dots for seeds; ideal lines in grey."""
    figure, axes = new_figure(2, len(returns))
    panels = iter(axes)
    for aim in returns:
        for name in ("generations", "steps"):
            panel = next(panels)
            for rules, by_factor in grouped(rows, aim).items():
                at = sorted(by_factor)
                medians = [statistics.median(getattr(row, name) for row in by_factor[factor]) for factor in at]
                finite = [(factor, median) for factor, median in zip(at, medians, strict=True) if math.isfinite(median)]
                if not finite:
                    continue
                (line,) = panel.plot(*zip(*finite, strict=True), marker="o", label=", ".join(rules))
                dots = [(f, getattr(row, name)) for f in at for row in by_factor[f] if math.isfinite(getattr(row, name))]
                panel.scatter(*zip(*dots, strict=True), s=10, alpha=0.5, color=line.get_color())
                if by_factor.get(1) and finite[0][0] == 1:
                    ideal = [finite[0][1] / (factor if name == "generations" else 1.0) for factor in at]
                    panel.plot(at, ideal, color="grey", linestyle=":")
            panel.set(title=f"{rows[0].env}, {aim:g}", xlabel="factor of the preset's population", ylabel=f"{name} to it")
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
    axes[0].legend(title="rate, growth, elites", fontsize="small")
    save(figure, path)


def parsed(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.studies populations", description=QUESTION)
    parser.add_argument("--env", default="HalfCheetah-v5", metavar="ID", help="default: HalfCheetah-v5")
    parser.add_argument("--factors", type=COUNT, nargs="+", default=[1, 2, 4, 8, 16], metavar="K", help="default: %(default)s")
    for name, choices, known in (("rates", RATES, "root"), ("growths", GROWTHS, "steps"), ("elites", ELITES, "share")):
        parser.add_argument(f"--{name}", nargs="+", default=[known], choices=choices, help=f"default: {known}")
    parser.add_argument(
        "--returns", type=float, nargs="+", metavar="R", help=f"to look for (default: those of {', '.join(COURSES)})"
    )
    parser.add_argument("--most-steps", type=above_zero, metavar="N", help="given up after, times the root of the factor")
    parser.add_argument("--seeds", type=COUNT, default=3, metavar="N", help="trainings of each case (default: 3)")
    parser.add_argument("--first-seed", type=COUNT_OR_0, default=0, metavar="K", help="seeds are K, K + 1, ... (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="trainings finished in it are kept")
    parser.add_argument("--cores", type=COUNT, default=1, metavar="N", help="CPUs of a training (default: 1)")
    parser.add_argument("--report-only", action="store_true", help="run nothing: write the report anew from what is there")
    arguments = parser.parse_args(given)
    course = COURSES.get(arguments.env)
    if course is None and (arguments.returns is None or arguments.most_steps is None):
        parser.error(f"{arguments.env} has no known returns: give --returns and --most-steps")
    arguments.returns = sorted(arguments.returns or course.returns)  # type: ignore[union-attr]
    arguments.most_steps = arguments.most_steps or course.most_steps  # type: ignore[union-attr]
    arguments.out = (arguments.out / "populations").absolute()
    return arguments


def run(given: Sequence[str]) -> None:
    """Train what is missing, and write populations.csv, a picture an environment and report.md."""
    arguments = parsed(given)
    cases, failures = cases_of(arguments), list[str]()
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
    with open(arguments.out / f"{arguments.env}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Reached._fields, *rows])
    draw(rows, arguments.returns, arguments.out / f"{arguments.env}.png")
    text = (
        f"First generation whose noise-free evaluation has, with two before and two after it, a median of the return; "
        f"environment steps are those of candidates. Median and worst of seeds {', '.join(sorted({str(row.seed) for row in rows}))}."
    )
    sections = [f"# {QUESTION}", text, *(section(rows, aim) for aim in arguments.returns)]
    return write_sections(arguments.out / f"{arguments.env}.md", [*sections, f"![{arguments.env}]({arguments.env}.png)"])
