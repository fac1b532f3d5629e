"""FastES and tuned PPO, TRPO, ARS and A2C on the same cores: scores over wall time, CPU time and steps."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.learning.options import add_evaluation, add_place, place_of, seeds_of
from benchmarks.learning.reports.curves import median_interval
from benchmarks.learning.reports.plots import draw
from benchmarks.learning.reports.sections import failure_lines, machines, print_report, write_sections
from benchmarks.learning.reports.thresholds import (
    OURS,
    Contest,
    Reached,
    Threshold,
    comparable_measures,
    final_score,
    reached,
    thresholds,
    winners,
)
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Run, failures, finished_runs, read_rows
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import run_all
from benchmarks.options import COUNT, above_zero, check_envs
from benchmarks.peers.zoo import PEERS
from benchmarks.tables import amount, markdown_table

ALGOS = ("fastes", *PEERS)
_BY = {"wall": "wall time", "cpu": "CPU seconds", "steps": "environment steps"}
_METHOD = """\
Noise-free evaluation: deterministic actions, raw rewards, frozen normalisation statistics, seeds that no training has, off
the clock. Final scores are over {episodes} episodes, those on the way over {fewer}. The clock starts after imports and includes
building environments and processes. CPU seconds are those of a contestant's process and all its children. Steps of FastES
include its own evaluation episodes. A time to a threshold is the median over seeds of when an evaluation was first at it or
above, after training had begun. Where runs of an environment are of different machines, only steps say who was first."""


def tasks_of(arguments: argparse.Namespace) -> list[Task]:
    """Seed by seed, so that an interrupted comparison is one of fewer seeds, and a slow hour hits every contestant."""
    budget = Budget(60.0 * (arguments.minutes or 0.0), arguments.timesteps or 0)
    return [
        Task(env, algo, seed, budget, arguments.points, arguments.episodes, arguments.final_episodes)
        for seed in seeds_of(arguments)
        for env in arguments.env
        for algo in arguments.algos
    ]


def contests_of(runs: Sequence[Run]) -> dict[tuple[str, str], dict[str, list[Run]]]:
    """(env, budget) -> algorithm -> runs, FastES first."""
    found: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: run.final.algo != OURS):
        found.setdefault((run.final.env, run.final.budget), {}).setdefault(run.final.algo, []).append(run)
    return found


def write_report(folder: Path, sources: Sequence[Path]) -> Path:
    """Write report.md and the pictures into folder from results.csv and machine.json of the source folders.

    Raises ValueError when no run is finished in any of them.
    """
    rows = [read_rows(source / "results.csv") for source in sources]
    runs = finished_runs(*rows)
    if not runs:
        raise ValueError(f"no finished run in {', '.join(str(source / 'results.csv') for source in sources)}")
    contests = contests_of(runs)
    sections, lost = [], []
    for (env, budget), contest in contests.items():
        picture = f"{env}-{budget}.png".replace("/", "-").replace(" ", "")
        draw(contest, f"{env}, {budget}", folder / picture)
        sentences = losses(contest)
        lost += [f"{env}, {budget}: {sentence}" for sentence in sentences]
        sections += [f"## {env}, {budget}", f"![{env}]({picture})", final_table(contest), threshold_table(contest)]
    episodes = sorted({run.final.episodes for run in runs})
    fewer = sorted({row.episodes for folder_rows in rows for row in folder_rows if row.kind == "point"})
    told = {"episodes": "/".join(map(str, episodes)), "fewer": "/".join(map(str, fewer)) or "none"}
    parts = ["# Head to head", _METHOD.format(**told), machines(sources, runs), "## Where FastES is not first"]
    parts.append("\n".join(f"- {line}" for line in lost) or "FastES was first by every measure that compares, or ran alone.")
    return write_sections(folder / "report.md", [*parts, *sections, *failure_lines(failures(*rows))])


def final_table(contest: Contest) -> str:
    """Final scores and speed; medians over seeds."""
    header = ("contestant", "seeds", "final score", "95 % interval", "min to max", "steps", "steps/s", "wall s", "CPU s")
    rows, sources = [], []
    for algo, runs in sorted(contest.items(), key=lambda item: -final_score(item[1])):
        scores = np.array([run.final.score for run in runs])
        found = median_interval(scores)
        finals = [run.final for run in runs]
        steps, wall, cpu = (float(np.median([getattr(row, name) for row in finals])) for name in ("steps", "wall", "cpu"))
        speed = float(np.median([row.steps / max(row.wall, 1e-9) for row in finals]))
        cells = [algo, str(len(runs)), f"{found.median:.1f}", f"{found.low:.1f} to {found.high:.1f}" if len(runs) > 1 else ""]
        cells += [f"{scores.min():.1f} to {scores.max():.1f}", amount(steps), f"{speed:,.0f}", f"{wall:.1f}", f"{cpu:.1f}"]
        rows.append(cells)
        sources += [f"- {algo}: {note}" for note in sorted({row.note for row in finals})]
    return markdown_table(header, rows) + "\n\n" + "\n".join(sources)


def threshold_table(contest: Contest) -> str:
    """For each threshold, when each contestant reached it and which was first."""
    found = thresholds(contest)
    if not found:
        return "No thresholds: no peer has finished and improved."
    rows, measures = [], comparable_measures(contest)
    for threshold in found:
        times = {algo: reached(runs, threshold.score) for algo, runs in contest.items()}
        first = winners(times, measures)
        cells = [threshold.name, f"{threshold.score:.1f}", *(_times(times[algo]) for algo in contest)]
        rows.append([*cells, *(" and ".join(first[measure]) or "nobody" for measure in measures)])
    header = ("threshold", "score", *(f"{algo}: wall s / CPU s / steps" for algo in contest))
    return markdown_table((*header, *(f"first by {_BY[measure]}" for measure in measures)), rows)


def losses(contest: Contest) -> list[str]:
    """A sentence for each threshold and measure in which FastES is not first, and one for a final score below a peer's."""
    if OURS not in contest or len(contest) == 1:
        return []
    sentences = []
    ours, finals = final_score(contest[OURS]), {algo: final_score(runs) for algo, runs in contest.items()}
    better = sorted((algo for algo in contest if finals[algo] > ours), key=lambda algo: -finals[algo])
    if better:
        beaten_by = ", ".join(f"{algo} {finals[algo]:.1f}" for algo in better)
        sentences.append(f"FastES ends at {ours:.1f}, below {beaten_by}.")
    for threshold in thresholds(contest):
        sentences += _slower(contest, threshold)
    return sentences


def _slower(contest: Contest, threshold: Threshold) -> list[str]:
    times = {algo: reached(runs, threshold.score) for algo, runs in contest.items()}
    grouped: dict[tuple[str, ...], list[str]] = {}
    for measure, first in winners(times, comparable_measures(contest)).items():
        if first and OURS not in first:
            grouped.setdefault(tuple(first), []).append(measure)
    sentences = []
    for leaders, measures in grouped.items():
        by = " and ".join(_BY[measure] for measure in measures)
        theirs, ours = (", ".join(_time(times[algo], measure) for measure in measures) for algo in (leaders[0], OURS))
        them = " and ".join(leaders) + (" were" if len(leaders) > 1 else " was")
        us = "FastES never got there" if math.isinf(times[OURS].steps) else f"FastES took {ours}"
        sentences.append(f"to {threshold.name} ({threshold.score:.1f}) {them} first by {by} ({theirs}); {us}.")
    return sentences


def _time(times: Reached, measure: str) -> str:
    value = getattr(times, measure)
    return f"{amount(value)} steps" if measure == "steps" else f"{value:.1f} {'CPU ' if measure == 'cpu' else ''}s"


def _times(times: Reached) -> str:
    if math.isinf(times.steps):
        return "never"
    return f"{times.wall:.1f} / {times.cpu:.1f} / {amount(times.steps)}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.head_to_head", description=__doc__)
    parser.add_argument("--env", nargs="+", metavar="ID", help="Gymnasium environments")
    parser.add_argument("--algos", nargs="+", choices=ALGOS, default=list(ALGOS), help="default: all")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--minutes", type=above_zero, help="wall time of each run, evaluation left out")
    budget.add_argument("--timesteps", type=COUNT, help="environment steps of each run")
    add_evaluation(parser, points=24, episodes=10, final_episodes=100)
    add_place(parser, seeds=3)
    arguments = parser.parse_args(given)
    if not arguments.report_only:
        if not arguments.env or not (arguments.minutes or arguments.timesteps):
            parser.error("give --env, and --minutes or --timesteps; or --report-only")
        check_envs(parser, arguments.env)
        arguments.out.mkdir(parents=True, exist_ok=True)
        with resumable():
            run_all(tasks_of(arguments), place_of(parser, arguments))
    print_report(lambda: write_report(arguments.out, [arguments.out, *arguments.merge]))


if __name__ == "__main__":
    main()
