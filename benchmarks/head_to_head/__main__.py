"""`python -m benchmarks.head_to_head`: run the contestants, then write the report."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from benchmarks.head_to_head.clock import Budget
from benchmarks.head_to_head.evaluation import Task
from benchmarks.head_to_head.report import write_report
from benchmarks.head_to_head.runner import Place, resumable, run_all, usable_cpus
from benchmarks.head_to_head.zoo import PEERS

ALGOS = ("fastes", *PEERS)


def add_place(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Options that say where to work and how often; shared with benchmarks.paper_table1."""
    parser.add_argument("--seeds", type=int, default=seeds, metavar="N", help=f"runs of each contestant (default: {seeds})")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="seeds are K, K + 1, ... (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go; finished runs in it are kept")
    parser.add_argument("--cores", type=int, metavar="N", help="CPUs of each contestant (default: all that may be used)")
    parser.add_argument(
        "--calibration-seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="for each way in which a peer can use the cores, to find its fastest; 0 takes DummyVecEnv (ARS: AsyncEval) and "
        "one torch thread (default: 2)",
    )
    parser.add_argument("--report-only", action="store_true", help="run nothing: write the report anew from what is there")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], metavar="DIR", help="folders whose runs the report adds")


def place_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Place:
    try:
        return Place(arguments.out, usable_cpus(arguments.cores), arguments.calibration_seconds)
    except ValueError as error:
        parser.error(str(error))


def check_envs(parser: argparse.ArgumentParser, envs: Sequence[str]) -> None:
    for env in envs:
        try:
            gymnasium.make(env).close()
        except Exception as error:
            parser.error(f"--env {env}: {type(error).__name__}: {error}")


def seeds_of(arguments: argparse.Namespace) -> range:
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds)


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.head_to_head", description=__doc__)
    parser.add_argument("--env", nargs="+", metavar="ID", help="Gymnasium environments")
    parser.add_argument("--algos", nargs="+", choices=ALGOS, default=list(ALGOS), help="default: all")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--minutes", type=float, help="wall time of each run, evaluation left out")
    budget.add_argument("--timesteps", type=int, help="environment steps of each run")
    parser.add_argument("--points", type=int, default=24, metavar="N", help="evaluations of a run (default: 24)")
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="of an evaluation on the way (default: 10)")
    parser.add_argument("--final-episodes", type=int, default=100, metavar="N", help="of the last evaluation (default: 100)")
    add_place(parser, seeds=3)
    arguments = parser.parse_args(given)
    if not arguments.report_only:
        if not arguments.env or not (arguments.minutes or arguments.timesteps):
            parser.error("give --env, and --minutes or --timesteps; or --report-only")
        counts = (arguments.points - 1, arguments.episodes, arguments.final_episodes, arguments.seeds)
        if min(arguments.minutes or 1, arguments.timesteps or 1, *counts) <= 0:
            parser.error("budgets, --seeds and numbers of episodes have to be above 0, and --points above 1")
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
