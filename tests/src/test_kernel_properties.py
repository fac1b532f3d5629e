"""Risk: a kernel is wrong where no example looked, or takes an argument that makes it read or write elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from twins.same_bits import assert_same_bits

from fastes import _core
from fastes.errors import FastESError
from fastes.es import noise_table as noise
from fastes.es.fitness_shaping import SHAPINGS, shape_returns
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import draw_eval_seeds, draw_pairs
from fastes.policies.named_policies import make_policy_spec

modest = settings(max_examples=60, deadline=None)

ANY = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SMALL_INTEGERS = st.integers(-5, 5).map(float)
ROUND = st.integers(-1000, 1000).map(lambda n: np.float32(n / 8))  # products and their sums are exact
FLOAT32 = st.floats(-1000, 1000, width=32)


def vectors(elements: st.SearchStrategy[Any], low: int = 1, high: int = 40, dtype: type = np.float64) -> Any:
    return hnp.arrays(dtype, st.integers(low, high), elements=elements)


def returns_of(elements: st.SearchStrategy[Any]) -> Any:
    return hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=elements)


# centered_ranks


@given(vectors(ANY | SMALL_INTEGERS), st.randoms(use_true_random=False))
@modest
def test_ranks_follow_the_values(values: np.ndarray, random: Any) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    assert_same_bits("permuted", _core.centered_ranks(values[order]), _core.centered_ranks(values)[order])


@given(vectors(ANY | SMALL_INTEGERS))
@modest
def test_ranks_count_what_is_below_and_equal(values: np.ndarray) -> None:
    key = [value if math.isfinite(value) else -math.inf for value in values]
    below = np.array([sum(other < value for other in key) for value in key])
    equal = np.array([sum(other == value for other in key) for value in key])
    span = max(len(key) - 1, 1)
    expected = (below + 0.5 * (equal - 1)) / span - 0.5 if len(key) > 1 else np.zeros(1)
    assert_same_bits("ranks", _core.centered_ranks(values), expected.astype(np.float32))


@given(vectors(ANY | SMALL_INTEGERS))
@modest
def test_ranks_see_only_the_order(values: np.ndarray) -> None:
    _, group = np.unique(np.where(np.isfinite(values), values, -np.inf), return_inverse=True)
    ranks = _core.centered_ranks(values)
    assert_same_bits("monotone", _core.centered_ranks(np.exp2(group.astype(np.float64)) - 7.0), ranks)
    assert abs(ranks.astype(np.float64).sum()) <= len(values) * 2.0**-25
    assert np.abs(ranks).max() <= 0.5


@given(vectors(FINITE), st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=5))
@modest
def test_what_is_not_finite_ranks_lowest(values: np.ndarray, others: list[float]) -> None:
    ranks = _core.centered_ranks(np.concatenate([values, others]))
    assert len(set(ranks[len(values) :].tolist())) == 1
    assert ranks[-1] < ranks[: len(values)].min()
    assert_same_bits("all NaN", _core.centered_ranks(np.array(others)), np.zeros(len(others), np.float32))


def test_ranks_of_distinct_values_span_the_interval() -> None:
    for n in (2, 3, 1000):
        ranks = _core.centered_ranks(np.arange(n, dtype=np.float64) ** 3)
        assert (ranks[0], ranks[-1]) == (-0.5, 0.5)
        assert (np.diff(ranks) > 0).all()


# perturb and noise_sum


def perturbed(theta: np.ndarray, table: np.ndarray, index: int, scale: float) -> np.ndarray:
    out = np.empty_like(theta)
    _core.perturb(out, theta, table, index, scale)
    return out


@given(vectors(FLOAT32, dtype=np.float32), st.integers(0, 9), st.floats(0, 10, width=32), st.integers(0, 1000))
@modest
def test_sides_of_a_pair_mirror_each_other(theta: np.ndarray, index: int, scale: float, seed: int) -> None:
    table = NoiseTable(len(theta) + 9, seed).values
    plus, minus = perturbed(theta, table, index, scale), perturbed(theta, table, index, -scale)
    assert np.array_equal(perturbed(-theta, table, index, -scale), -plus)
    assert np.array_equal(perturbed(0 * theta, table, index, scale), -perturbed(0 * theta, table, index, -scale))
    assert np.array_equal(perturbed(theta, table, index, 0.0), theta)
    rounding = (np.abs(theta).astype(np.float64) + 10 * scale) * 2.0**-23 + 1e-44
    eps = table[index : index + len(theta)].astype(np.float64)
    assert (np.abs((plus.astype(np.float64) + minus) / 2 - theta) <= rounding).all()
    assert (np.abs((plus.astype(np.float64) - minus) / 2 - scale * eps) <= rounding).all()


def summed(n: int, table: np.ndarray, index: Any, weights: Any) -> np.ndarray:
    out = np.empty(n, dtype=np.float32)
    _core.noise_sum(out, table, np.array(index, dtype=np.int64), np.array(weights, dtype=np.float32))
    return out


@st.composite
def sums(draw: Any, elements: st.SearchStrategy[Any] = FLOAT32) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """n, table, noise_index, weights"""
    n = draw(st.integers(1, 40))
    table = draw(hnp.arrays(np.float32, n + draw(st.integers(0, 40)), elements=elements))
    jobs = draw(st.integers(0, 12))
    index = draw(hnp.arrays(np.int64, jobs, elements=st.integers(0, len(table) - n)))
    return n, table, index, draw(hnp.arrays(np.float32, jobs, elements=elements))


@given(sums(), st.integers(0, 12))
@modest
def test_a_sum_goes_on_where_a_sum_of_its_first_jobs_ended(case: Any, split: int) -> None:
    n, table, index, weights = case
    first = summed(n, table, index[:split], weights[:split])
    longer = np.concatenate([table, first])
    then = summed(n, longer, [len(table), *index[split:]], [1.0, *weights[split:]])
    assert_same_bits("sum", then, summed(n, table, index, weights))


@given(sums(), st.data())
@modest
def test_jobs_of_weight_zero_change_no_bit(case: Any, data: Any) -> None:
    n, table, index, weights = case
    at = data.draw(st.lists(st.integers(0, len(index)), max_size=5))
    more = np.insert(index, at, 0), np.insert(weights, at, data.draw(st.sampled_from([0.0, -0.0])))
    assert_same_bits("sum", summed(n, table, *more), summed(n, table, index, weights))
    drawn = NoiseTable(len(table), 0)
    assert_same_bits("weighted_sum", drawn.weighted_sum(*more, n), summed(n, drawn.values, index, weights))


@given(sums(ROUND), st.integers(-20, 20))
@modest
def test_a_sum_is_linear(case: Any, exponent: int) -> None:
    n, table, index, weights = case
    total = summed(n, table, index, weights)
    exact = sum((float(w) * table[i : i + n].astype(np.float64) for i, w in zip(index, weights, strict=True)), np.zeros(n))
    assert np.array_equal(total, exact)
    assert np.array_equal(summed(n, table, index, weights * np.float32(2.0**exponent)), total * np.float32(2.0**exponent))
    assert np.array_equal(summed(n, table, index, -weights), -total)
    assert np.array_equal(summed(n, table, index[::-1], weights[::-1]), total)


@given(sums(), st.integers(1, 40), st.integers(1, 4))
@modest
def test_a_sum_on_several_threads_is_the_same_sum(case: Any, grain: int, cpus: int) -> None:
    n, table, index, weights = case
    drawn = NoiseTable(len(table), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "GRAIN", grain)
        patch.setattr(noise, "WORTH_A_THREAD", 1)
        patch.setattr(noise, "available_cpus", lambda: cpus)
        assert_same_bits("sum", drawn.weighted_sum(index, weights, n), summed(n, drawn.values, index, weights))


@given(hnp.arrays(np.float32, st.integers(0, 100), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
@modest
def test_sum_squares_is_the_sum_of_squares(x: np.ndarray) -> None:
    exact = math.fsum(float(value) ** 2 for value in x)
    assert _core.sum_squares(x) == pytest.approx(exact, rel=1e-14)
    assert _core.sum_squares(-x) == _core.sum_squares(x)


# shape_returns


@given(returns_of(ANY | SMALL_INTEGERS), st.sampled_from(SHAPINGS), st.floats(0.01, 1.0))
@modest
def test_what_is_not_finite_never_reaches_the_weights(returns: np.ndarray, shaping: str, top: float) -> None:
    returns.flags.writeable = False
    if not np.isfinite(returns).any():
        with pytest.raises(FastESError, match=rf"^none of the {returns.size} returns of this generation is finite; "):
            shape_returns(returns, 0.1, shaping, top)
        return
    shaped, weights, scale, *_ = shape_returns(returns, 0.1, shaping, top)
    assert (weights.dtype, weights.shape, shaped.shape) == (np.float32, returns.shape[:1], returns.shape)
    assert np.isfinite(shaped).all()
    assert np.isfinite(weights).all()
    assert math.isfinite(scale)
    assert_same_bits("weights", weights, (shaped[:, 0] - shaped[:, 1]).astype(np.float32))
    kept = max(1, math.ceil(top * len(returns) - 1e-9))
    assert np.count_nonzero(shaped.any(axis=1)) <= kept
    finite = np.isfinite(returns)
    if finite.all() and shaped.any():
        best = returns.max(axis=1)
        assert best[shaped.any(axis=1)].min() >= np.sort(best)[-kept]


@given(returns_of(ANY | SMALL_INTEGERS), st.sampled_from(SHAPINGS), st.randoms(use_true_random=False))
@modest
def test_weights_follow_pairs_and_sides(returns: np.ndarray, shaping: str, random: Any) -> None:
    assume(np.isfinite(returns).any())
    weights = shape_returns(returns, 0.1, shaping).weights
    order = list(range(len(returns)))
    random.shuffle(order)
    assert_same_bits("permuted", shape_returns(returns[order], 0.1, shaping).weights, weights[order])
    assert np.array_equal(shape_returns(returns[:, ::-1], 0.1, shaping).weights, -weights)


@given(returns_of(SMALL_INTEGERS | st.sampled_from([math.nan, math.inf, -math.inf])), st.floats(0.01, 1.0))
@modest
def test_what_is_not_finite_counts_as_worst(returns: np.ndarray, top: float) -> None:
    finite = np.isfinite(returns)
    assume(finite.any())
    worst = returns[finite].min()
    as_worst, below = np.where(finite, returns, worst), np.where(finite, returns, worst - 1.0)
    weights = shape_returns(returns, 0.1, "standardized", top).weights
    assert_same_bits("standardized", weights, shape_returns(as_worst, 0.1, "standardized", top).weights)
    weights = shape_returns(returns, 0.1, "centered_ranks").weights
    assert_same_bits("ranked", weights, shape_returns(below, 0.1, "centered_ranks").weights)


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_pairs_that_tie_for_the_top_are_taken_in_order(shaping: str) -> None:
    returns = np.zeros((300, 2))
    returns[:, 0] = np.tile([1.0, 2.0, 3.0], 100)
    kept = shape_returns(returns, 0.1, shaping, top_fraction=0.5).shaped.any(axis=1)
    assert np.flatnonzero(kept).tolist() == sorted([*range(2, 300, 3), *range(1, 150, 3)])


@pytest.mark.filterwarnings("error")
@given(FINITE | st.just(0.0), st.integers(1, 12), st.sampled_from(SHAPINGS), st.floats(0.01, 1.0))
@modest
def test_equal_returns_give_no_gradient(value: float, num_pairs: int, shaping: str, top: float) -> None:
    shaped = shape_returns(np.full((num_pairs, 2), value), 0.1, shaping, top)
    assert not shaped.weights.any()
    assert not shaped.shaped.any()


@given(returns_of(ROUND.map(float)), st.integers(-900, 900), st.integers(-300, 300))
@modest
def test_standardized_weights_do_not_depend_on_the_scale(returns: np.ndarray, power_of_2: int, power_of_10: int) -> None:
    weights = shape_returns(returns, 0.1, "standardized").weights
    assert_same_bits("weights", shape_returns(np.ldexp(returns, power_of_2), 0.1, "standardized").weights, weights)
    scaled = shape_returns(returns * 10.0**power_of_10, 0.1, "standardized").weights
    np.testing.assert_allclose(scaled, weights, rtol=1e-6, atol=1e-6)
    opposite = shape_returns(-returns, 0.1, "standardized").weights
    np.testing.assert_allclose(opposite, -weights, rtol=1e-6, atol=1e-6)


@given(returns_of(ROUND.map(float)))
@modest
def test_standardized_returns_have_mean_0_and_std_1(returns: np.ndarray) -> None:
    shaped, _, scale, *_ = shape_returns(returns, 0.1, "standardized")
    assert scale == 1.0 / len(returns)
    if np.ptp(returns) > 0:
        assert shaped.mean() == pytest.approx(0.0, abs=1e-12)
        assert shaped.std() == pytest.approx(1.0, abs=1e-12)


@given(returns_of(FINITE | SMALL_INTEGERS), st.floats(0.001, 10.0))
@modest
def test_ranked_weights_see_only_the_order(returns: np.ndarray, sigma: float) -> None:
    shaped, weights, scale, *_ = shape_returns(returns, sigma, "centered_ranks")
    assert scale == 1.0 / (returns.size * sigma)
    _, group = np.unique(returns, return_inverse=True)
    ordered = np.exp2(group.reshape(returns.shape).astype(np.float64))
    assert_same_bits("weights", shape_returns(ordered, sigma, "centered_ranks").weights, weights)
    assert_same_bits("ranks", shaped.ravel().astype(np.float32), _core.centered_ranks(returns.ravel()))


# draws


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(1, 3), st.integers(1, 200))
@modest
def test_draws_depend_on_their_place_alone(seed: int, generation: int, pairs: int, episodes: int, spare: int) -> None:
    index, env_seed, key = draw_pairs(seed, generation, 20, 3, 1000, 999 + spare)
    assert ((index >= 0) & (index < spare)).all()
    assert ((env_seed >= 0) & (env_seed < 2**31)).all()
    fewer = draw_pairs(seed, generation, pairs, episodes, 1000, 999 + spare)
    for some, all_of_them in zip(fewer, (index[:pairs], env_seed[:pairs, :episodes], key[:pairs, :episodes]), strict=True):
        assert np.array_equal(some, all_of_them)
    assert len(np.unique(key)) == key.size
    assert not np.array_equal(draw_eval_seeds(seed, generation, 20), env_seed[:, 0])
    other = draw_pairs(seed, (generation + 1) % 2**32, 20, 3, 1000, 999 + spare)
    assert not (other[1] == env_seed).all(axis=1).any()


# The border


def buffers(n: int = 10, table: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(table, np.float32)


@given(st.integers(-(2**63), -1) | st.integers(91, 2**63 - 11), st.integers(0, 5))
@modest
def test_an_index_out_of_range_is_named_with_its_value_and_limit(index: int, place: int) -> None:
    out, theta, table = buffers()
    expected = f"= {index} is out of range: the table has 100 values, the policy needs 10"
    with pytest.raises(ValueError, match=f"^{re.escape(f'noise_index {expected}')}$"):
        _core.perturb(out, theta, table, index, 1.0)
    indices = np.zeros(6, dtype=np.int64)
    indices[place:] = index
    with pytest.raises(ValueError, match=f"^{re.escape(f'noise_index[{place}] {expected}')}$"):
        _core.noise_sum(out, table, indices, np.zeros(6, np.float32))
    assert not out.any()


@given(st.integers(0, 90))
@modest
def test_every_index_in_range_is_taken(index: int) -> None:
    out, theta, _ = buffers()
    table = np.arange(100, dtype=np.float32)
    _core.perturb(out, theta, table, index, 1.0)
    assert np.array_equal(out, table[index : index + 10])
    assert np.array_equal(summed(10, table, [index], [1.0]), table[index : index + 10])


def actor() -> _core.Actor:
    return _core.Actor(make_policy_spec("LinearPolicy", spaces.Box(-1, 1, (2, 2)), spaces.Discrete(3)))


def float32(n: int) -> np.ndarray:
    return np.zeros(n, np.float32)


def sum_piece(begin: int, end: int, index: int) -> None:
    """A piece of a sum of 2 values, from a table of 9."""
    index_begin_end = (np.array([value], dtype=np.int64) for value in (index, begin, end))
    _core.noise_sum_pieces(float32(2), float32(9), *index_begin_end, float32(1), False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: _core.normal_fill(float32(3), 0, -1),
            "start = -1 is negative: expected the number of the first value, 0 or more",
        ),
        (lambda: _core.perturb(float32(9), float32(10), float32(100), 0, 1.0), "out has 9 values, expected 10"),
        (lambda: _core.perturb_each(float32(9), float32(10), float32(100), 0, float32(10), 0), "out has 9 values, expected 10"),
        (
            lambda: _core.perturb_each(float32(10), float32(10), float32(100), 0, float32(9), 0),
            "sigma has 9 values, expected 10",
        ),
        (
            lambda: _core.perturb_each(float32(2), float32(2), float32(2), 0, float32(2), 2),
            "side = 2 is out of range: a pair has sides 0 and 1",
        ),
        *(
            (
                lambda kernel=kernel: kernel(float32(2), float32(9), np.zeros(3, np.int64), float32(4)),
                "weights has 4 values, expected 3",
            )
            for kernel in (_core.noise_sum, _core.noise_square_sum)
        ),
        (
            lambda: _core.noise_sum(float32(2), float32(0), np.zeros(1, np.int64), float32(1)),
            "noise_index[0] = 0 is out of range: the table has 0 values, the policy needs 2",
        ),
        *(
            (lambda at=at, index=index: sum_piece(*at, index), message)
            for at, index, message in (
                ((0, 3), 0, "piece 0 = 0 to 3 is out of range: the sum has 2 values"),
                ((-1, 2), 0, "piece 0 = -1 to 2 is out of range: the sum has 2 values"),
                ((2, 1), 0, "piece 0 = 2 to 1 is out of range: the sum has 2 values"),
                ((0, 2), 8, "noise_index[0] = 8 is out of range: the table has 9 values, the policy needs 2"),
                ((1, 2), -1, "noise_index[0] = -1 is out of range: the table has 9 values, the policy needs 1"),
                (
                    (1, 2),
                    2**63 - 1,
                    f"noise_index[0] = {2**63 - 1} is out of range: the table has 9 values, the policy needs 1",
                ),
            )
        ),
        (lambda: _core.philox(np.zeros((2, 3), np.uint32), 0), "counters has 3 columns, expected 4"),
        (lambda: _core.draw_pairs(0, 0, 2, 1, 0), "places = 0 is out of range: expected at least one"),
        (lambda: _core.sum_moments(np.zeros((2, 2, 3)), np.zeros(1, np.int64)), "counts has 1 values, expected 2"),
        (lambda: _core.sum_moments(np.zeros((2, 3, 3)), np.zeros(2, np.int64)), "moments has 3 rows a job, expected 2"),
        (
            lambda: _core.join_moments(np.zeros(3), np.zeros(3), 1, np.zeros((2, 3)), 0),
            "sums has 2 rows of 0 observations after 1: expected 2, at least 1 and 0",
        ),
        (lambda: _core.commit(np.zeros(5, np.int64), 5, 1), "slot = 5 is out of range: there are 5 slots"),
        (lambda: _core.commit(np.zeros(5, np.int64), -1, 1), "slot = -1 is out of range: there are 5 slots"),
        (lambda: _core.committed(np.zeros(0, np.int64), 0), "slot = 0 is out of range: there are 0 slots"),
        (lambda: _core.uncommitted(np.zeros(5, np.int64), np.array([4, 5]), 1), "slot = 5 is out of range: there are 5 slots"),
        (lambda: _core.uncommitted(np.zeros(5, np.int64), np.array([-1]), 1), "slot = -1 is out of range: there are 5 slots"),
        (lambda: _core.claim(np.zeros((3, 8), np.int64), 2, 4), "rows 2 to 4 are out of range: there are 3"),
        (lambda: _core.claim(np.zeros((3, 8), np.int64), -1, 2), "rows -1 to 2 are out of range: there are 3"),
        (lambda: _core.claim(np.zeros((3, 8), np.int64), 2, 1), "rows 2 to 1 are out of range: there are 3"),
        (lambda: actor().set_normalizer(np.zeros(3), np.ones(4), 5.0), "mean has 3 values, expected 4"),
        (lambda: actor().set_normalizer(np.zeros(4), np.ones(5), 5.0), "inv_std has 5 values, expected 4"),
        (lambda: actor().act(np.zeros(3)), "observation has shape (3,), the policy expects (2, 2)"),
        (lambda: actor().act(np.zeros((2, 3), np.uint8)), "observation has shape (2, 3), the policy expects (2, 2)"),
        (lambda: actor().act([]), "observation has shape (0,), the policy expects (2, 2)"),
        (
            lambda: _core.use_variant("mmx"),
            f"kernel variant 'mmx' cannot run here: choose 'auto' or one of {_core.available_variants()}",
        ),
    ],
)
def test_bad_arguments_say_what_was_passed_and_what_was_expected(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


def read_only(n: int) -> np.ndarray:
    array = float32(n)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: _core.normal_fill(np.zeros(4), 0), ValueError),
        (lambda: _core.normal_fill(float32(8)[::2], 0), ValueError),
        (lambda: _core.normal_fill(float32(8).reshape(2, 4), 0), ValueError),
        (lambda: _core.normal_fill(read_only(4), 0), ValueError),
        (lambda: _core.normal_fill(None, 0), TypeError),
        (lambda: _core.normal_fill(float32(4), -1), OverflowError),
        (lambda: _core.normal_fill(float32(4), 2**64), OverflowError),
        (lambda: _core.perturb(read_only(4), float32(4), float32(4), 0, 1.0), ValueError),
        (lambda: _core.perturb(float32(4), float32(4), np.zeros(4), 0, 1.0), ValueError),
        (lambda: _core.perturb_each(float32(4), float32(4), float32(4), 0, np.zeros(4), 0), ValueError),
        (lambda: _core.noise_sum(float32(4), float32(4), np.zeros(1, np.int32), float32(1)), ValueError),
        (lambda: _core.centered_ranks(float32(4)), ValueError),
        (lambda: _core.sum_squares(float32(8)[::2]), ValueError),
        (lambda: _core.philox(np.zeros((2, 4), np.uint64), 0), ValueError),
    ],
)
def test_arrays_of_another_kind_are_refused(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_read_only_inputs_are_taken() -> None:
    _core.perturb(float32(4), read_only(4), read_only(4), 0, 1.0)
    _core.noise_sum(float32(4), read_only(4), np.zeros(1, np.int64), read_only(1))
    assert _core.sum_squares(read_only(4)) == 0.0


def test_a_refused_variant_leaves_the_one_in_use(kernels: None) -> None:
    least = _core.available_variants()[0]
    _core.use_variant(least)
    with pytest.raises(ValueError, match="mmx"):
        _core.use_variant("mmx")
    assert _core.variant() == least
    _core.use_variant("auto")
    assert _core.variant() == _core.available_variants()[-1]


@pytest.mark.parametrize("kernel", ["perturb", "perturb_each", "noise_sum", "noise_square_sum"])
def test_an_index_near_the_end_of_int64_is_out_of_range(kernel: str) -> None:
    out, theta, memory = buffers(table=200)
    table, index = memory[100:], 2**63 - 5  # wraps to 5 values before the table, which are ours here
    calls = {
        "perturb": lambda: _core.perturb(out, theta, table, index, 1.0),
        "perturb_each": lambda: _core.perturb_each(out, theta, table, index, theta, 0),
        "noise_sum": lambda: _core.noise_sum(out, table, np.array([index]), float32(1)),
        "noise_square_sum": lambda: _core.noise_square_sum(out, table, np.array([index]), float32(1)),
    }
    with pytest.raises(ValueError, match="is out of range"):
        calls[kernel]()


@pytest.mark.parametrize("mapping", ["clip", "squash", "bins"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-2.0, 3.0, (2,)),
        spaces.Box(-0.7, 0.1, (2,)),  # low + (high - low) > high
        spaces.Box(-0.7, 0.7, (2,), np.float64),
        spaces.Box(-3e38, 3e38, (2,)),  # high - low overflows float32
        spaces.Box(-0.1, 0.1, (2,), np.float64),  # and neither bound is a float32
    ],
)
def test_actions_lie_in_their_space(space: spaces.Box, mapping: str) -> None:
    spec = make_policy_spec("LinearPolicy", spaces.Box(-1, 1, (1,)), space, {"action_mapping": mapping})
    one_of = _core.Actor(spec)
    one_of.parameters[:] = np.tile(np.arange(1, 11), 2) if mapping == "bins" else 50.0
    for obs in (-1.0, -0.02, 0.0, 1e-3, 1.0):
        action = one_of.act(np.array([obs]))
        assert space.contains(action), action
        if abs(obs) == 1.0:
            bound = space.high if obs > 0 else space.low
            assert action.astype(np.float64) == pytest.approx(bound.astype(np.float64), rel=1e-6)


def test_jobs_are_claimed_of_the_oldest_request_that_has_any() -> None:
    words = np.zeros((4, 8), dtype=np.int64)
    for row, ticket, jobs in (0, 9, 2), (1, 7, 1), (2, 5, 0), (3, 1, 1):
        _core.commit(words[row], 0, ticket << 32 | jobs)
    assert [_core.claim(words, 0, 3) for _ in range(4)] == [(1, 7, 0), (0, 9, 1), (0, 9, 0), None]
    assert [_core.claim(words, 2, 2), _core.claim(words, 2, 4), _core.claim(words, 0, 4)] == [None, (3, 1, 0), None]
    assert [int(word) for word in words[:, 0]] == [9 << 32, 7 << 32, 5 << 32, 1 << 32]


def test_jobs_without_a_flag_of_their_request() -> None:
    flags = np.array([4, 3, 5, 0], dtype=np.int64)
    assert _core.uncommitted(flags, np.array([3, 2, 1, 0]), 4).tolist() == [3, 1]
    assert _core.uncommitted(flags, np.array([3, 2, 1, 0])[::2], 6).tolist() == [3, 1]
    assert _core.uncommitted(flags, np.zeros(0, np.int64), 4).tolist() == []
