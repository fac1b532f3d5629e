"""`python -m benchmarks.learning.head_to_head`: run the contestants, then write the report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.learning.head_to_head_report import write_report
from benchmarks.learning.options import add_evaluation, add_place, place_of, seeds_of
from benchmarks.learning.runs.clock import Budget
from benchmarks.learning.runs.evaluation import Task
from benchmarks.learning.runs.resumable import resumable
from benchmarks.learning.runs.runner import run_all
from benchmarks.options import COUNT, above_zero, check_envs
from benchmarks.peers.zoo import PEERS

ALGOS = ("fastes", *PEERS)


def tasks_of(arguments: argparse.Namespace) -> list[Task]:
    """Seed by seed, so that an interrupted comparison is one of fewer seeds, and a slow hour hits every contestant."""
    budget = Budget(60.0 * (arguments.minutes or 0.0), arguments.timesteps or 0)
    return [
        Task(env, algo, seed, budget, arguments.points, arguments.episodes, arguments.final_episodes)
        for seed in seeds_of(arguments)
        for env in arguments.env
        for algo in arguments.algos
    ]


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
    try:
        print(write_report(arguments.out, [arguments.out, *arguments.merge]).read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
