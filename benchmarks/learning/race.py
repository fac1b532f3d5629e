"""How long FastES needs for the score that tuned TRPO and PPO have at 1M steps, over the time that they needed.

Peers run to a million steps with RL Zoo's settings, FastES with its preset to a budget of steps of its own: its steps cost
less and teach less, so that equal steps would compare little. If it ends below one peer, it meets that peer with a longer
budget and the other with the usual one. Every contestant gets the same cores, one at a time.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.learning.courses import COURSES, RACED, course_of, reported_timesteps
from benchmarks.learning.options import add_place, place_of, seeds_of
from benchmarks.learning.reports.plots import draw_all
from benchmarks.learning.reports.sections import failure_lines, machines, print_report, write_sections
from benchmarks.learning.reports.thresholds import OURS, final_score, first_reached, initial_score, reached
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.results import Run, failures, machines_of, read_rows, runs_of
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import is_finished, run_all
from benchmarks.options import COUNT, check_envs
from benchmarks.tables import amount, markdown_table

PEERS = ("trpo", "ppo")
POINTS = 40
_SEEDS = 3  # of FastES, or an aim is neither reached nor missed


class NothingToCompare(Exception):
    """FastES and its peers have no finished runs in the same environment."""


def peer_tasks(arguments: argparse.Namespace) -> list[Task]:
    budget = Budget(steps=arguments.timesteps)
    return [
        Task(env, peer, seed, budget, episodes=course_of(env).episodes)
        for seed in seeds_of(arguments)
        for peer in arguments.peers
        for env in arguments.env
    ]


def our_tasks(arguments: argparse.Namespace) -> list[Task]:
    """A run a seed and environment, or two where FastES's budgets against the peers differ."""
    return [
        Task(env, OURS, seed, budget, POINTS, course_of(env).episodes)
        for seed in seeds_of(arguments)
        for env in arguments.env
        for budget in dict.fromkeys(our_budget(arguments, env, peer) for peer in arguments.peers)
    ]


def our_budget(arguments: argparse.Namespace, env: str, peer: str) -> Budget:
    """The budget that was asked for, or the course's against this peer, or that of reported runs, or the peer's own."""
    longer = 0 if arguments.es_timesteps else getattr(course_of(env), f"against_{peer}")
    return Budget(steps=longer) if longer else usual_budget(arguments, env)


def usual_budget(arguments: argparse.Namespace, env: str) -> Budget:
    """The same against every peer."""
    return Budget(steps=arguments.es_timesteps or (reported_timesteps(env) if env in COURSES else arguments.timesteps))


def line_of(env: str, peer: str, theirs: Sequence[Run], ours: Sequence[Run], budget: Budget) -> list[str]:
    """A row of the table. Times are medians over seeds: the peer's of its whole run, and of its first evaluation as good.

    There are none against a peer that ends no better than it began, or that ran on another machine.
    budget: of FastES's runs.
    """
    score = final_score(theirs)
    wall, cpu = (float(np.median([getattr(run.final, name) for run in theirs])) for name in ("wall", "cpu"))
    cells = [env, peer.upper(), f"{score:.1f}", f"{wall:.0f} / {cpu:.0f}", f"{final_score(ours):.1f} at {amount(budget.steps)}"]
    us, first = reached(ours, score), reached(theirs, score)
    seeds_there = sum(math.isfinite(first_reached(run, score, "steps")) for run in ours)
    seeds = f"{len(theirs)} / {seeds_there} of {len(ours)}"
    if score <= initial_score(theirs):
        return [*cells, "the peer ends no better than it began", *[""] * 5, seeds]
    steps = amount(us.steps) if math.isfinite(us.steps) else "never"
    if len(machines_of([*theirs, *ours])) > 1:
        return [*cells, "times of different machines", steps, *[""] * 4, seeds]
    cells += [_times(us.wall, us.cpu), steps, _ratio(us.wall / wall)]
    cells += [verdict(us.wall / wall, getattr(course_of(env), peer), len(ours)), _ratio(us.cpu / cpu)]
    # of an even number of seeds, half may never have had their median
    cells += [_ratio(us.wall / first.wall) if math.isfinite(first.wall) else "peer: never"]
    return [*cells, seeds]


def verdict(ratio: float, aim: float, seeds: int) -> str:
    """Whether a ratio is small enough; none without an aim, and none on too few seeds."""
    if math.isnan(aim):
        return ""
    if seeds < _SEEDS:
        return f"{aim:g}: {seeds} of {_SEEDS} seeds"
    return f"{aim:g}: {'reached' if ratio <= aim else 'not reached'}"


def _times(wall: float, cpu: float) -> str:
    return f"{wall:.1f} / {cpu:.1f}" if math.isfinite(wall) else "never"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "never"


HEADER = (
    "environment",
    "peer",
    "its score at the end",
    "its wall / CPU s",
    "FastES at its end",
    "FastES at that score: wall / CPU s",
    "steps",
    "wall ratio",
    "aim",
    "CPU ratio",
    "wall ratio to the peer's first evaluation as good",
    "seeds peer / FastES there",
)


def write_table(arguments: argparse.Namespace, sources: Sequence[Path]) -> Path:
    """race.md and race.png in the first folder, from the runs of all. Raises NothingToCompare where FastES met no peer."""
    rows = [read_rows(source / "results.csv") for source in sources]
    lines, used, missing = [], [], []
    contests: dict[str, dict[str, list[Run]]] = {}
    for peer in arguments.peers:
        for env in arguments.env:
            theirs = runs_of(peer, env, Budget(steps=arguments.timesteps), rows)
            budget = our_budget(arguments, env, peer)
            ours = runs_of(OURS, env, budget, rows)
            if theirs and ours:
                lines.append(line_of(env, peer, theirs, ours, budget))
                used += [*theirs, *ours]
                usual = budget == usual_budget(arguments, env)
                contests.setdefault(env, {}).update({OURS if usual else f"{OURS}, longer": ours, peer: theirs})
            else:
                missing.append(f"{env} against {peer.upper()}")
    if not lines:
        raise NothingToCompare(f"FastES met no peer in {', '.join(str(source / 'results.csv') for source in sources)}")
    draw_all(contests, "wall", sources[0] / "race.png")
    parts = [f"# FastES to the scores of peers at {amount(arguments.timesteps)} steps", machines(sources, used)]
    parts += ["![Curves over wall-clock seconds](race.png)", markdown_table(HEADER, lines)]
    parts += [f"Not run: {', '.join(missing)}."] if missing else []
    parts += ["Settings:\n\n" + "\n".join(sorted({f"- {run.final.env}, {run.final.algo}: {run.final.note}" for run in used}))]
    return write_sections(sources[0] / "race.md", parts + failure_lines(failures(*rows)))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.race", description=__doc__)
    parser.add_argument("--env", nargs="+", default=RACED, metavar="ID", help="default: ten MuJoCo tasks, version 5")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="default: both")
    parser.add_argument("--timesteps", type=COUNT, default=1_000_000, metavar="N", help="of a peer (default: 1,000,000)")
    parser.add_argument(
        "--es-timesteps", type=COUNT, metavar="N", help="of FastES (default: the environment's, or more against one peer)"
    )
    parser.add_argument("--only", choices=("peers", OURS), help="run these alone")
    add_place(parser, seeds=_SEEDS)
    arguments = parser.parse_args(given)
    tasks: list[Task] = []
    if not arguments.report_only:
        check_envs(parser, arguments.env)
        arguments.out.mkdir(parents=True, exist_ok=True)
        tasks += [] if arguments.only == OURS else peer_tasks(arguments)
        tasks += [] if arguments.only == "peers" else our_tasks(arguments)
        with resumable():
            run_all(tasks, place_of(parser, arguments))
    try:
        print_report(lambda: write_table(arguments, [arguments.out, *arguments.merge]))
    except NothingToCompare as error:
        rows = read_rows(arguments.out / "results.csv")
        if not (arguments.only and tasks and all(is_finished(rows, task) for task in tasks)):
            raise SystemExit("\n\n".join([str(error), *failure_lines(failures(rows))])) from None
        print(f"{error}: done is what --only {arguments.only} asked for; run the others, or --merge their folder")


if __name__ == "__main__":
    main()
