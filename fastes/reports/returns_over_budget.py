"""The course of returns over a training's budget: whether they rise, and whether they ever rose."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

BINS = 60  # of a budget
WINDOW = BINS // 3  # bins in which returns have to rise
_BINS, _VALUES = 8, 30  # the fewest bins and values in these that can be judged
_RISING = 1.0  # of the slope over its standard error: flat returns stay below in five of six cases
_ABOVE = 1.5  # standard deviations of single values by which later ones are above the first, if they have risen


class _Bin(NamedTuple):
    number: int
    mean: float
    squares: float  # of deviations from the mean, summed

    def after(self, value: float) -> _Bin:
        number, off = self.number + 1, value - self.mean
        mean = self.mean + off / number
        return _Bin(number, mean, self.squares + off * (value - mean))


class ReturnsOverBudget:
    """Returns of a training in sixty bins of its budget.

    Attributes:
        first: The first value; None if the training was not seen from its start.
        bin: The running bin, from 0; -1 before the first value.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.bin = -1
        self._budget = self._timesteps = -1
        self._bins: dict[int, _Bin] = {}

    def add(self, value: float, timesteps: int, budget: int, is_first: bool) -> bool:
        """Add a value.

        Args:
            value: A mean return; one that is not finite is left out.
            timesteps: Steps of the training so far.
            budget: Steps at which it ends; 0 if that is not known. With another one, as the winner of a race has, the bins
                begin again, and the first value stays.
            is_first: Whether the value is of the training's first generation.

        Returns:
            Whether it is the first value of a bin.
        """
        if budget <= 0 or not math.isfinite(value):
            return False
        if timesteps < self._timesteps:
            self.first = None
        if budget != self._budget or timesteps < self._timesteps:
            self._bins, self.bin = {}, -1
        if is_first:
            self.first = value
        self._budget, self._timesteps = budget, timesteps
        before, self.bin = self.bin, min(BINS - 1, BINS * timesteps // budget)
        self._bins[self.bin] = self._bins.get(self.bin, _Bin(0, 0.0, 0.0)).after(value)
        return self.bin != before

    def _window(self) -> list[tuple[int, _Bin]]:
        """The bins of the last third of the budget before the running one, with their numbers; [] if there are too few."""
        found = [(at, self._bins[at]) for at in range(self.bin - WINDOW, self.bin) if at in self._bins]
        is_whole = self.bin >= WINDOW and bool(found) and found[0][0] <= self.bin - WINDOW + 1
        return found if is_whole and len(found) >= _BINS and sum(each.number for _, each in found) >= _VALUES else []

    @property
    def is_flat(self) -> bool:
        """Whether returns have not risen in the last third of the budget."""
        slope, error = self._pace()
        return slope <= _RISING * error  # False if they are not known

    def may_reach(self, value: float) -> bool:
        """Whether returns may come to a value by the end of the budget, at the last third's pace and two standard errors."""
        slope, error = self._pace()
        return not self.level + (slope + 2.0 * error) * (BINS - self.bin) < value  # True if they are not known

    def _pace(self) -> tuple[float, float]:
        """The slope of the last third's means per bin, by least squares, and its standard error; NaN if they are not known."""
        window = self._window()
        if not window:
            return math.nan, math.nan
        places, means = np.array([at for at, _ in window], float), np.array([each.mean for _, each in window])
        places, means = places - places.mean(), means - means.mean()
        slope = float(places @ means / (places @ places))
        off = means - slope * places
        return slope, math.sqrt(float(off @ off / (places @ places)) / (len(window) - 2))

    @property
    def level(self) -> float:
        """Mean return in the last sixth of the budget; NaN if it is not known."""
        means = self._late_means()
        return float(means.mean()) if means.size else math.nan

    def _late_means(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([each.mean for at, each in self._window() if at >= self.bin - WINDOW // 2])

    @property
    def is_where_it_began(self) -> bool:
        """Whether returns are not above the first one; False if that is not known."""
        means = self._late_means()
        if self.first is None or not means.size:
            return False
        spread = float(means.std()) if math.isnan(self.noise) else self.noise
        return self.level - self.first <= _ABOVE * spread

    @property
    def noise(self) -> float:
        """Standard deviation of values within a bin of the last third; NaN if bins have single values."""
        freedom = sum(each.number - 1 for _, each in self._window())
        return math.sqrt(sum(each.squares for _, each in self._window()) / freedom) if freedom else math.nan
