"""What all studies share: options, contestants run one by one, a table, a report; the same command goes on where it was."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learning.options import add_evaluation, add_place, place_of, seeds_of
from benchmarks.learning.reports.sections import described_machines, failure_lines, machines, write_sections
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Row, Run, failures, finished_runs, read_rows
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import run_all
from benchmarks.options import COUNT

FIRST_SHARE = 1 / 8  # of the budget: budgets are small, and a generation is a good part of them


class Study(NamedTuple):
    """One study.

    question: its title, in words.
    seeds: how many by default.
    add_options: of its own.
    check: what has to hold before anything is run, a sentence to report; ends the program where it does not.
    tasks: runs, for the given seeds.
    condition: columns of the table that say under what a run was done.
    write: given options, runs and folder, draws <name>.png and returns the report's text.
    """

    question: str
    seeds: int
    add_options: Callable[[argparse.ArgumentParser], None]
    check: Callable[[argparse.Namespace], str]
    tasks: Callable[[argparse.Namespace, range], list[Task]]
    condition: Callable[[Row], dict[str, Any]]
    write: Callable[[argparse.Namespace, list[Run], Path], str]


_COLUMNS = ("seed", "steps", "score", "std", "episodes", "wall", "cpu", "budget", "machine")


def run_study(name: str, study: Study, given: Sequence[str]) -> None:
    """Parse, check, run what is missing under DIR/<name>, and write <name>.csv, <name>.png and report.md there."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.learning.studies {name}", description=study.question)
    study.add_options(parser)
    add_place(parser, seeds=study.seeds)
    arguments = parser.parse_args(given)
    arguments.out /= name
    sources = [arguments.out, *(folder / name for folder in arguments.merge)]
    said = ""
    if not arguments.report_only:
        place = place_of(parser, arguments)
        said = study.check(arguments)
        arguments.out.mkdir(parents=True, exist_ok=True)
        with resumable():
            run_all(study.tasks(arguments, seeds_of(arguments)), place)
    print(write_report(name, study, arguments, sources, said).read_text(encoding="utf-8"))


def write_report(name: str, study: Study, arguments: argparse.Namespace, sources: Sequence[Path], said: str) -> Path:
    """Of the runs that the options ask for, of any seed, in the first folder; the others' runs are added."""
    rows = [read_rows(source / "results.csv") for source in sources]
    asked = {(task.env, task.algo, str(task.budget)) for task in study.tasks(arguments, range(1))}
    runs = [run for run in finished_runs(*rows) if (run.final.env, run.final.algo, run.final.budget) in asked]
    if not runs:
        raise SystemExit(f"no finished run of these options in {', '.join(str(source / 'results.csv') for source in sources)}")
    write_table(arguments.out / f"{name}.csv", study, runs, described_machines(sources))
    text = study.write(arguments, runs, arguments.out)
    told = said or _told_before(arguments.out / "report.md")
    parts = [
        f"# {study.question}",
        machines(sources, runs, lambda _: "this study"),
        told and f"Checked first: {told}",
        text,
        f"![{name}]({name}.png)",
    ]
    parts += failure_lines([row for row in failures(*rows) if (row.env, row.algo, row.budget) in asked])
    return write_sections(arguments.out / "report.md", parts)


def _told_before(report: Path) -> str:
    """What was checked when the runs were done, from the report that is written anew."""
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    return next((line.removeprefix("Checked first: ") for line in lines if line.startswith("Checked first: ")), "")


def write_table(path: Path, study: Study, runs: Sequence[Run], known: dict[str, str]) -> None:
    """A line a run: its conditions, its last evaluation, machine and versions. results.csv has every evaluation."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*study.condition(runs[0].final), *_COLUMNS])
        for run in runs:
            final = run.final._replace(machine=known.get(run.final.machine, run.final.machine))
            writer.writerow([*study.condition(final).values(), *(getattr(final, name) for name in _COLUMNS)])


def add_one_env(parser: argparse.ArgumentParser, timesteps: int, told: str, points: int, episodes: int) -> None:
    """Options of a study of one environment; told: what timesteps are of."""
    parser.add_argument("--env", default="Swimmer-v5", metavar="ID", help="default: Swimmer-v5")
    parser.add_argument("--timesteps", type=COUNT, default=timesteps, metavar="N", help=f"{told} (default: {timesteps:,})")
    add_evaluation(parser, points=points, episodes=episodes, final_episodes=20)


def nothing_to_check(_: argparse.Namespace) -> str:
    return ""
