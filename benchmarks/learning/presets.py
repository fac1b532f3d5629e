"""Returns that a preset reaches on several seeds: the final parameters and the best so far, over 100 noise-free episodes."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.child_process import Child
from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.courses import COURSES, course_of, reported_timesteps
from benchmarks.learning.preset_run import EPISODES, Result
from benchmarks.learning.runs.contestant import preset_fingerprint
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.side_by_side import run_jobs
from benchmarks.machine import describe
from benchmarks.options import COUNT, COUNT_OR_0
from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import load_preset, preset_for
from fastes.settings.recipes import PLAIN

_RUN = "benchmarks.learning.preset_run"


def cpus_of_slots(slots: int, each: int) -> list[list[int]]:
    """CPUs of runs side by side, which share them only if there are too few."""
    usable = sorted(os.sched_getaffinity(0))
    return [[usable[k % len(usable)] for k in range(slot * each, (slot + 1) * each)] for slot in range(slots)]


class Seed:
    """One seed; its result is written when it is there. changes: of the preset's settings."""

    def __init__(self, arguments: argparse.Namespace, seed: int, changes: dict[str, Any], failures: list[str]) -> None:
        self.arguments, self.seed, self.changes, self.failures = arguments, seed, changes, failures

    def start(self, cpus: Sequence[int]) -> Child:
        arguments = self.arguments
        given: dict[str, Any] = {name: getattr(arguments, name) for name in ("env", "preset", "timesteps", "aim")}
        given |= {"seed": self.seed, "n_workers": arguments.workers_per_run, "changes": self.changes}
        logs = arguments.out.parent / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{arguments.env.replace('/', '-')}-{arguments.preset.replace('/', '-')}-seed-{self.seed}.log"
        return Child(_RUN, given, cpus, arguments.workers_per_run, arguments.out.parent, log)

    def note(self, record: dict[str, Any]) -> None:
        append_record(self.arguments.out, Result(**record))
        print(f"seed {self.seed}: final {record['final_mean']:.1f}, best {record['best_mean']:.1f}", file=sys.stderr)

    def end(self, failure: str | None) -> None:
        if failure is not None:
            self.failures.append(f"seed {self.seed} failed: {failure}")


def run_seeds(arguments: argparse.Namespace, seeds: Sequence[int], changes: dict[str, Any] | None = None) -> list[str]:
    """Run seeds side by side. Returns what went wrong."""
    failures: list[str] = []
    jobs = [Seed(arguments, seed, changes or {}, failures) for seed in seeds]
    run_jobs(jobs, cpus_of_slots(arguments.parallel, arguments.workers_per_run))
    return failures


def summary(results: list[Result], aim: float) -> str:
    """Each seed, then median, min and max; a seed that never reached the aim counts as later than all others."""
    header = ("seed", "final", "+-", "best", "+-", f"first at {aim:g}, timesteps", "wall s", "CPU s")
    columns_of: dict[str, tuple[float, ...]] = {
        str(r.seed): (r.final_mean, r.final_std, r.best_mean, r.best_std, r.first_reached, r.wall_seconds, r.cpu_seconds)
        for r in sorted(results, key=lambda r: r.seed)
    }
    columns = [[math.inf if math.isnan(x) else x for x in column] for column in zip(*columns_of.values(), strict=True)]
    for name, of in (("median", statistics.median), ("min", min), ("max", max)):
        columns_of[name] = tuple(of(column) for column in columns)
    return markdown_table(header, [(name, *map(_cell, line)) for name, line in columns_of.items()])


def _cell(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.1f}"


def parsed(given: Sequence[str] | None) -> argparse.Namespace:
    """Options, those of the environment filled in."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.presets", description=__doc__)
    parser.add_argument("--env", required=True, help=f"environment id; budgets and aims are known for {', '.join(COURSES)}")
    parser.add_argument("--preset", metavar="NAME", help="one of FastES's presets (default: the environment's, or 'default')")
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=[0, 1, 2, 3, 4], metavar="K", help="default: 0 1 2 3 4")
    parser.add_argument("--timesteps", type=COUNT, help="budget of each run (default: the environment's)")
    parser.add_argument("--aim", type=float, help="return whose first evaluation is dated (default: the environment's)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/results/learning.csv"),
        metavar="CSV",
        help="a row a run; runs that it holds already are skipped (default: benchmarks/results/learning.csv)",
    )
    parser.add_argument("--workers-per-run", type=COUNT, default=1, metavar="N", help="workers and cores of a run (default: 1)")
    parser.add_argument("--parallel", type=COUNT, default=2, metavar="N", help="runs side by side (default: 2)")
    arguments = parser.parse_args(given)
    arguments.preset = arguments.preset or preset_for(arguments.env) or PLAIN
    try:
        load_preset(arguments.preset)
    except ValueError as error:
        parser.error(f"--preset: {error}")
    if arguments.env not in COURSES and (arguments.timesteps is None or arguments.aim is None):
        parser.error(f"{arguments.env} has no known budget and aim: give --timesteps and --aim")
    arguments.timesteps = arguments.timesteps or reported_timesteps(arguments.env)
    arguments.aim = course_of(arguments.env).aim if arguments.aim is None else arguments.aim
    return arguments


def results_of(arguments: argparse.Namespace) -> list[Result]:
    """The runs that were asked for and are done, with the preset's settings of today."""
    found = results_of_today(arguments.out, arguments.env, arguments.preset, arguments.timesteps)
    return [result for result in found if result.aim == arguments.aim and result.seed in arguments.seeds]


def results_of_today(file: Path, env: str, preset: str, timesteps: int) -> list[Result]:
    """The runs of a preset with its settings of today."""
    today = ("", preset_fingerprint(preset))
    asked = (env, preset, timesteps)
    return [
        result
        for result in read_records(file, Result)
        if (result.env, result.preset, result.timesteps) == asked and result.settings in today
    ]


def main(given: Sequence[str] | None = None) -> None:
    arguments = parsed(given)
    done = {result.seed for result in results_of(arguments)}
    with resumable():
        failures = run_seeds(arguments, [seed for seed in arguments.seeds if seed not in done])
    kind = f"preset {arguments.preset!r}, {arguments.timesteps:,} timesteps"
    print(f"{describe()}\n\n{arguments.env} with {kind}, returns over {EPISODES} episodes\n")
    results = results_of(arguments)
    if results:
        print(summary(results, arguments.aim))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
