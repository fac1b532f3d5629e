"""Compare every kernel with its twin in tests/helpers/twins/numpy_kernels.py, bit for bit, before anything is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from benchmarks.speed.policy_steps import POLICIES, filled_actor
from benchmarks.twins import assert_same_bits, numpy_kernels
from fastes import _core

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

SIZES = (1, 15, 16, 17, 63, 64, 65, 1000)
SUM_SIZES = (1, 17, 1000, 16383, 16384, 16385, 40000)  # around noise_sum's block


@contextmanager
def kernels_of(variant: str) -> Iterator[None]:
    """Run with one variant's kernels, then go back to those in use before."""
    before = _core.variant()
    _core.use_variant(variant)
    try:
        yield
    finally:
        _core.use_variant(before)


def check_kernels() -> None:
    """Every kernel of every variant that runs here, around block boundaries. Ends the program at the first difference."""
    for variant in _core.available_variants():
        with kernels_of(variant), refused_when_different(variant):
            _verify_fill()
            _verify_perturb()
            _verify_noise_sum()
            _verify_sums_and_ranks()
            _verify_screens()
            for name in POLICIES:
                _verify_act(name)


@contextmanager
def refused_when_different(variant: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise SystemExit(f"nothing is timed: a kernel of variant {variant} differs from its twin: {error}") from None


def check_large_sum(table: Float32, noise_index: Int64, weights: Float32, num_params: int) -> None:
    """noise_sum of the very arrays that will be timed, against its twin."""
    actual, expected = np.empty(num_params, dtype=np.float32), np.empty(num_params, dtype=np.float32)
    _core.noise_sum(actual, table, noise_index, weights)
    numpy_kernels.noise_sum(expected, table, noise_index, weights)
    with refused_when_different(_core.variant()):
        assert_same_bits("noise_sum", actual, expected)


def _verify_fill() -> None:
    for start in (0, 1, 63, 2**33 + 5):
        for size in SIZES:
            actual, expected = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
            _core.normal_fill(actual, 2**40 + 7, start)
            numpy_kernels.normal_fill(expected, 2**40 + 7, start)
            assert_same_bits(f"normal_fill(start={start}, {size} values)", actual, expected)


def _verify_perturb() -> None:
    rng = np.random.default_rng(1)
    table = rng.standard_normal(4000, dtype=np.float32)
    for size in SIZES:
        theta = rng.standard_normal(size, dtype=np.float32)
        actual, expected = np.empty_like(theta), np.empty_like(theta)
        for scale in (0.02, -0.02):
            _core.perturb(actual, theta, table, 3, scale)
            numpy_kernels.perturb(expected, theta, table, 3, scale)
            assert_same_bits(f"perturb({size} values)", actual, expected)
        for side in (0, 1):
            _core.perturb_each(actual, theta, table, 3, table[:size], side)
            numpy_kernels.perturb_each(expected, theta, table, 3, table[:size], side)
            assert_same_bits(f"perturb_each({size} values)", actual, expected)


def _verify_noise_sum() -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal(100_000, dtype=np.float32)
    for size in SUM_SIZES:
        for slices in (0, 1, 3, 4, 5, 9):
            noise_index = rng.integers(0, len(table) - size + 1, slices)
            weights = rng.standard_normal(slices, dtype=np.float32)
            actual, expected = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
            for name in ("noise_sum", "noise_square_sum"):
                getattr(_core, name)(actual, table, noise_index, weights)
                getattr(numpy_kernels, name)(expected, table, noise_index, weights)
                assert_same_bits(f"{name}({slices} slices of {size})", actual, expected)
            begin = rng.integers(0, size, slices)
            end = rng.integers(begin, size + 1)
            for squares in (False, True):
                _core.noise_sum_pieces(actual, table, noise_index, begin, end, weights, squares)
                numpy_kernels.noise_sum_pieces(expected, table, noise_index, begin, end, weights, squares)
                assert_same_bits(f"noise_sum_pieces({slices} pieces of {size})", actual, expected)


def _verify_sums_and_ranks() -> None:
    rng = np.random.default_rng(3)
    for size in SIZES:
        x = rng.standard_normal(size, dtype=np.float32)
        assert_same_bits(f"sum_squares({size} values)", _core.sum_squares(x), numpy_kernels.sum_squares(x))
        values = rng.integers(0, 40, size).astype(np.float64)
        values[rng.random(size) < 0.1] = np.nan
        assert_same_bits(f"centered_ranks({size} values)", _core.centered_ranks(values), numpy_kernels.centered_ranks(values))


def _verify_screens() -> None:
    rng = np.random.default_rng(4)
    colours = rng.integers(0, 5, (2, 210, 160), dtype=np.uint8)
    actual, expected = np.zeros_like(colours), np.zeros_like(colours)
    kernel, twin = _core.Greys(), numpy_kernels.Greys()
    for greys, screens in ((kernel, actual), (twin, expected)):
        greys.learn(colours[0], colours[0] * np.uint8(51))
        for one, grey in zip(colours, screens, strict=True):
            greys.look_up(one, grey)
    assert_same_bits("look_up", actual, expected)
    for size in ((84, 84), (42, 40), (7, 160)):
        small, other = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        _core.AreaResize((210, 160), size).brighter(*actual, small)
        numpy_kernels.AreaResize((210, 160), size).brighter(*expected, other)
        assert_same_bits(f"brighter, of size {size}", small, other)


def _verify_act(name: str) -> None:
    """A few steps with normalisation, moments and, where the policy has any, action noise or sampling."""
    actor, observation = filled_actor(POLICIES[name], _core.Actor)
    twin, _ = filled_actor(POLICIES[name], numpy_kernels.Actor)
    for noise, sample in ((0.0, False), (0.1, True)):
        for each in (actor, twin):
            each.count_moments(True)
            each.begin_episode(11, noise, sample)
        for step in range(3):
            assert_same_bits(f"act of {name}, step {step}", actor.act(observation * step), twin.act(observation * step))
        assert_same_bits(f"moments of {name}", actor.observation_moments, twin.observation_moments)
