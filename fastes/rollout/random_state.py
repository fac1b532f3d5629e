"""The global random state of Python, NumPy and torch, and torch's threads: each episode starts from its own seed."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def global_random_kept() -> Iterator[None]:
    """Restore the caller's global random state afterwards; torch's, too, if it is imported."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(state)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
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
