"""Trainings in C and in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training import Result, assert_same, train

SETTINGS: dict[str, Any] = {"preset": "default", "population_size": 4, "seed": 5, "target_return": "none"}


def assert_same_natively(env_id: str | Callable[[], Any], generations: int, n_workers: int, **more: Any) -> None:
    """A training that steps in C ends with the bits of one that steps in Python."""

    def result(native: str) -> Result:
        found = train(env_id, generations, n_workers, **SETTINGS, native=native, **more)
        del found.state.data["settings"]["native"]
        return found

    assert_same(result("on"), result("off"))
