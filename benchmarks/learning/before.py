"""Presets before and after they were made reliable, over the same seeds, steps and evaluation: seeds that the file of
`benchmarks.learning.presets` has for the preset of today."""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.csv_records import read_records
from benchmarks.learning.courses import course_of, reported_timesteps
from benchmarks.learning.preset_run import EPISODES, Result
from benchmarks.learning.presets import results_of_today, run_seeds
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.learning.runs.resumable import resumable
from benchmarks.machine import describe
from benchmarks.options import COUNT, COUNT_OR_0
from benchmarks.tables import amount, markdown_table
from fastes.settings.preset_loader import DEFAULT, choose_settings, tomllib

RESULTS = Path("benchmarks/results")


@functools.cache
def settings_before() -> dict[str, dict[str, Any]]:
    """By environment, in changes to the preset 'default'."""
    found: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return found


def fingerprint_before(env: str) -> str:
    return fingerprint(choose_settings(env, DEFAULT, {**settings_before()[env], "target_return": "none"}))


def done_before(file: Path, env: str) -> dict[int, Result]:
    """By seed, with as many steps as the preset of today has."""
    key = (env, reported_timesteps(env), fingerprint_before(env))
    return {row.seed: row for row in read_records(file, Result) if (row.env, row.timesteps, row.settings) == key}


def done_after(file: Path, env: str) -> dict[int, Result]:
    """By seed, with the preset of today."""
    return {row.seed: row for row in results_of_today(file, env, env, reported_timesteps(env))}


def table(before: Path, after: Path, envs: Sequence[str], seeds: Sequence[int]) -> str:
    """A line an environment with results of both."""
    rows = []
    for env in envs:
        both = done_before(before, env), done_after(after, env)
        common = sorted(set(seeds) & set(both[0]) & set(both[1]))
        if common:
            cells = [_told([found[seed] for seed in common]) for found in both]
            rows.append((env, amount(reported_timesteps(env)), ", ".join(map(str, common)), *cells))
    return markdown_table(("environment", "steps", "seeds", "before: median (worst), widest +-", "after"), rows)


def _told(results: Sequence[Result]) -> str:
    scores = [result.final_mean for result in results]
    return f"{statistics.median(scores):.0f} ({min(scores):.0f}), {max(result.final_std for result in results):.0f}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.before", description=__doc__)
    known = list(settings_before())
    parser.add_argument("--env", nargs="+", default=known, choices=known, metavar="ID", help="default: %(default)s")
    parser.add_argument("--seeds", type=COUNT_OR_0, nargs="+", default=[0, 1, 2, 3, 4], metavar="K", help="default: 0 1 2 3 4")
    files = {
        "--out": (RESULTS / "before.csv", "runs that it holds are skipped"),
        "--after": (RESULTS / "learning.csv", "of benchmarks.learning.presets"),
    }
    for flag, (path, told) in files.items():
        parser.add_argument(flag, type=Path, default=path, metavar="CSV", help=f"{told} (default: %(default)s)")
    parser.add_argument("--parallel", type=COUNT, default=2, metavar="N", help="runs side by side, a core each (default: 2)")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    arguments = parser.parse_args(given)
    failures: list[str] = []
    for env in [] if arguments.report_only else arguments.env:
        run = {"env": env, "preset": DEFAULT, "timesteps": reported_timesteps(env), "aim": course_of(env).aim}
        place = {"out": arguments.out, "parallel": arguments.parallel, "workers_per_run": 1}
        wanted = set(arguments.seeds) & set(done_after(arguments.after, env)) - set(done_before(arguments.out, env))
        with resumable():
            failures += run_seeds(argparse.Namespace(**run, **place), sorted(wanted), settings_before()[env])
    print(f"{describe()}\n\nReturns of the last parameters over {EPISODES} noise-free episodes\n")
    print(table(arguments.out, arguments.after, arguments.env, arguments.seeds))
    if unknown := [
        env for env in arguments.env if not set(done_before(arguments.out, env)) & set(done_after(arguments.after, env))
    ]:
        print(f"\nNot compared, for want of runs of both: {', '.join(unknown)}")
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
