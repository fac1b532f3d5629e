"""How training scales from 1 to 64 cores: a simulation fed with costs that are measured, and checked, on this machine."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.machine import cpu_model, describe
from benchmarks.options import above_zero, check_envs
from benchmarks.speed.scaling.check import Compared, check_computing, check_waiting
from benchmarks.speed.scaling.costs import CHUNK, RESULTS, Costs
from benchmarks.speed.scaling.measure import measure
from benchmarks.speed.scaling.tables import speed_table
from benchmarks.tables import markdown_table, median_and_range

ENV = "HalfCheetah-v5"
CHECK_AIM, CHECK_WORKERS = 0.05, (1, 2)
WAITING = ((2, 1), (4, 1), (8, 1), (16, 1), (16, 2))  # workers and lag


def table_of_costs(costs: Costs) -> str:
    header = ("env", "us a step", "reset us", "job us", "spread", "parent us", "and a worker")
    steps = [1e6 * seconds / CHUNK for seconds in (min(costs.chunk_seconds), max(costs.chunk_seconds))]
    others = (costs.reset_seconds, costs.job_seconds)
    parent = (costs.update_seconds, costs.message_seconds)
    row = [costs.env, "{:.1f} to {:.1f}".format(*steps), *(f"{1e6 * seconds:.0f}" for seconds in others)]
    return markdown_table(header, [[*row, f"{costs.spread:.1%}", *(f"{1e6 * seconds:.0f}" for seconds in parent)]])


def table_of_checks(compared: list[Compared]) -> str:
    rows = [
        [
            each.what,
            str(each.workers),
            median_and_range(each.ratios, "{:.3f}"),
            str(len(each.ratios)),
            f"{statistics.median(each.shares):.2f}",
            f"within {CHECK_AIM:.0%}: {'met' if abs(each.median() - 1.0) <= CHECK_AIM else 'missed'}",
        ]
        for each in compared
    ]
    return markdown_table(("trained", "workers", "simulated / real (range)", "blocks", "share of a core", "aim"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.scaling", description=__doc__)
    parser.add_argument("--measure", type=above_zero, metavar="SECONDS", help="measure the costs first, for so long")
    parser.add_argument("--check", type=above_zero, metavar="SECONDS", help="compare with real trainings, so long for each")
    parser.add_argument("--costs", type=Path, default=RESULTS, metavar="DIR", help="folder of costs (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.measure:
        check_envs(parser, [ENV])
        measure(ENV, arguments.measure).save(arguments.costs)
    try:
        costs = Costs.load(arguments.costs, ENV)
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is missing: --measure 30 makes it")
    if arguments.check and not costs.machine.startswith(cpu_model()):
        parser.error(
            f"--check: the costs are of {costs.machine.partition(',')[0]}, this is {cpu_model()}: add --measure and --costs"
        )
    print(f"Measured on {costs.machine}\n\n### Costs, CPU time\n\n{table_of_costs(costs)}\n", flush=True)
    if arguments.check:
        compared = [check_computing(costs, workers, arguments.check) for workers in CHECK_WORKERS]
        compared += [check_waiting(costs, workers, lag) for workers, lag in WAITING]
        print(f"### Simulated beside real, on {describe()}\n\n{table_of_checks(compared)}\n", flush=True)
    print(f"### {ENV}, the whole training: times one core's speed\n\n{speed_table(costs)}")


if __name__ == "__main__":
    main()
