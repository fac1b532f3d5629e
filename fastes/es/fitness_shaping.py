"""Fitness shaping: from the returns of a generation to the weight of each pair in the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastes import _core
from fastes.errors import NotFinite, shown, suggest
from fastes.es.portable_math import log, mean_and_std
from fastes.number_array import Float32, Float64

# the returns of the pairs that count, finite float64 (n, 2) -> shaped ones of that shape, of mean 0; the gradient is
# 1/(2 n sigma) sum (s+ - s-) eps
ShapingFunction = Callable[[Float64], Float64]


class Shaped(NamedTuple):
    """Shaped returns, and the weights of the gradient scale * sum_j w_j eps_j.

    Attributes:
        shaped: float64 (num_pairs, 2), zero for pairs that do not count, and of mean zero over those that do.
        weights: float32 (num_pairs,), the shaped return of the plus side minus that of the minus side.
        scale: Factor of the sum.
        num_kept: Number of pairs that count.
        num_nonfinite: Number of returns that are not finite.
    """

    shaped: Float64
    weights: Float32
    scale: float
    num_kept: int
    num_nonfinite: int = 0


def shape_returns(returns: Float64, sigma: float, shaping: str | ShapingFunction, top_fraction: float = 1.0) -> Shaped:
    """Shape returns; non-finite ones rank worst.

    Args:
        returns: float64 (num_pairs, 2).
        sigma: Standard deviation of the perturbations.
        shaping: One of SHAPINGS, each with its formula in its function; or a ShapingFunction.
        top_fraction: The fraction b/n of the pairs that count, those with the largest max(r+, r-); at least one. The others
            have the weight 0.

    Raises:
        NotFinite: No return is finite.
        ValueError: An unknown shaping, or a function that returns another shape or numbers that are not finite.
    """
    usable = np.isfinite(returns)
    num_usable = int(np.count_nonzero(usable))
    if not num_usable:
        raise NotFinite(
            f"none of the {returns.size} returns of this generation is finite; parameters are unchanged. "
            "Check the rewards of the environment or the values of the function, or lower sigma and the learning rate"
        )
    rule = rule_of(shaping)
    kept = num_kept(len(returns), top_fraction)
    finite = returns if num_usable == returns.size else np.where(usable, returns, returns[usable].min())
    if kept == len(returns):
        shaped = rule.shape(returns, finite)
    else:
        top = np.sort(np.argsort(-np.maximum(finite[:, 0], finite[:, 1]), kind="stable")[:kept])
        shaped = np.zeros(returns.shape)
        shaped[top] = rule.shape(returns[top], finite[top])
    scale = 1.0 / kept if rule.sigma_in_step else 1.0 / (2 * kept * sigma)
    weights = (shaped[:, 0] - shaped[:, 1]).astype(np.float32)
    return Shaped(shaped, weights, scale, kept, returns.size - num_usable)


def num_kept(num_pairs: int, top_fraction: float) -> int:
    """Return how many of the pairs count."""
    return max(1, math.ceil(top_fraction * num_pairs - 1e-9))


def _centered_ranks(returns: Float64, _: Float64) -> Float64:
    """Ranks of all 2n returns in [-0.5, 0.5], gradient 1/(2n sigma) sum (F+ - F-) eps.

    Salimans et al. 2017, equation 1 with rank transformation.
    """
    ranks = _core.centered_ranks(np.ascontiguousarray(returns, dtype=np.float64).ravel())
    return ranks.reshape(-1, 2).astype(np.float64)


def _standardized(_: Float64, finite: Float64) -> Float64:
    """(Returns - mean) / sigma_R, gradient 1/b sum (r+ - r-)/sigma_R eps; sigma is part of the learning rate.

    Mania et al. 2018, "ARS", algorithm 2.
    """
    values = finite.ravel().tolist()
    low, high = min(values), max(values)
    if low == high:
        return np.zeros_like(finite)
    scaled = finite / max(-low, high)  # safe at any magnitude
    mean, std = mean_and_std(scaled.ravel().tolist())
    return (scaled - mean) / std if std > 0.0 else np.zeros_like(finite)


def _nes(returns: Float64, _: Float64) -> Float64:
    """N u_k, u_k = max(0, ln(N/2 + 1) - ln k) over the sum of these, less 1/N, of the N returns in order, best k = 1.

    Gradient 1/sigma sum_k u_k eps_k (Wierstra et al. 2014, section 3.1). Only the better half differs, the best most. Adam and
    ClipUp ignore the gradient's scale: use the learning rates of centred ranks. SGD needs smaller ones: from 16 candidates
    on, this gradient is 4 (all signal) to 6 times (all noise) as long.
    """
    return nes_utilities(returns.ravel()).reshape(-1, 2)


def _signed_ranks(returns: Float64, _: Float64) -> Float64:
    """Half of w and -w, w = sign(r+ - r-) rank(|r+ - r-|) / n in [-1, 1], gradient 1/(2b sigma) sum w eps.

    As in Wilcoxon's test with zeros ranked (Pratt 1959). The common part of a pair's returns, as of a distant goal, cancels out
    before ranking, while centered_ranks compares pairs with different goals, and so does top_fraction below 1, which takes the
    pairs with the best return. Adam and ClipUp ignore the gradient's scale: use the learning rates of centred ranks. SGD needs
    smaller ones: this gradient is 1.4 times as long in noise, and longer if goals differ.
    """
    shaped: Float64 = 0.5 * signed_ranks(returns)[:, np.newaxis] * np.array([1.0, -1.0])
    return shaped


class Rule(NamedTuple):
    """A way to shape returns.

    Attributes:
        shape: Takes the returns of the pairs that count, and the same with the worst in place of non-finite ones; returns the
            shaped ones. All float64 (n, 2).
        sigma_in_step: Whether the learning rate includes sigma, as in ARS.
        within_pairs: Whether it compares only the two sides of each pair.
    """

    shape: Callable[[Float64, Float64], Float64]
    sigma_in_step: bool = False
    within_pairs: bool = False


_RULES = {
    "centered_ranks": Rule(_centered_ranks),
    "standardized": Rule(_standardized, sigma_in_step=True),
    "nes": Rule(_nes),
    "signed_ranks": Rule(_signed_ranks, within_pairs=True),
}
SHAPINGS = tuple(_RULES)


def rule_of(shaping: str | ShapingFunction) -> Rule:
    """Return the rule of a shaping; ValueError for an unknown name."""
    if callable(shaping):
        return Rule(partial(_shaped_by, shaping))
    if shaping not in _RULES:
        raise ValueError(f"unknown shaping {shaping!r}: expected one of {SHAPINGS}{suggest(shaping, SHAPINGS)}")
    return _RULES[shaping]


def checked_shaping(name: str, value: Any) -> Any:
    """Return one of SHAPINGS or a function as it is, or raise ValueError."""
    if not callable(value) and (not isinstance(value, str) or value not in SHAPINGS):
        raise ValueError(f"{name} = {shown(value)}: expected one of {SHAPINGS} or a function{suggest(value, SHAPINGS)}")
    return value


def missing_shaping(finite: Float64) -> Float64:  # noqa: ARG001
    """Stand for a function of the user's in a model that was loaded without it."""
    raise ValueError(
        "shaping was a function of your own, which a checkpoint does not hold: pass it, as in load(path, shaping=function)"
    )


def _shaped_by(function: ShapingFunction, _: Float64, finite: Float64) -> Float64:
    shaped = np.array(function(finite.copy()), dtype=np.float64)
    finite_too = bool(np.isfinite(shaped).all())
    if shaped.shape != finite.shape or not finite_too:
        what = f"shape {shaped.shape}" if finite_too else "values that are not finite"
        raise ValueError(
            f"shaping = {shown(function)} returned {what}: expected finite numbers of shape {finite.shape}, as the returns"
        )
    return shaped


def nes_utilities(values: Float64) -> Float64:
    """Return N u_k of values (N,) float64, N even, as float64 (N,): at least -1, with a sum of 0.

    Equal values share what their places get; non-finite ones have the last places. The same bits on every system.
    """
    count = len(values)
    places = np.maximum(log((0.5 * count + 1.0) / np.arange(1.0, count + 1.0)), 0.0)
    _, group, sizes = np.unique(-np.where(np.isfinite(values), values, -np.inf), return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    sums = [math.fsum(places[end - size : end]) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
    # if all are equal, a number is divided by itself
    utilities: Float64 = (np.array(sums) * count) / (math.fsum(places) * sizes) - 1.0
    return utilities[group]


def signed_ranks(returns: Float64) -> Float64:
    """Return sign(r+ - r-) times the rank of |r+ - r-| among the n pairs over n, float64 (n,), for returns (n, 2).

    Equal sizes share the mean of their ranks, and equal returns of a pair give 0. A side that is not finite is worse than one
    that is, by the largest difference; two such sides are equal.
    """
    finite = np.isfinite(returns)
    values = np.where(finite, returns, 0.0)
    with np.errstate(over="ignore"):  # differences beyond the largest float are equally large
        differences = values[:, 0] - values[:, 1]
    differences[finite[:, 0] & ~finite[:, 1]] = np.inf
    differences[~finite[:, 0] & finite[:, 1]] = -np.inf
    _, group, sizes = np.unique(np.abs(differences), return_inverse=True, return_counts=True)
    ranks = np.cumsum(sizes) - 0.5 * (sizes - 1)
    signed: Float64 = np.sign(differences) * ranks[group] / len(differences)
    return signed
