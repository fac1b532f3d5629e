"""A clock set by hand and a worker that does nothing, for tests of the hang detector."""

from __future__ import annotations

import numpy as np

from fastes.rollout.shared_block import EVALUATION_STEPS


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A worker that does nothing."""

    ready = True

    def __init__(self) -> None:
        self.row, self.stopped = np.zeros(EVALUATION_STEPS + 1, dtype=np.int64), False

    def is_stopped(self) -> bool:
        return self.stopped
