"""What callbacks are told of a generation."""

from __future__ import annotations

from typing import NamedTuple

from fastes.rollout.job import Batch
from fastes.training.record import Record


class Report(NamedTuple):
    """A generation's statistics, and its candidates' episodes in job order.

    episodes: (return, length) of each; of several for a candidate all have their mean return.
    successes: 1.0, 0.0 or NaN.
    """

    record: Record
    episodes: list[tuple[float, int]]
    successes: list[float]


def report_of(record: Record, batch: Batch) -> Report:
    """batch: of the generation's candidates."""
    each = batch.per_candidate
    episodes = [
        (mean_return, steps // each + (number < steps % each))
        for mean_return, steps in zip(batch.returns.ravel().tolist(), batch.lengths.ravel().tolist(), strict=True)
        for number in range(each)
    ]
    successes = [success for success in batch.successes.ravel().tolist() for _ in range(each)]
    return Report(record, episodes, successes)
