"""One stretch of a training in a process of its own: on the local pool, while no process of Ray runs, or on a Ray node."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.child_process import answer_once
from fastes import Callback, FastES
from fastes.training.record import Record

_FOREVER = 10**12


class StopAt(Callback):
    """Ends training with a generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        return record.generation < self.generation


@contextlib.contextmanager
def ray_node(workers: int) -> Iterator[None]:
    """One node of Ray on this machine."""
    import ray

    options = {"include_dashboard": False, "object_store_memory": 100 << 20, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=workers, **options)
    try:
        yield
    finally:
        ray.shutdown()


def stretch(given: dict[str, Any]) -> dict[str, Any]:
    """Train `generations` generations off the record and as many on it; return the seconds of these, and theta's SHA-256."""
    workers, generations = given["workers"], given["generations"]
    if given["on_ray"]:
        with ray_node(workers):
            return _timed(given["env"], generations, cluster="auto")
    return _timed(given["env"], generations, n_workers=workers)


def _timed(env: str, generations: int, **pool: Any) -> dict[str, Any]:
    with FastES(env, seed=0, target_return="none", trials=1, **pool) as model:
        model.learn(_FOREVER, StopAt(generations))
        started = time.perf_counter()
        model.learn(_FOREVER, StopAt(2 * generations), reset_num_timesteps=False)
        return {"seconds": time.perf_counter() - started, "theta": hashlib.sha256(model.theta.tobytes()).hexdigest()}


if __name__ == "__main__":
    answer_once(stretch)
