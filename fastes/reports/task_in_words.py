"""An environment and its first episodes in words: lines of `fastes check-env`, and the first ones of a training."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.errors import shown
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.system.digits import number_in_words

_MOST = 160  # characters of a space
_LARGE = 1e150  # numbers whose squares float64 cannot sum
_ROUNDING = 1e-3  # by which a root mean square may pass a bound


def space_in_words(space: object) -> str:
    """Return a space in a few words: kind, shape and dtype, and the bounds of a Box if all values share finite ones."""
    if isinstance(space, spaces.Dict):
        parts = (f"{key}: {space_in_words(part)}" for key, part in space.spaces.items())
        return textwrap.shorten(f"Dict of {', '.join(parts)}", _MOST, placeholder=" ...")
    if not isinstance(space, spaces.Box):
        return textwrap.shorten(shown(space), _MOST, placeholder=" ...")
    low, high = np.unique(space.low), np.unique(space.high)
    bounds = f" from {low[0]:g} to {high[0]:g}" if len(low) == len(high) == 1 and space.is_bounded() else ""
    return f"Box{space.shape} of {space.dtype}{bounds}"


def lengths_in_words(lengths: npt.NDArray[np.int64]) -> str:
    """Return the lengths of episodes, int64 (n,), in words."""
    low, high = int(lengths.min()), int(lengths.max())
    return f"{low:,} step{'s' * (low != 1)}" if low == high else f"{low:,} to {high:,} steps"


def returns_in_words(returns: npt.NDArray[np.float64]) -> str:
    """Return the returns of episodes, float64 (n,), in words. Those that are not finite are left out, unless all are."""
    finite = returns[np.isfinite(returns)]
    if not finite.size:
        return "none of them finite"
    if finite.min() == finite.max():
        return number_in_words(finite[0])
    values, unit = scaled(finite)
    of = (values.min(), values.max(), values.mean(), values.std())
    low, high, mean, std = (number_in_words(unit * float(value)) for value in of)
    return f"{low} to {high}, mean {mean} +- {std}"


def scaled(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], float]:
    """Return numbers, float64 (..., n), in a unit in which their squares have a sum, and that unit, nearly always 1.0."""
    largest = float(np.abs(values).max())
    return (values / largest, largest) if _LARGE < largest < math.inf else (values, 1.0)


def nothing_to_climb(returns: npt.NDArray[np.float64]) -> bool:
    """Return whether all returns, float64 (n,), are the same number."""
    return bool(len(returns) > 1 and (returns == returns[0]).all())


def leaves_its_space(normalizer: ObsNormalizer, space: object) -> str:
    """Return which value of the observations has left its bounds for certain, by its root mean square; '' for none.

    Args:
        normalizer: Statistics of observations.
        space: Their space. Only a Box whose values all have statistics can be judged.
    """
    if not isinstance(space, spaces.Box) or not normalizer.count or normalizer.mean.size != space.low.size:
        return ""
    largest = np.maximum(np.abs(space.low.astype(np.float64)), np.abs(space.high.astype(np.float64))).ravel()
    root = np.sqrt(normalizer.mean**2 + normalizer.squares / normalizer.count)
    over = np.flatnonzero(root > largest * (1.0 + _ROUNDING))
    if not over.size:
        return ""
    at = int(over[(root[over] - largest[over]).argmax()])
    index = ", ".join(str(int(n)) for n in np.unravel_index(at, space.shape)) if space.shape else ""
    bound, size = f"{largest[at]:.4g}", f"{root[at]:.4g}"
    return f"observation[{index}] leaves its space, whose values are at most {bound}: its root mean square is {size}"
