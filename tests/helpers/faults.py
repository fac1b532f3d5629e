"""Toy trainings of which it is known what every job's env seed is, so that a fault can be put into one episode."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from envs_for_tests import Toy

from fastes.es.perturbations import draw_pairs

PAIRS = 4
SETTINGS: dict[str, Any] = {
    "population_size": 2 * PAIRS,
    "policy_kwargs": {"net_arch": [4]},
    "seed": 5,
    "target_return": "none",
    "noise_table_size": 5000,
}
COMMON = {name: value for name, value in SETTINGS.items() if name != "seed"} | {"preset": "default"}  # of several seeds


def env_seeds(generation: int, episodes: int = 1) -> np.ndarray[Any, Any]:
    """The env seeds (PAIRS, episodes) of a generation of a model with SETTINGS."""
    return draw_pairs(5, generation, PAIRS, episodes, 30, 5000)[1]


def seed_of(generation: int, pair: int) -> int:
    return int(env_seeds(generation)[pair, 0])


def toy(**habits: Any) -> partial[Toy]:
    return partial(Toy, **habits)


@contextlib.contextmanager
def caught_warnings() -> Iterator[list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        messages: list[str] = []
        yield messages
    messages.extend(str(warning.message) for warning in caught)
