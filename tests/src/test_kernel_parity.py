"""Risk: a kernel computes something else than its NumPy twin, or another variant of it does. Compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from kernel_cases import Ends, actors, awkward, check_steps, mlp, normals, unbounded
from twins import numpy_kernels
from twins.same_bits import assert_same_bits

from fastes import _core
from fastes.policies.action_head import make_action_head
from fastes.policies.layers import ACTIVATIONS

SUM_BLOCK = 16384  # as in noise_kernels.inc
SIZES = [*range(10), 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1]
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65]
SEED = 0x9E3779B97F4A7C15
DRAWN = "noise_index", "env_seed", "action_key"
GUARD = np.float32(-12345.5)


def check_fill(name: str, n: int, kernel: Callable[[np.ndarray], None], twin: Callable[[np.ndarray], None]) -> None:
    """Both write the same n values and nothing beside them, wherever the output lies in memory."""
    expected = np.empty(n, dtype=np.float32)
    twin(expected)
    for offset in (0, 1):
        memory = np.full(offset + n + 40, GUARD)
        kernel(memory[offset : offset + n])
        assert_same_bits(f"{name} of {n}", memory[offset : offset + n], expected)
        assert (memory[:offset] == GUARD).all(), f"{name} of {n} wrote before its output"
        assert (memory[offset + n :] == GUARD).all(), f"{name} of {n} wrote past its output"


# The comparer itself


@pytest.mark.parametrize("size", [1, 17, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comparer_rejects_what_is_not_the_same(size: int, dtype: type) -> None:
    expected = normals(size, 1).astype(dtype)
    expected[-1] = 0.0 if size > 1 else 1.0
    one_ulp, swapped, nan, cut = (expected.copy() for _ in range(4))
    one_ulp[size // 2] = np.nextafter(one_ulp[size // 2], dtype(np.inf))
    swapped[-1] = -swapped[-1]
    nan[0] = np.nan
    assert_same_bits("itself", expected.copy(), expected)
    for actual in (np.zeros_like(expected), -expected, one_ulp, swapped, nan, np.full_like(expected, np.nan)):
        with pytest.raises(AssertionError, match=r"y\.flat\[\d+\] = .*, expected .*; \d+ of \d+ differ"):
            assert_same_bits("y", actual, expected)
    other = np.float64 if dtype is np.float32 else np.float32
    for actual in (cut[:-1], expected[:, None], expected.astype(other), np.append(expected, dtype(0))):
        with pytest.raises(AssertionError, match=r"y is .*, expected "):
            assert_same_bits("y", actual, expected)


def test_comparer_takes_any_nan_for_a_nan_and_nothing_else() -> None:
    nan = np.array([np.nan], dtype=np.float32)
    assert_same_bits("nan", -nan, nan)
    for value in (0.0, np.inf):
        with pytest.raises(AssertionError):
            assert_same_bits("nan", np.full(1, value, np.float32), nan)
    with pytest.raises(AssertionError):
        assert_same_bits("flag", np.array([1], np.int8), np.array([0], np.int8))


# Noise


def test_philox() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, (500, 4), dtype=np.uint32)
    words[:4] = [[0, 0, 0, 0], [2**32 - 1] * 4, [1, 0, 0, 0], [0, 0, 0, 1]]
    for seed in (0, 1, 2**32 - 1, 2**32, SEED, 2**64 - 1):
        assert_same_bits("philox", _core.philox(words, seed), numpy_kernels.philox(words, seed))


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, SEED, 2**64 - 1])
@pytest.mark.parametrize("generation", [0, 7, 2**32 - 1])
def test_draws(seed: int, generation: int) -> None:
    for count in (0, 1, 2, 100):
        for episode, stream in ((0, 1), (1, 2), (2**32 - 1, 4)):
            arguments = seed, generation, count, episode, stream
            assert_same_bits("words", _core.draw_words(*arguments), numpy_kernels.draw_words(*arguments))
        for episodes, places in ((0, 1), (1, 3), (3, 250_000_001), (2, 2**63)):
            numbers = seed, generation, count, episodes, places
            for name, own, twin in zip(DRAWN, _core.draw_pairs(*numbers), numpy_kernels.draw_pairs(*numbers), strict=True):
                assert_same_bits(name, own, twin)


def moments_of(jobs: int, n: int, seed: int) -> np.ndarray:
    """With observations of very different sizes, and their squares."""
    rng = np.random.default_rng(seed)
    sums = rng.normal(size=(jobs, n)) * 10.0 ** rng.integers(-20, 20, (jobs, n))
    return np.stack([sums, sums * sums * rng.uniform(0.5, 2.0, (jobs, n))], axis=1)


@pytest.mark.parametrize("jobs", [0, 1, 2, 33])
@pytest.mark.parametrize("n", [0, 1, 17])
def test_moments(jobs: int, n: int) -> None:
    for seed in range(20):
        rng, moments = np.random.default_rng(seed), moments_of(jobs, n, seed)
        counts = rng.integers(0, 4, jobs)
        if moments.size and seed % 2:
            moments.flat[rng.integers(moments.size)] = [np.nan, np.inf, -np.inf][seed % 3]
        sums, *numbers = _core.sum_moments(moments, counts)
        expected, *others = numpy_kernels.sum_moments(moments, counts)
        assert_same_bits("sums", sums, expected)
        assert numbers == others
        for count, added in ((0, 1), (7, 3), (10**12, 10**5)):
            before = rng.normal(size=n), rng.uniform(size=n) * count
            joined, twin = (of.join_moments(*before, count, sums, added) for of in (_core, numpy_kernels))
            assert joined is not None
            assert twin is not None
            for name, own, other in zip(("mean", "squares"), joined, twin, strict=True):
                assert_same_bits(name, own, other)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("row", [0, 1])
def test_moments_whose_join_is_not_finite_are_not_joined(value: float, row: int) -> None:
    sums = np.ones((2, 3))
    sums[row, 1] = value
    before = np.zeros(3), np.full(3, 1e308)
    is_finite = numpy_kernels.join_moments(*before, 4, sums, 2) is not None
    assert is_finite == (value == 1e200 and row == 1)
    assert (_core.join_moments(*before, 4, sums, 2) is not None) == is_finite


@pytest.mark.parametrize("start", [0, 1, 15, 16, 63, 64, 65, 1000, 2**34 - 70, 2**34, 2**38 + 5])
def test_normal_fill(variant: str, start: int) -> None:  # block 2**32, which needs the second counter word, is at 2**34
    for n in SIZES[:-3]:
        check_fill(
            f"{variant} normal_fill at {start}",
            n,
            lambda out: _core.normal_fill(out, SEED, start),
            lambda out: numpy_kernels.normal_fill(out, SEED, start),
        )


@pytest.mark.parametrize("stream", range(5))
def test_normal_fill_streams(variant: str, stream: int) -> None:
    for seed in (0, 7, 2**32, 2**64 - 1):
        check_fill(
            f"{variant} normal_fill of stream {stream}",
            SUM_BLOCK + 1,
            lambda out, seed=seed: _core.normal_fill(out, seed, 3, stream),
            lambda out, seed=seed: numpy_kernels.normal_fill(out, seed, 3, stream),
        )


@pytest.mark.parametrize("values", [normals, awkward])
@pytest.mark.parametrize("scale", [0.02, -0.02, 0.0, 1e30])
def test_perturb(variant: str, values: Callable[[int, int], np.ndarray], scale: float) -> None:
    for n in SIZES:
        theta, table = values(n, 1), values(n + 3, 2)
        before = theta.copy(), table.copy()
        for noise_index in (0, 3):
            args = theta, table, noise_index, scale
            check_fill(
                f"{variant} perturb",
                n,
                lambda out, args=args: _core.perturb(out, *args),
                lambda out, args=args: numpy_kernels.perturb(out, *args),
            )
        assert_same_bits("theta", theta, before[0])
        assert_same_bits("table", table, before[1])


@pytest.mark.parametrize("values", [normals, awkward])
@pytest.mark.parametrize("side", [0, 1])
def test_perturb_each(variant: str, values: Callable[[int, int], np.ndarray], side: int) -> None:
    for n in SIZES:
        theta, table, sigma = values(n, 1), values(n + 3, 2), values(n, 3)
        for noise_index in (0, 3):
            args = theta, table, noise_index, sigma, side
            check_fill(
                f"{variant} perturb_each",
                n,
                lambda out, args=args: _core.perturb_each(out, *args),
                lambda out, args=args: numpy_kernels.perturb_each(out, *args),
            )


def test_equal_sigmas_perturb_as_one_does(variant: str) -> None:
    sigma = np.float32(0.0137)
    for n in SIZES:
        args, out = (normals(n, 1), normals(n + 3, 2), 3), np.empty(n, np.float32)
        for side, scale in ((0, float(sigma)), (1, -float(sigma))):
            _core.perturb_each(out, *args, np.full(n, sigma), side)
            expected = out.copy()
            _core.perturb(out, *args, scale)
            assert_same_bits(f"{variant} perturb_each of {n}", out, expected)


@pytest.mark.parametrize("kernel", ["noise_sum", "noise_square_sum"])
@pytest.mark.parametrize("num_slices", [0, 1, 3, 4, 5, 7, 8, 9, 33])
def test_noise_sums(variant: str, num_slices: int, kernel: str) -> None:
    own, twin = getattr(_core, kernel), getattr(numpy_kernels, kernel)
    rng = np.random.default_rng(num_slices)
    for n in [*SIZES, 2 * SUM_BLOCK + 17]:
        table, weights = normals(n + 50, n), normals(num_slices, n + 1)
        index = rng.integers(0, 51, num_slices)
        index[:2] = [0, 50][:num_slices]
        check_fill(
            f"{variant} {kernel} of {num_slices}",
            n,
            lambda out, args=(table, index, weights): own(out, *args),
            lambda out, args=(table, index, weights): twin(out, *args),
        )


@pytest.mark.parametrize("kernel", ["noise_sum", "noise_square_sum"])
def test_noise_sums_of_awkward_values(variant: str, kernel: str) -> None:
    table, weights, index = awkward(1000, 1), awkward(12, 2), np.arange(0, 960, 80)
    check_fill(
        f"{variant} {kernel}",
        33,
        lambda out: getattr(_core, kernel)(out, table, index, weights),
        lambda out: getattr(numpy_kernels, kernel)(out, table, index, weights),
    )


def pieces(n: int, num_pieces: int, table_size: int, seed: int) -> tuple[np.ndarray, ...]:
    """Where pieces lie in the table, begin and end: some cover everything, some nothing, some end where blocks do."""
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.choice([0, 1, 16, SUM_BLOCK, n // 3, n // 2, n], (num_pieces, 2)).clip(0, n), axis=1)
    edges[rng.random(num_pieces) < 0.5] = [0, n]
    begin, end = np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])
    return rng.integers(0, table_size - (end - begin) + 1), begin, end


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("num_pieces", [0, 1, 3, 4, 5, 9, 40])
def test_noise_sum_pieces(variant: str, num_pieces: int, squares: bool) -> None:
    for n in [*SIZES, 2 * SUM_BLOCK + 17]:
        table, weights = normals(n + 50, n), normals(num_pieces, n + 1)
        args = (table, *pieces(n, num_pieces, len(table), n + num_pieces), weights, squares)
        check_fill(
            f"{variant} noise_sum_pieces of {num_pieces}",
            n,
            lambda out, args=args: _core.noise_sum_pieces(out, *args),
            lambda out, args=args: numpy_kernels.noise_sum_pieces(out, *args),
        )


def test_noise_sum_pieces_of_awkward_values(variant: str) -> None:
    table, weights = awkward(1000, 1), awkward(12, 2)
    args = (*pieces(33, 12, 1000, 3), weights, True)
    check_fill(
        f"{variant} noise_sum_pieces",
        33,
        lambda out: _core.noise_sum_pieces(out, table, *args),
        lambda out: numpy_kernels.noise_sum_pieces(out, table, *args),
    )


def test_whole_pieces_sum_as_slices_do(variant: str) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 17, SUM_BLOCK + 5):
        table, weights, index = normals(n + 50, 1), normals(9, 2), rng.integers(0, 51, 9)
        whole, in_pieces = np.empty(n, np.float32), np.empty(n, np.float32)
        for squares, kernel in ((False, _core.noise_sum), (True, _core.noise_square_sum)):
            kernel(whole, table, index, weights)
            _core.noise_sum_pieces(in_pieces, table, index, np.zeros(9, np.int64), np.full(9, n), weights, squares)
            assert_same_bits(f"{variant} of {n}", in_pieces, whole)


# Statistics


@pytest.mark.parametrize("values", [normals, awkward])
def test_sum_squares(variant: str, values: Callable[[int, int], np.ndarray]) -> None:
    for n in SIZES:
        x = values(n + 1, n)[1:]
        assert_same_bits(f"{variant} sum_squares of {n}", _core.sum_squares(x), numpy_kernels.sum_squares(x))


@pytest.mark.parametrize("distinct", [1, 2, 7, 10**9])
def test_centered_ranks(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    for n in [*range(12), 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000]:
        values = rng.integers(0, distinct, n) * 0.1 - 3.0
        assert_same_bits(f"ranks of {n}", _core.centered_ranks(values), numpy_kernels.centered_ranks(values))
        values[rng.random(n) < 0.3] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324])
        assert_same_bits(f"ranks of {n}", _core.centered_ranks(values), numpy_kernels.centered_ranks(values))


# One step of a policy


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 6, 7, 8, 9, 17])
def test_dense_sizes(variant: str, inputs: int, use_bias: bool) -> None:
    for outputs in WIDTHS:
        spec = mlp(inputs, (), unbounded(outputs), use_bias=use_bias)
        check_steps(f"{variant} dense {inputs} x {outputs}", actors(spec), normals(2 * inputs).reshape(2, -1))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [False, True])
def test_hidden_sizes(variant: str, activation: str, use_bias: bool) -> None:
    for hidden in [*((width,) for width in WIDTHS), (64, 64), (33, 5, 31), (1, 1, 1, 1), (65, 2, 129)]:
        spec = mlp(11, hidden, unbounded(3), activation, use_bias)
        pair = actors(spec, normalizer=True)
        check_steps(f"{variant} {activation} {hidden}", pair, normals(33).reshape(3, 11))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_awkward_values(variant: str, activation: str) -> None:
    # the second layer is the identity, one row of it at a time: infinities and NaN stay where they are
    edges = [9.0, -9.0, np.nextafter(np.float32(9), np.float32(10)), 1e-45, -1e-45, 1e-20, 0.0, -0.0, np.inf, -np.inf, np.nan]
    edges += [-18.0, -17.4, -0.35, -0.34]
    values = np.concatenate([np.array(edges), np.linspace(-10, 10, 333), awkward(200)]).astype(np.float32)
    kernel, twin = actors(mlp(1, (1,), unbounded(1), activation, use_bias=False), params=np.ones(2, np.float32))
    for value in values:
        obs = np.array([value])
        assert_same_bits(f"{variant} {activation}({value!r})", kernel.act(obs), twin.act(obs))


LINEAR_OR_NOT = pytest.mark.parametrize("hidden", [(16,), ()])  # C has a way of its own for linear policies of few outputs


@pytest.mark.parametrize("hidden", [(17, 9), ()])
def test_awkward_parameters(variant: str, hidden: tuple[int, ...]) -> None:
    spec = mlp(7, hidden, unbounded(4))
    check_steps(variant, actors(spec, params=awkward(spec.num_params)), normals(70).reshape(10, 7))


@LINEAR_OR_NOT
@pytest.mark.parametrize("normalizer", [False, True])
@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "u1", "i8", "i4", "i2", "u8", "?", "f2", "g", ">f8", ">f4", ">i4", "list", "subclass"]
)
def test_observation_dtypes(variant: str, dtype: str, normalizer: bool, hidden: tuple[int, ...]) -> None:
    values = np.random.default_rng(5).uniform(0, 256, (4, 13))
    converted = values.astype("f8" if dtype in ("list", "subclass") else dtype)
    rows: Any = [row.tolist() for row in converted] if dtype == "list" else converted
    if dtype == "subclass":
        rows = converted.view(np.recarray)
    check_steps(f"{variant} {dtype}", actors(mlp(13, hidden, unbounded(4)), normalizer=normalizer), rows)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.int64])
@pytest.mark.parametrize("normalizer", [False, True])
def test_observations_that_are_not_contiguous(variant: str, dtype: type, normalizer: bool) -> None:
    block = np.random.default_rng(6).uniform(0, 256, (6, 24)).astype(dtype)
    packed = np.zeros(12, dtype=[("pad", np.uint8), ("value", dtype)])
    packed["value"] = block[0, :12]
    read_only = block[0, :12].copy()
    read_only.flags.writeable = False
    layouts = {
        "every second": block[0, ::2],
        "reversed": block[1, 11::-1],
        "column-major": np.asfortranarray(block[:3, :4]),
        "transposed": block[:4, :3].T,
        "inner block": block[1:5, 5:8],
        "unaligned": packed["value"],
        "broadcast": np.broadcast_to(block[0, :1], 12),
        "read-only": read_only,
    }
    pair = actors(mlp(12, (9,), unbounded(4)), normalizer=normalizer)
    for name, obs in layouts.items():
        copy = obs.copy()
        check_steps(f"{variant} {name}", pair, [obs])
        assert_same_bits("the caller's observation", obs, copy)


@LINEAR_OR_NOT
def test_observations_out_of_range(variant: str, hidden: tuple[int, ...]) -> None:
    rows = np.random.default_rng(7).standard_normal((8, 9)) * 10.0 ** np.linspace(-300, 300, 8)[:, None]
    rows[0, 0], rows[1, 3], rows[2, 8] = np.nan, np.inf, -np.inf
    for normalizer in (False, True):
        spec = mlp(9, hidden, unbounded(3))
        with np.errstate(over="ignore"):
            check_steps(f"{variant} float64", actors(spec, normalizer=normalizer), rows)
            check_steps(f"{variant} float32", actors(spec, normalizer=normalizer), rows.astype(np.float32))


def test_moments_count_only_while_asked(variant: str) -> None:
    pair = actors(mlp(17, (), unbounded(2)), normalizer=True)
    rows = normals(17 * 20).reshape(20, 17)
    check_steps(variant, pair, rows)
    moments = pair[0].observation_moments.copy()
    assert (moments[1] > 0).all()
    for counting in (True, False):
        for actor in pair:
            actor.count_moments(counting)
        assert not pair[0].observation_moments.any()
        check_steps(variant, pair, rows)
        assert_same_bits("moments", pair[0].observation_moments, moments if counting else np.zeros_like(moments))


BOUNDS: dict[str, tuple[Any, Any]] = {
    "unit": (-1.0, 1.0),
    "pendulum": (-2.0, 2.0),
    "low + (high - low) > high": (-0.7, 0.1),
    "one-sided": (0.0, np.inf),
    "unbounded": (-np.inf, np.inf),
    "tiny": (0.1, 0.1000001),
    "point": (3.0, 3.0),
}


def box(bounds: str, size: int, dtype: type = np.float32) -> spaces.Box:
    low, high = BOUNDS[bounds]
    return spaces.Box(low, high, (size,), dtype)


@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_box_actions(variant: str, bounds: str, dtype: type, noise: float) -> None:
    finite = bounds not in ("one-sided", "unbounded")
    for mapping in ("clip", "squash", "bins") if finite else ("clip",):
        for size in (1, 4, 5, 17, 31, 32, 33, 65):
            pair = actors(mlp(3, (), make_action_head(box(bounds, size, dtype), mapping, num_bins=7)))
            for actor in pair:
                actor.begin_episode(SEED, noise)
            actions = check_steps(f"{variant} {mapping} {bounds} {size}", pair, normals(9).reshape(3, 3))
            assert actions[0].shape == (size,)
            assert actions[0].dtype == dtype


def test_box_actions_keep_nan_and_bounds(variant: str) -> None:
    low = np.array([-1.0, 0.0, -np.inf, -np.inf, 2.0, -3.0], dtype=np.float32)
    high = np.array([1.0, 5.0, np.inf, 4.0, np.inf, -2.5], dtype=np.float32)
    space = spaces.Box(low, high)
    bounded = spaces.Box(low[[0, 1, 5]], high[[0, 1, 5]])
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-45]
    for mapping, box_space in (("clip", space), ("squash", bounded), ("bins", bounded)):
        head = make_action_head(box_space, mapping, num_bins=4)
        pair = actors(mlp(1, (), head, use_bias=False), params=np.ones(head.num_outputs, np.float32))
        actions = check_steps(f"{variant} {mapping}", pair, [np.array([v]) for v in values])
        for value, action in zip(values, actions, strict=True):
            assert box_space.contains(action) or np.isnan(value)


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 2, 3), (1,) * 20 + (3,)])
def test_action_shapes(variant: str, shape: tuple[int, ...]) -> None:
    cases: list[spaces.Space[Any]] = [spaces.Box(-1.0, 1.0, shape)]
    if shape:
        cases += [spaces.MultiDiscrete(np.full(shape, 3)), spaces.MultiBinary(shape)]
    for space in cases:
        actions = check_steps(f"{variant} {space}", actors(mlp(2, (4,), make_action_head(space))), normals(6).reshape(3, 2))
        assert all(space.contains(action) for action in actions)


@pytest.mark.parametrize("sample", [False, True])
def test_choices(variant: str, sample: bool) -> None:
    cases: list[spaces.Space[Any]] = [
        *(spaces.Discrete(n, start=start) for n, start in ((1, 0), (2, 0), (3, -5), (16, 1), (17, 0), (33, 7), (100, 2**40))),
        spaces.MultiDiscrete([3, 2, 5]),
        spaces.MultiDiscrete([3, 2], dtype=np.int32),
        spaces.MultiDiscrete([[4, 1], [17, 16]], start=[[1, -2], [0, 9]]),
        *(spaces.MultiBinary(n) for n in (1, 3, 15, 16, 17, 33)),
    ]
    for space in cases:
        pair = actors(mlp(3, (5,), make_action_head(space)))
        for actor in pair:
            actor.begin_episode(SEED, sample=sample)
        observations = normals(60, 8).reshape(20, 3)
        actions = check_steps(f"{variant} {space} sample={sample}", pair, observations)
        assert all(space.contains(action) for action in actions)
        assert isinstance(actions[0], np.int64 if isinstance(space, spaces.Discrete) else np.ndarray)


def test_choices_between_equal_and_nan_outputs(variant: str) -> None:
    for row in ([0, 0, 0, 0], [1, 2, 2, 0], [np.nan, 5, 1, 2], [1, np.nan, 3, 3], [-np.inf, -np.inf, np.nan, -np.inf]):
        for space in (spaces.Discrete(4), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(4), box("unit", 1)):
            head = make_action_head(space, "bins", num_bins=4)
            pair = actors(mlp(1, (), head, use_bias=False), params=np.array(row, np.float32))
            check_steps(f"{variant} {row} {space}", pair, [np.ones(1)])


def test_choice_noise_to_the_last_bit(variant: str) -> None:
    """Outputs that the noise cancels exactly, then one of them an ulp higher: that one is chosen."""
    for space in (spaces.Discrete(33), spaces.MultiBinary(33)):
        binary = isinstance(space, spaces.MultiBinary)
        kernel, _ = actors(mlp(1, (), make_action_head(space), use_bias=False))
        for key in (0, SEED):
            outputs = -numpy_kernels.choice_noise(33, key, 0, binary)
            for k in range(33):
                kernel.parameters[:] = outputs
                kernel.parameters[k] = np.nextafter(outputs[k], np.float32(np.inf))
                kernel.begin_episode(key, sample=True)
                action = kernel.act(np.ones(1))
                assert np.array_equal(action, np.eye(33)[k] if binary else k), f"{variant} {space}"


def test_action_stream(variant: str) -> None:
    spaces_and_noise = [(box("unbounded", 40), 0.3, False), (spaces.Discrete(20), 0.0, True), (spaces.MultiBinary(40), 0, True)]
    for space, noise, sample in spaces_and_noise:
        pair = actors(mlp(2, (), make_action_head(space)), params=None)
        episodes = []
        for key in (0, 1, 2**32, SEED, 2**64 - 1):
            for actor in pair:
                actor.begin_episode(key, noise, sample)
            actions = check_steps(f"{variant} {space} key {key}", pair, np.zeros((40, 2)))
            episodes.append(np.array(actions).ravel().tolist())
        assert len({tuple(episode) for episode in episodes}) == len(episodes)


# The two ends of a step, for policies whose layers are somebody else's


@pytest.mark.parametrize("normalizer", [False, True])
def test_observe(variant: str, normalizer: bool) -> None:
    for size in WIDTHS:
        kernel, twin = actors(Ends(size, unbounded(2)), normalizer=normalizer)
        steps, memory = np.zeros(1, dtype=np.int64), kernel.observation
        kernel.count_steps(steps)
        for dtype in ("f8", "f4", "u1", "i4", ">f8"):
            for row in np.random.default_rng(size).uniform(0, 256, (3, size)).astype(dtype):
                assert_same_bits(f"{variant} observe {size} {dtype}", kernel.observe(row), twin.observe(row))
                assert_same_bits("moments", kernel.observation_moments, twin.observation_moments)
        assert kernel.observe(row) is memory, "torch views it once"
        assert steps[0] == 16
        assert kernel.parameters.ctypes.data % 64 == memory.ctypes.data % 64 == 0, "MKL adds in another order elsewhere"


@pytest.mark.parametrize("normalizer", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i4", ">f8"])
def test_columns(variant: str, dtype: str, normalizer: bool) -> None:
    """Those of a longer observation give what an observation of these alone gives."""
    for size in WIDTHS:
        columns = np.random.default_rng(size).permutation(2 * size + 3)[:size]
        alone = mlp(size, (5,), unbounded(2))
        spec = replace(alone, obs_shape=(2 * size + 3,), columns=tuple(columns.tolist()))
        pair, (expected, _) = actors(spec, normalizer=normalizer), actors(alone, normalizer=normalizer)
        rows = np.random.default_rng(size).uniform(0, 256, (3, 2 * size + 3)).astype(dtype)
        actions = check_steps(f"{variant} {size} columns of {dtype}", pair, rows)
        for row, action in zip(rows, actions, strict=True):
            assert_same_bits("the columns alone", action, expected.act(row[columns]))
        assert_same_bits("their moments", pair[0].observation_moments, expected.observation_moments)
        assert (pair[0].obs_size, pair[0].full_size) == (size, 2 * size + 3)


@pytest.mark.parametrize(
    ("columns", "message"), [((0, 3), "0 to 3"), ((-1, 0), "-1 to 0"), ((0,), "columns"), ((0, 1, 2), "columns")]
)
def test_columns_that_are_not_there_are_refused(columns: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.Actor(replace(mlp(2, (), unbounded(1)), obs_shape=(3,), columns=columns))


@pytest.mark.parametrize("values", [normals, awkward])
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_choose(variant: str, values: Callable[[int, int], np.ndarray], noise: float) -> None:
    heads = [
        make_action_head(box("pendulum", size), mapping) for size in (1, 5, 17, 33) for mapping in ("clip", "squash", "bins")
    ]
    heads += [make_action_head(box("one-sided", 3, np.float64)), make_action_head(box("unbounded", 2))]
    heads += [make_action_head(spaces.Discrete(n, start=3)) for n in (1, 2, 17, 33)]
    heads += [make_action_head(spaces.MultiDiscrete([3, 2], dtype=np.int32)), make_action_head(spaces.MultiBinary(17))]
    for head in heads:
        pair = actors(Ends(2, head))
        for actor in pair:
            actor.begin_episode(SEED, noise, sample=noise > 0)
        for step in range(4):
            outputs = values(head.num_outputs, step)
            before = outputs.copy()
            action, expected = (actor.choose(outputs) for actor in pair)
            assert type(action) is type(expected)
            assert_same_bits(f"{variant} choose {head.kind} {head.num_outputs}, step {step}", action, expected)
            assert_same_bits("the caller's outputs", outputs, before)


def test_both_ends_around_the_layers_are_a_step(variant: str) -> None:
    """In the kernel itself: what is between them here is the twin's."""
    for space, noise in ((box("unit", 6), 0.3), (spaces.Discrete(5), 0.0)):
        kernel, twin = actors(mlp(17, (33,), make_action_head(space)), normalizer=True)
        whole, _ = actors(mlp(17, (33,), make_action_head(space)), normalizer=True)
        for actor in (kernel, whole):
            actor.begin_episode(7, noise, sample=True)
        for obs in normals(17 * 9).reshape(9, 17):
            halves = kernel.choose(twin.forward(kernel.observe(obs)))
            assert_same_bits(f"{variant} {space}", halves, whole.act(obs))
        assert_same_bits("moments", kernel.observation_moments, whole.observation_moments)


def test_outputs_that_do_not_fit_are_refused() -> None:
    actor = _core.Actor(Ends(2, unbounded(3)))
    strided = normals(6)[::2]
    assert_same_bits("strided", actor.choose(strided), strided)
    assert_same_bits("with a batch axis", actor.choose(strided.reshape(1, 3)), strided)
    for size in (0, 2, 4):
        with pytest.raises(ValueError, match=f"outputs have shape \\({size},.*expected 3 values"):
            actor.choose(normals(size))
    for outputs, kind in ((np.zeros(3), "dtype float64"), ([0.0] * 3, "type list"), (None, "type NoneType")):
        with pytest.raises(TypeError, match=f"outputs have {kind}: expected a float32 array"):
            actor.choose(outputs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no layers"):
        actor.act(np.zeros(2))
    with pytest.raises(ValueError, match="expected 0 values"):
        _core.Actor(Ends(2, None)).choose(np.zeros(0, np.float32))
