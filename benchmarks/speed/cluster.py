"""The cost of Ray: the same generations on one Ray node and on the local pool, and one message to an actor and back."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.child_process import records_of
from benchmarks.machine import describe, usable_cpus
from benchmarks.speed.cluster_stretch import ray_node
from benchmarks.speed.timing import median_ratio
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes.system.limits import available_cpus

AIMS = {"HalfCheetah-v5": 0.97}  # of the local pool's speed
_PATIENCE = 600.0  # seconds for a stretch
_SIZES = (100, 10_000, 1_000_000)  # bytes of a message


class Echo:
    """An actor that gives back the size of what it is sent."""

    def size(self, message: bytes) -> int:
        return len(message)


def measure(env: str, workers: int, generations: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of the same generations here and on Ray's node, (repeats,) each, in turn, each alone on the machine."""
    here, there = [], []
    for _ in range(repeats):
        local, far = (_stretch(env, workers, generations, on_ray) for on_ray in (False, True))
        assert local["theta"] == far["theta"], "results differ"
        here.append(local["seconds"])
        there.append(far["seconds"])
    return here, there


def _stretch(env: str, workers: int, generations: int, on_ray: bool) -> dict[str, Any]:
    given = {"env": env, "workers": workers, "generations": generations, "on_ray": on_ray}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        (record,) = records_of("benchmarks.speed.cluster_stretch", given, usable_cpus(None), 1, Path(folder), log, _PATIENCE)
    return record


def message_seconds(ray: Any, repeats: int) -> list[list[str]]:
    """Rows of a table: a message of each size to an actor and its answer, one after the other, and many at once."""
    echo = ray.remote(Echo).options(num_cpus=0).remote()
    rows = []
    for size in _SIZES:
        message = bytes(size)
        ray.get(echo.size.remote(message))

        def one(message: bytes = message) -> None:
            ray.get(echo.size.remote(message))

        def many(message: bytes = message) -> None:
            ray.get([echo.size.remote(message) for _ in range(100)])

        rows.append([f"{size:,}", f"{_median(one, 10 * repeats):.0f}", f"{_median(many, repeats) / 100:.0f}"])
    ray.kill(echo)
    return rows


def _median(call: Callable[[], None], repeats: int) -> float:
    """In us."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return 1e6 * statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.cluster", description=__doc__)
    parser.add_argument("--envs", nargs="+", default=list(AIMS), metavar="ID", help=f"default: {' '.join(AIMS)}")
    parser.add_argument("--generations", type=int, default=10, help="of each stretch (default: 10)")
    parser.add_argument("--repeats", type=int, default=7, help="stretches of each kind, taken in turn (default: 7)")
    parser.add_argument("--workers", type=int, default=available_cpus(), help="worker processes (default: one a usable core)")
    arguments = parser.parse_args()
    import ray

    print(f"{describe()}, Ray {ray.__version__}, {arguments.workers} workers\n")
    with ray_node(arguments.workers):
        print(markdown_table(("bytes", "us, one message", "us, of 100 at once"), message_seconds(ray, arguments.repeats)))
    rows = []
    for env in arguments.envs:
        here, there = measure(env, arguments.workers, arguments.generations, arguments.repeats)
        each = [statistics.median(seconds) / arguments.generations for seconds in (here, there)]
        ratios = [local / far for local, far in zip(here, there, strict=True)]
        aim = against_aim(median_ratio(here, there), AIMS[env]) if env in AIMS else ""
        rows.append([env, *(f"{1e3 * seconds:.1f}" for seconds in each), median_and_range(ratios), aim])
    print()
    print(markdown_table(("env", "local, ms a generation", "Ray, ms", "local / Ray", "aim"), rows))


if __name__ == "__main__":
    main()
