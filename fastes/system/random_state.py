"""The global random state of Python, NumPy and torch, and torch's threads: each episode starts from its own seed."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def global_random_kept() -> Iterator[None]:
    """Restore the caller's global random state afterwards; torch's, too, if it is imported."""
    before = global_states()
    try:
        yield
    finally:
        set_global_states(before)


class OwnRandom:
    """A block that is entered again and again, and has a global random state of its own: episodes that take turns draw from it.

    The caller's state is restored at the end of each. In the first one the state is the caller's, until it is seeded.
    """

    def __init__(self) -> None:
        self._own: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> OwnRandom:
        self._callers = global_states()
        if self._own is not None:
            set_global_states(self._own)
        return self

    def __exit__(self, *_: object) -> None:
        self._own = global_states()
        set_global_states(self._callers)


def global_states() -> tuple[Any, Any, Any]:
    """Return the states of Python, NumPy and, if it is imported, torch."""
    torch = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), torch.get_rng_state() if torch else None  # noqa: NPY002


def set_global_states(states: tuple[Any, Any, Any]) -> None:
    python, numpy, torch = states
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    if torch is not None:  # it was imported
        sys.modules["torch"].set_rng_state(torch)


@contextlib.contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Let torch use one thread, as in workers: with more it sums in another order. The caller's number is restored."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 1
    if torch is None or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seed_global_random(seed: int) -> None:
    """Seed the global random state of Python, NumPy and, if it is imported, torch. seed: int in [0, 2^32)."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(seed)
