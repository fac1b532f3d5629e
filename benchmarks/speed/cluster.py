"""The cost of Ray: the same generations on one Ray node and on the local pool, and one message to an actor and back."""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.machine import describe
from benchmarks.speed.timing import median_ratio
from benchmarks.tables import against_aim, markdown_table, median_and_range
from fastes import Callback, FastES
from fastes.system.limits import available_cpus
from fastes.training.record import Record

AIMS = {"HalfCheetah-v5": 0.97}  # of the local pool's speed
_FOREVER = 10**12
_SIZES = (100, 10_000, 1_000_000)  # bytes of a message


class StopAt(Callback):
    """Ends training with a generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        return record.generation < self.generation


class Echo:
    """An actor that gives back the size of what it is sent."""

    def size(self, message: bytes) -> int:
        return len(message)


def seconds_of(model: FastES, generations: int) -> float:
    """Wall time of the next `generations` generations."""
    started = time.perf_counter()
    model.learn(_FOREVER, StopAt(model.generation + generations), reset_num_timesteps=False)
    return time.perf_counter() - started


def measure(env: str, workers: int, generations: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of the same generations here and on Ray's node, (repeats,) each, in turn, after some off the record."""
    settings: dict[str, Any] = {"seed": 0, "target_return": "none"}
    with FastES(env, n_workers=workers, **settings) as local, FastES(env, cluster="auto", **settings) as far:
        seconds_of(local, generations)
        seconds_of(far, generations)
        here, there = [], []
        for _ in range(repeats):
            here.append(seconds_of(local, generations))
            there.append(seconds_of(far, generations))
        assert local.theta.tobytes() == far.theta.tobytes(), "results differ"
    return here, there


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

    options = {"include_dashboard": False, "object_store_memory": 100 << 20, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=arguments.workers, **options)
    try:
        print(f"{describe()}, Ray {ray.__version__}, {arguments.workers} workers\n")
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
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
