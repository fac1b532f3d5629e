"""How training scales from 1 to 10,000 workers: a simulation fed with costs that are measured, and checked, on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.options import above_zero, check_envs
from benchmarks.speed.scaling import many_machines, one_machine
from benchmarks.speed.scaling.check import Compared, check_computing, check_waiting
from benchmarks.speed.scaling.check_cluster import SHAPES, check_cluster
from benchmarks.speed.scaling.cluster import Wire
from benchmarks.speed.scaling.costs import RESULTS, Costs
from benchmarks.speed.scaling.measure import measure
from benchmarks.tables import markdown_table, median_and_range

CHEETAH, HUMANOID = "HalfCheetah-v5", "Humanoid-v5"
ENVS = (CHEETAH, "CartPole-v1", HUMANOID)
CHECK_AIM, CHECK_WORKERS = 0.05, (1, 2)
WAITING = ((2, 1), (4, 1), (8, 1), (16, 1), (16, 2))  # workers and lag


def table_of_costs(found: list[Costs]) -> str:
    header = (
        "env",
        "us a step",
        "reset us",
        "job us",
        "spread",
        "parent us",
        "and a worker",
        "10,000 candidates ms",
    )
    rows = [
        [
            costs.env,
            f"{1e6 * min(costs.chunk_seconds) / 25:.1f} to {1e6 * max(costs.chunk_seconds) / 25:.1f}",
            f"{1e6 * costs.reset_seconds:.0f}",
            f"{1e6 * costs.job_seconds:.0f}",
            f"{costs.spread:.1%}",
            f"{1e6 * costs.update_seconds:.0f}",
            f"{1e6 * costs.message_seconds:.0f}",
            f"{1e3 * costs.large_update_seconds:.1f}",
        ]
        for costs in found
    ]
    return markdown_table(header, rows)


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


def check(found: list[Costs], seconds: float, wire: Wire) -> list[Compared]:
    computed = [each for costs in found if costs.env != HUMANOID for each in check_computing(costs, CHECK_WORKERS, seconds)]
    waiting = [check_waiting(found[0], workers, lag, 6) for workers, lag in WAITING]
    clusters = SHAPES if importlib.util.find_spec("ray") is not None else ()
    return computed + waiting + [check_cluster(found[0], *shape, wire) for shape in clusters]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.scaling", description=__doc__)
    parser.add_argument("--measure", type=above_zero, metavar="SECONDS", help="measure first, so long for each environment")
    parser.add_argument(
        "--check",
        type=above_zero,
        metavar="SECONDS",
        help="compare with real trainings, so long for each, and with clusters of Ray where it is installed",
    )
    parser.add_argument("--costs", type=Path, default=RESULTS, metavar="DIR", help="of costs (default: %(default)s)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it, too (.svg or .png)")
    parser.add_argument(
        "--message-ms",
        type=above_zero,
        default=0.1,
        help="of the driver for a message, two a call of an actor (default: 0.1)",
    )
    parser.add_argument("--latency-ms", type=above_zero, default=0.5, help="from one machine to another (default: 0.5)")
    arguments = parser.parse_args()
    wire = Wire(latency=1e-3 * arguments.latency_ms, message_seconds=1e-3 * arguments.message_ms)
    if arguments.measure:
        check_envs(parser, ENVS)
        for env in ENVS:
            measure(env, arguments.measure).save(arguments.costs)
    try:
        found = [Costs.load(arguments.costs, env) for env in ENVS]
    except FileNotFoundError as error:
        parser.error(f"{error.filename} is missing: --measure 30 makes it")
    cheetah, humanoid = found[0], found[-1]
    print(f"Measured on {cheetah.machine}\n\n### Costs, CPU time\n\n{table_of_costs(found)}\n", flush=True)
    if arguments.check:
        print(
            f"### Simulated beside real, on {describe()}\n\n{table_of_checks(check(found, arguments.check, wire))}\n",
            flush=True,
        )
    print(f"### {CHEETAH}, the whole training: times one core's speed\n\n{one_machine.tables(cheetah)}\n", flush=True)
    print(
        f"### {HUMANOID}, 10,000 candidates, a call of an actor {2 * arguments.message_ms:g} ms\n\n"
        f"{many_machines.tables(humanoid, cheetah.spread, wire)}\n\n{many_machines.paper_line()}"
    )
    if arguments.picture:
        from benchmarks.speed.scaling.picture import draw

        draw(cheetah, humanoid, wire, arguments.picture)


if __name__ == "__main__":
    main()
