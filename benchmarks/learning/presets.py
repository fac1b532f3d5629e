"""Returns that presets reach on several seeds: a queue of trainings, each of one core, and 100 noise-free episodes."""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.courses import COURSES, course_of, reported_timesteps
from benchmarks.learning.preset_run import EPISODES, Result
from benchmarks.learning.runs.contestant import preset_fingerprint
from benchmarks.learning.runs.training_queue import QueuedTraining, add_queue_options, parsed_flags, read_results, run_queue
from benchmarks.machine import describe
from benchmarks.options import COUNT, check_envs
from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import load_preset, preset_for
from fastes.settings.recipes import PLAIN

_RUN = "benchmarks.learning.preset_run"


def run(arguments: argparse.Namespace) -> list[str]:
    """Train what has no row with today's settings, all environments on one seed before the next one. Returns what failed."""
    done = {env: {result.seed for result in results_of(arguments, env)} for env in arguments.env}
    failures = list[str]()
    jobs = [
        QueuedTraining(env, _RUN, {**_of_env(arguments, env), "seed": seed}, Result, arguments.out, failures)
        for seed, env in itertools.product(arguments.seeds, arguments.env)
        if seed not in done[env]
    ]
    run_queue(jobs, arguments.cores)
    return failures


def _of_env(arguments: argparse.Namespace, env: str) -> dict[str, Any]:
    """The common part of its trainings; preset, budget and aim are filled in."""
    preset = arguments.preset or preset_for(env) or PLAIN
    return {
        "env": env,
        "flags": arguments.flags,
        "preset": preset,
        "settings": preset_fingerprint(preset),
        "timesteps": arguments.timesteps or reported_timesteps(env),
        "aim": course_of(env).aim if arguments.aim is None else arguments.aim,
    }


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
    """Checked options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.presets", description=__doc__)
    known = ", ".join(COURSES)
    parser.add_argument("--env", required=True, nargs="+", metavar="ID", help=f"budgets and aims are known for {known}")
    parser.add_argument("--preset", metavar="NAME", help=f"one of FastES's presets (default: the environment's, or {PLAIN})")
    parser.add_argument("--timesteps", type=COUNT, help="budget of each training (default: the environment's)")
    parser.add_argument("--aim", type=float, help="return whose first evaluation is dated (default: the environment's)")
    add_queue_options(parser, (0, 1, 2, 3, 4), Path("benchmarks/results/learning.csv"))
    arguments = parser.parse_args(given)
    arguments.env, arguments.seeds = list(dict.fromkeys(arguments.env)), list(dict.fromkeys(arguments.seeds))
    if (flags := parsed_flags(arguments.flags)).preset is not None or flags.config is not None:
        parser.error("--flags: the preset is an option of its own, --preset")
    for env in arguments.env:
        if env not in COURSES and (arguments.timesteps is None or arguments.aim is None):
            parser.error(f"{env} has no known budget and aim: give --timesteps and --aim")
    check_envs(parser, arguments.env)
    if arguments.preset is not None:
        if Path(arguments.preset).suffix == ".toml":
            arguments.preset = str(Path(arguments.preset).absolute())
        try:
            load_preset(arguments.preset)
        except (OSError, TypeError, ValueError) as error:
            parser.error(f"--preset: {error}")
    return arguments


def results_of(arguments: argparse.Namespace, env: str) -> list[Result]:
    """The trainings that were asked for and are done, with the preset's settings of today."""
    asked = _of_env(arguments, env)
    found = results_of_today(arguments.out, env, asked["preset"], asked["timesteps"], arguments.flags)
    return [result for result in found if result.aim == asked["aim"] and result.seed in arguments.seeds]


def results_of_today(file: Path, env: str, preset: str, timesteps: int, flags: str = "") -> list[Result]:
    """The trainings of a preset with its settings of today."""
    today, asked = ("", preset_fingerprint(preset)), (env, preset, timesteps, flags)
    return [
        result
        for result in read_results(file, Result)
        if (result.env, result.preset, result.timesteps, result.flags) == asked and result.settings in today
    ]


def main(given: Sequence[str] | None = None) -> None:
    arguments = parsed(given)
    failures = run(arguments)
    print(describe())
    for env in arguments.env:
        asked, found = _of_env(arguments, env), results_of(arguments, env)
        kind = f"preset {asked['preset']!r} {arguments.flags}".strip()
        print(f"\n{env} with {kind}, {asked['timesteps']:,} timesteps, returns over {EPISODES} episodes\n")
        if found:
            print(summary(found, asked["aim"]))
    if failures:
        raise SystemExit("\n".join(failures))


if __name__ == "__main__":
    main()
