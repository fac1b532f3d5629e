"""Rollback: after a collapse of the noise-free evaluation, training goes on from the best parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import Kinds, check_record, is_count, is_number_or_none
from fastes.errors import CheckpointError
from fastes.settings.settings import ROLLBACK_WINDOW, Settings

Float32 = npt.NDArray[np.float32]

_NOISE = 1.5  # quartile distances: about two standard deviations of one evaluation
_PATIENCE = 0.5  # what each rollback without a new best after it adds to the fall that is allowed


class Best(NamedTuple):
    """The best smoothed evaluation, how far apart the quartiles of its window were, and theta at its end."""

    smoothed: float
    spread: float
    theta: Float32


class Fall(NamedTuple):
    """Smoothed evaluations: the best one, and the one that made training go back."""

    best: float
    smoothed: float


class Rollback:
    """Looks at each generation's evaluation, and says when to go back to the best theta.

    Evaluations are smoothed by the median of the last rollback_window ones: a single bad episode changes nothing. Of an even
    number, the lower middle one makes a best, and the upper one a collapse: it is below best - max(rollback_drop * (best -
    first), 1.5 * spread). `first` is the median of the first whole window, so that what is lost is a share of what was
    learned, whatever the returns' sign and scale; `spread` keeps noise from looking like a collapse. Where nothing was learned
    yet, best <= first, there is nothing to lose. Each rollback that no new best has followed allows a fall that is half as
    much again, so that a best that was luck does not hold the training forever. A theta is taken for the best only where its
    own evaluation is no worse than the smoothed one.
    """

    def __init__(self, settings: Settings) -> None:
        self.drop, self.window = settings.rollback_drop, settings.rollback_window
        self.count = 0  # rollbacks so far
        self.fall: Fall | None = None  # of the last generation, where that went back
        self.reset()

    def reset(self) -> None:
        """Begin again: what is known is of other parameters or of another environment."""
        self._evaluations: tuple[float, ...] = ()  # the last `window` ones
        self._first: float | None = None
        self._best: Best | None = None
        self._in_a_row = 0

    def check(self, evaluation: float, theta: Float32) -> Float32 | None:
        """Note the mean noise-free return of theta, -inf where it is not finite; the parameters to go back to, or None.

        theta: a read-only array, which is kept.
        """
        self.fall = None
        if not self.drop:
            return None
        self._evaluations = (*self._evaluations, evaluation)[-self.window :]
        if len(self._evaluations) < self.window:
            return None
        smoothed, upper, spread = medians_and_spread(self._evaluations)
        if self._first is None and math.isfinite(smoothed):
            self._first = smoothed
        best = self._best
        if evaluation >= smoothed and math.isfinite(spread) and (best is None or smoothed >= best.smoothed):
            self._best, self._in_a_row = Best(smoothed, spread, theta), 0
        elif best is not None and self._has_collapsed(best, upper):
            self.fall = Fall(best.smoothed, upper)
            self._evaluations = ()
            self.count += 1
            self._in_a_row += 1
            return best.theta
        return None

    def _has_collapsed(self, best: Best, smoothed: float) -> bool:
        learned = best.smoothed - (best.smoothed if self._first is None else self._first)
        allowed = max(self.drop * learned, _NOISE * best.spread) * (1.0 + _PATIENCE * self._in_a_row)
        return learned > 0.0 and best.smoothed - smoothed > allowed

    def state(self) -> tuple[dict[str, Any] | None, dict[str, Float32]]:
        """JSON values and arrays for a checkpoint; nothing where the setting is off."""
        if not self.drop:
            return None, {}
        data = {
            "evaluations": [x if math.isfinite(x) else None for x in self._evaluations],
            "first": self._first,
            "best": self._best and self._best.smoothed,
            "spread": self._best and self._best.spread,
            "in_a_row": self._in_a_row,
            "count": self.count,
        }
        return data, {} if self._best is None else {"best_theta": self._best.theta.copy()}

    def load_state(self, data: object, arrays: Mapping[str, npt.NDArray[Any]], num_params: int) -> None:
        """Go on from `state()`; None and no arrays where there was none. Raises CheckpointError for what it cannot be."""
        if data is None and not arrays:
            return
        data = check_record("rollback", data, _KINDS)
        theta = arrays.get("best_theta")
        known = theta is not None
        if [known] * 2 != [data[key] is not None for key in ("best", "spread")] or set(arrays) - {"best_theta"}:
            raise CheckpointError(f"the checkpoint's 'rollback' has a best {data['best']!r} and the arrays {sorted(arrays)}")
        if theta is not None:
            if theta.shape != (num_params,) or theta.dtype != np.float32 or not np.isfinite(theta).all():
                raise CheckpointError(
                    f"the checkpoint's array 'best_theta' has shape {theta.shape} and dtype {theta.dtype}, or values that are "
                    f"not finite: expected finite float32 ({num_params},)"
                )
            theta = theta.copy()
            theta.flags.writeable = False
            self._best = Best(data["best"], data["spread"], theta)
        self._evaluations = tuple(-math.inf if x is None else x for x in data["evaluations"])[-self.window :]
        self._first, self._in_a_row, self.count = data["first"], data["in_a_row"], data["count"]


def medians_and_spread(values: Iterable[float]) -> tuple[float, float, float]:
    """The median, of an even number of values the lower and the upper middle one, and the distance of the quartiles."""
    ordered = sorted(values)
    last = len(ordered) - 1
    quarter = len(ordered) // 4
    return ordered[last // 2], ordered[len(ordered) // 2], ordered[last - quarter] - ordered[quarter]


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and len(value) <= ROLLBACK_WINDOW and all(map(is_number_or_none, value))


_KINDS: Kinds = {
    "evaluations": _are_numbers,
    "first": is_number_or_none,
    "best": is_number_or_none,
    "spread": lambda value: is_number_or_none(value) and (value is None or value >= 0.0),
    "in_a_row": is_count,
    "count": is_count,
}
