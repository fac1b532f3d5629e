"""Runs of several seeds as one: medians with bootstrap intervals, of scores and of whole learning curves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.learning.runs.results import Float64, Run

RESAMPLES, CONFIDENCE = 2000, 0.95


class Interval(NamedTuple):
    """median, low and high: float64 of one shape, low and high of the percentile bootstrap over seeds; equal for one seed."""

    median: Float64
    low: Float64
    high: Float64


class Curve(NamedTuple):
    """A median curve of a panel.

    along: wall, CPU seconds or steps, float64 (points,), rising.
    scores: (points,) each.
    """

    along: Float64
    scores: Interval


def median_interval(values: Float64) -> Interval:
    """Over the first axis, the seeds: values (seeds, ...). With few seeds an interval is hardly more than their range."""
    from scipy.stats import DegenerateDataWarning, bootstrap

    values = np.asarray(values, dtype=np.float64)
    if values.ndim == 0 or len(values) == 0:
        raise ValueError(f"values has shape {values.shape}: expected (seeds, ...) with at least one seed")
    median = np.median(values, axis=0)
    if len(values) == 1:
        return Interval(median, median, median)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # seeds that agree
        found = bootstrap((values,), np.median, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile", rng=0)
    return Interval(median, found.confidence_interval.low, found.confidence_interval.high)


def median_curve(runs: Sequence[Run], measure: str, points: int = 200) -> Curve:
    """Scores between evaluations are interpolated; the curve ends where the shortest run does.

    measure: 'wall', 'cpu' or 'steps'. Points lie geometrically, from the first trained evaluation on.
    """
    starts = [run.along(measure)[1] if len(run.scores) > 1 else run.along(measure)[0] for run in runs]
    end = min(run.along(measure)[-1] for run in runs)
    start = min(max(min(starts), end * 1e-6, 1e-9), end)
    along = np.geomspace(start, max(end, start), points)
    return Curve(along, median_interval(np.array([np.interp(along, run.along(measure), run.scores) for run in runs])))
