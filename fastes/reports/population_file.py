"""population.json: how the returns of the newest population lie, for pages that show a running training."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.system.atomic_files import write_text
from fastes.training.record import Record

POPULATION = "population.json"
SECONDS = 1.0  # between two writes
MOST_BINS, _PER_BIN = 40, 4  # bins of a histogram; candidates in each on average, at least


class PopulationFile(Callback):
    """Replaces population.json by a histogram of the newest population, at most once per second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written_at = -math.inf
        self._newest: Record | None = None

    def on_generation(self, model: Model, record: Record) -> None:
        self._newest = record
        if time.monotonic() - self._written_at >= SECONDS:
            self._write(model, record)

    def on_end(self, model: Model) -> None:
        if self._newest is not None:
            self._write(model, self._newest)

    def _write(self, model: Model, record: Record) -> None:
        report = model.training.report
        if report is None or report.record is not record:
            return
        self._written_at, self._newest = time.monotonic(), None
        shown = histogram([episode_return for episode_return, _ in report.episodes])
        if shown is not None:
            of = {"generation": record.generation, "trial": record.trial, "timesteps": record.timesteps}
            write_text(self.path, json.dumps({**of, **shown}), durable=False)


def histogram(returns: list[float]) -> dict[str, object] | None:
    """Return the bins of equal width between the least and the most finite return; None if that makes none.

    Returns:
        low, high: Ends of the bins together. counts: Number of returns in each.
    """
    finite = np.array([value for value in returns if math.isfinite(value)])
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    if not math.isfinite(high - low):
        return None
    if not high > low:
        low, high = low - 0.5, high + 0.5
    bins = min(max(finite.size // _PER_BIN, 5), MOST_BINS)
    try:
        counts, _ = np.histogram(finite, bins, (low, high))
    except ValueError:  # numbers so large that none lie between them
        return None
    return {"low": low, "high": high, "counts": counts.tolist()}
