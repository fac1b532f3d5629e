"""Logarithm, exponential, mean and deviation with the same bits on every machine, which libm does not promise."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2; k times the first is exact


def log(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the natural logarithm of numbers > 0: x = 2^e m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s)."""
    m, e = np.frexp(x)
    small = m < math.sqrt(0.5)
    m, e = np.where(small, 2.0 * m, m), np.where(small, e - 1, e)
    s = (m - 1.0) / (m + 1.0)
    series = np.zeros_like(s)
    for power in range(21, 0, -2):  # s^2 < 0.03: the next term is below 1e-18
        series = series * (s * s) + 1.0 / power
    return e * _LN2 + 2.0 * s * series


def exp(x: float) -> float:
    """Return e^x for a number between -1e6 and 700; below -745 it is 0.

    x = k ln 2 + r, |r| <= ln(2)/2; e^r by its Taylor series.
    """
    k = round(x / _LN2)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 1.0
    for term in range(14, 0, -1):  # the next term is below 1e-19
        series = 1.0 + series * r / term
    return math.ldexp(series, k)


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """Return mean and population standard deviation of finite values, by exactly rounded sums: the same on every machine."""
    if not values:
        return math.nan, math.nan
    largest = max(map(abs, values))
    exponent = math.frexp(largest)[1]
    if exponent > 500:  # their squares, or their sum, would overflow
        mean, std = mean_and_std([math.ldexp(v, -exponent) for v in values])
        return _times_power(mean, exponent, largest), _times_power(std, exponent, largest)
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum([(v - mean) * (v - mean) for v in values]) / len(values))


def _times_power(x: float, exponent: int, largest: float) -> float:
    """Return x * 2^exponent, limited in size to `largest`, which rounding may exceed."""
    size = largest if abs(x) >= math.ldexp(largest, -exponent) else math.ldexp(abs(x), exponent)
    return math.copysign(size, x)
