"""The number of an environment among all that a training plays in at the same time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

WORKER_INDEX = "FASTES_WORKER_INDEX"  # the environment variable that has it while an environment is built and played


def worker_index() -> int:
    """That of the worker which this process is; 0 in any other process."""
    return int(os.environ.get(WORKER_INDEX, "0"))


@contextlib.contextmanager
def numbered(index: int) -> Iterator[None]:
    """Meanwhile the environment variable has this number."""
    before = os.environ.get(WORKER_INDEX)
    os.environ[WORKER_INDEX] = str(index)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(WORKER_INDEX, None)
        else:
            os.environ[WORKER_INDEX] = before
