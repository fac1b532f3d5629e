"""Risk: statistics of observations depend on who played which episode, or lose what rounding takes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from fastes.rollout.obs_normalizer import EXACT_ABOVE, MomentSums, ObsNormalizer

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def drawn(jobs: int, obs_size: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Moments of very different sizes, and counts."""
    rng = np.random.default_rng(seed)
    size = np.exp(rng.normal(0.0, 20.0, (jobs, 2, obs_size)))
    return rng.normal(0.0, 1.0, (jobs, 2, obs_size)) * size, rng.integers(1, 1000, jobs)


def exact(values: np.ndarray) -> list[float]:
    """Sums over the first axis as fractions, rounded once."""
    return [_as_float(sum(map(Fraction, column.tolist()), Fraction(0))) for column in values.reshape(len(values), -1).T]


def _as_float(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(stn.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2), st.just(2)), elements=FINITE), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_sums_are_rounded_once_however_they_are_parted(moments: np.ndarray, cut: int) -> None:
    counts = np.ones(len(moments), dtype=np.int64)
    whole = MomentSums.of(moments, counts).rounded((2, 2))
    parts = MomentSums.of(moments[cut:], counts[cut:]) + MomentSums.of(moments[:cut], counts[:cut])
    assert whole.tobytes() == parts.rounded((2, 2)).tobytes()
    assert whole.ravel().tolist() == exact(moments)


@pytest.mark.parametrize("value", [5e-324, 2.2e-308, 1.7976931348623157e308, -1.7976931348623157e308, 1.0 + 2**-52])
def test_the_ends_of_the_range_are_summed(value: float) -> None:
    moments = np.full((3, 2, 1), value)
    assert MomentSums.of(moments, np.ones(3, dtype=np.int64)).rounded((2, 1)).ravel().tolist() == exact(moments)


def test_no_order_changes_a_bit_of_the_statistics() -> None:
    moments, counts = drawn(EXACT_ABOVE + 300)
    first, rng = ObsNormalizer(3), np.random.default_rng(1)
    first.merge(moments, counts)
    order = rng.permutation(len(counts))
    shuffled, parted = ObsNormalizer(3), ObsNormalizer(3)
    shuffled.merge(moments[order], counts[order])
    total = MomentSums({}, 0, 0, 0)
    for part in np.array_split(order, [1, 7, 500, 900]):
        total += MomentSums.of(moments[part], counts[part])
    parted.merge(total, counts)
    for other in (shuffled, parted):
        assert first.mean.tobytes() == other.mean.tobytes()
        assert first.squares.tobytes() == other.squares.tobytes()
        assert (first.count, first.skipped) == (other.count, other.skipped)


def test_few_episodes_keep_the_bits_that_they_had() -> None:
    moments, counts = drawn(EXACT_ABOVE)
    normalizer = ObsNormalizer(3)
    normalizer.merge(moments, counts)
    sums = np.zeros(3)
    for row in moments:
        sums += row[0]
    assert normalizer.mean.tobytes() == (sums / counts.sum()).tobytes()
    exactly = ObsNormalizer(3)
    exactly.merge(MomentSums.of(moments, counts), counts)
    assert exactly.mean.tobytes() != normalizer.mean.tobytes(), "the sums differ, or this test shows nothing"
    assert exactly.mean == pytest.approx(normalizer.mean)


def test_episodes_that_are_not_finite_are_left_out_and_counted() -> None:
    moments, counts = drawn(EXACT_ABOVE + 100)
    kept = np.arange(len(counts)) % 5 != 0
    moments[~kept, 1, 0] = np.nan
    moments[5, 1, 0] = np.inf
    counts[10] = 0  # no observation: neither kept nor left out
    some, others = ObsNormalizer(3), ObsNormalizer(3)
    some.merge(moments, counts)
    others.merge(MomentSums.of(moments[kept], counts[kept]), counts[kept])
    assert some.mean.tobytes() == others.mean.tobytes()
    assert some.skipped == np.count_nonzero(~kept) - 1
    assert some.count == counts[kept].sum()


def test_sums_beyond_the_largest_number_leave_all_out() -> None:
    jobs = EXACT_ABOVE + 1
    normalizer = ObsNormalizer(1)
    normalizer.merge(np.full((jobs, 2, 1), 1e307), np.ones(jobs, dtype=np.int64))
    assert (normalizer.count, normalizer.skipped, normalizer.mean[0]) == (0, jobs, 0.0)
