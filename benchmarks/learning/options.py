"""Options that comparisons share: where results go, how often to run, how often to evaluate."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.learning.runs.runner import Place
from benchmarks.machine import usable_cpus
from benchmarks.options import COUNT, COUNT_OR_0, at_least


def add_place(parser: argparse.ArgumentParser, seeds: int) -> None:
    """Options that say where to work and how often."""
    parser.add_argument("--seeds", type=COUNT, default=seeds, metavar="N", help=f"runs of each contestant (default: {seeds})")
    parser.add_argument("--first-seed", type=COUNT_OR_0, default=0, metavar="K", help="seeds are K, K + 1, ... (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go; finished runs in it are kept")
    parser.add_argument("--cores", type=COUNT, metavar="N", help="CPUs of each contestant (default: all that may be used)")
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


def add_evaluation(parser: argparse.ArgumentParser, points: int, episodes: int, final_episodes: int) -> None:
    """Options that say how often and over how many episodes a run is evaluated."""
    parser.add_argument(
        "--points", type=at_least(2), default=points, metavar="N", help=f"evaluations of a run (default: {points})"
    )
    parser.add_argument(
        "--episodes", type=COUNT, default=episodes, metavar="N", help=f"of an evaluation on the way (default: {episodes})"
    )
    parser.add_argument(
        "--final-episodes", type=COUNT, default=final_episodes, metavar="N", help=f"of the last (default: {final_episodes})"
    )


def place_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Place:
    try:
        return Place(arguments.out, usable_cpus(arguments.cores), arguments.calibration_seconds)
    except ValueError as error:
        parser.error(str(error))


def seeds_of(arguments: argparse.Namespace, number: int | None = None) -> range:
    """The first `number` seeds, None for as many as --seeds says."""
    return range(arguments.first_seed, arguments.first_seed + (number or arguments.seeds))
