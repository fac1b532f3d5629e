"""Risk: a random stream changes, so that old runs cannot be resumed; or it is not what it claims to be drawn from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from fastes import _core
from fastes.es import noise_table as noise
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import draw_eval_seeds, draw_pairs
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec

MILLION = 1 << 20


def fill(count: int, seed: int, start: int = 0, stream: int = 0) -> np.ndarray:
    out = np.empty(count, dtype=np.float32)
    _core.normal_fill(out, seed, start, stream)
    return out


def hexadecimal(values: np.ndarray) -> str:
    return " ".join(f"{word:08x}" for word in values.view(np.uint32))


def sha256(values: np.ndarray) -> str:
    return hashlib.sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    return fill(MILLION, 0)


# The same bits forever


def test_stream_version_and_numbers() -> None:
    streams = _core.STREAM_TABLE, _core.STREAM_PAIR, _core.STREAM_EVAL, _core.STREAM_INIT
    assert (_core.STREAM_VERSION, streams) == (1, (0, 1, 2, 4)), "other bits need another STREAM_VERSION, and new values here"


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(counter: str, key: str, words: str) -> None:
    """The answers published with Random123 (kat_vectors, philox4x32 10)."""
    low, high = (int(word, 16) for word in key.split())
    counters = np.array([[int(word, 16) for word in counter.split()]], dtype=np.uint32)
    assert hexadecimal(_core.philox(counters, low | high << 32)[0]) == words


@pytest.mark.parametrize(
    ("seed", "start", "stream", "words"),
    [
        (0, 0, 0, "3f7dbb31 be1d5354 bf97da93 bf186c98 be029ce9 3f9f3b98 3e9460af 3f617fe9"),
        (42, 0, 0, "bf785e5c bd95e033 beac8645 bec26ced 3f4b513e bed1f5cc bd985e62 bf99a317"),
        (42, 60, 0, "3f7efaeb 3ee096e6 3e7574ee 3e1df636 3e294eb7 c007cbf9 3f4956cf 3f4e2067"),
        (2**64 - 1, 2**40, 0, "bf4a5222 3fdb61fd 3f52caaa 3f8fc107 3ece4db6 3ee18bd2 3fbe4493 3f6fe974"),
        (42, 0, 4, "3f84eaaa 3fa65947 3f99a350 3fce24e1 3fde02a4 bf261ef5 3f11c4ee bf7f00a7"),
    ],
)
def test_normals(variant: str, seed: int, start: int, stream: int, words: str) -> None:
    assert hexadecimal(fill(8, seed, start, stream)) == words, variant


def test_a_million_normals(variant: str) -> None:
    assert sha256(fill(MILLION, 0)) == "15cf0fade3d6d4892ea53c72c6a17f09557ff317e5a714d5d2ff9dbd7bb060df", variant


def test_draws_of_a_generation() -> None:
    noise_index, env_seed, action_key = draw_pairs(42, 3, num_pairs=4, episodes=2, num_params=1000, table_size=MILLION)
    assert noise_index.tolist() == [724154, 58075, 892688, 45262]
    assert env_seed.tolist() == [
        [1512549355, 532846013],
        [1794182750, 280255431],
        [865783930, 1084054786],
        [1832643069, 1246081151],
    ]
    assert action_key.tolist() == [
        [11109687769649326098, 14871514531132358771],
        [12317979856198386261, 17276584199861825668],
        [3599635085051275033, 4885857568008648582],
        [12441234102277120599, 7512662736845200578],
    ]
    assert (noise_index.dtype, env_seed.dtype, action_key.dtype) == (np.int64, np.int64, np.uint64)
    assert draw_eval_seeds(42, 3, 4).tolist() == [1280039114, 1446134093, 1152768112, 445637774]


def policy(space: spaces.Space[Any], outputs: np.ndarray | None = None, **kwargs: Any) -> tuple[PolicySpec, _core.Actor]:
    """A linear policy of one input: its parameters are its outputs for the observation 1."""
    spec = make_policy_spec("LinearPolicy", spaces.Box(-1.0, 1.0, (1,)), space, kwargs)
    actor = _core.Actor(spec)
    if outputs is not None:
        actor.parameters[:] = outputs
    return spec, actor


def episode(actor: _core.Actor, steps: int) -> np.ndarray:
    one = np.ones(1)
    return np.array([actor.act(one) for _ in range(steps)])


def test_first_parameters() -> None:
    spec = make_policy_spec("MlpPolicy", spaces.Box(-1.0, 1.0, (11,)), spaces.Box(-1.0, 1.0, (3,)))
    assert sha256(spec.initial_theta(42)) == "c7f3bfd24fcabe4c4c628157a78e537696b8817938b047521f7b146286fc1d00"


def test_action_streams(variant: str) -> None:
    _, box = policy(spaces.Box(-np.inf, np.inf, (3,)))
    box.begin_episode(42, action_noise=1.0)
    assert hexadecimal(episode(box, 2).ravel()) == "bf6e75ce 3f93843f 3f7276e6 be2f72b7 bfcae1a9 bfa0ae0c"
    _, discrete = policy(spaces.Discrete(4))
    discrete.begin_episode(42, sample=True)
    assert "".join(map(str, episode(discrete, 40))) == "3011210300312303211031102033103222133303"
    _, binary = policy(spaces.MultiBinary(20))
    binary.begin_episode(42, sample=True)
    assert "".join(map(str, episode(binary, 2).ravel())) == "1001111111110001100010000100111011010001"


def test_random_access_equals_sequential_fill(variant: str, table: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for start, count in zip(rng.integers(0, MILLION - 500, 200), rng.integers(1, 500, 200), strict=True):
        assert np.array_equal(fill(count, 0, start), table[start : start + count])
    monkeypatch.setattr(noise, "available_cpus", lambda: 3)
    monkeypatch.setattr(noise, "WORTH_A_THREAD", 1)
    for grain in (1, 63, 64, 1000):
        monkeypatch.setattr(noise, "GRAIN", grain)
        assert np.array_equal(NoiseTable(5000, 0).values, table[:5000])


# What the streams are drawn from


def normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])


def doubts(x: np.ndarray) -> list[str]:
    """What speaks against independent standard normals: each statistic beyond 4.5 of its standard deviations."""
    x, n = x.astype(np.float64), len(x)
    found = []

    def check(name: str, value: float, expected: float, variance: float) -> None:
        if not abs(value - expected) < 4.5 * math.sqrt(variance / n):
            found.append(f"{name} = {value:.5g}, expected {expected:.5g}")

    for power, moment, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105), (6, 15, 10395)):
        check(f"moment {power}", float((x**power).mean()), moment, square - moment**2)
    for limit in (0.01, 0.1, 1.0, 2.0, 3.0, 4.0):
        share = math.erfc(limit / math.sqrt(2.0))
        check(f"share beyond {limit}", float((np.abs(x) > limit).mean()), share, share * (1 - share))
    for lag in (*range(1, 5), 8, *range(15, 18), *range(31, 34), 48, *range(63, 66), 128, 1024):
        a, b = x[lag:], x[:-lag]
        check(f"correlation at {lag}", float((a * b).mean()), 0.0, 1.0)
        check(f"correlation of squares at {lag}", float(((a * a - 1) * (b * b - 1)).mean()), 0.0, 4.0)
    some = np.sort(x[: 1 << 17])
    cdf, m = normal_cdf(some), len(some)
    distance = max((np.arange(1, m + 1) / m - cdf).max(), (cdf - np.arange(m) / m).max())
    if distance * math.sqrt(m) > 1.95:  # Kolmogorov-Smirnov, one false alarm in a thousand
        found.append(f"Kolmogorov-Smirnov distance {distance:.5g}")
    return found


@pytest.mark.parametrize(("seed", "start", "stream"), [(0, 0, 0), (2**63 + 5, 2**36, 0), (1, 17, 4)])
def test_normals_are_normal_and_independent(seed: int, start: int, stream: int) -> None:
    assert doubts(fill(MILLION, seed, start, stream)) == []


def uniform_sum(x: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).random((12, len(x))).sum(axis=0) - 6.0


@pytest.mark.parametrize(
    "damage",
    [
        lambda x: x * np.float32(1.01),
        lambda x: x + np.float32(0.01),
        np.abs,
        lambda x: np.where(np.arange(len(x)) % 64 < 16, np.abs(x), x),
        lambda x: np.clip(x, -3, 3),
        lambda x: np.where(np.arange(len(x)) % 256 == 255, 0, x),
        lambda x: np.repeat(x[::2], 2),
        lambda x: np.tile(x[: len(x) // 1024], 1024),
        lambda x: x.reshape(-1, 2, 32)[:, [0, 0]].ravel(),
        lambda x: np.copysign(x.reshape(-1, 2, 32)[:, [0, 0]].ravel(), x),
        uniform_sum,
        np.sort,
        np.zeros_like,
        lambda x: np.where(np.arange(len(x)) == 5, np.nan, x),
    ],
)
def test_statistics_notice_a_broken_generator(table: np.ndarray, damage: Callable[[np.ndarray], np.ndarray]) -> None:
    assert doubts(damage(table)) != []


def test_seeds_and_streams_are_unrelated() -> None:
    drawn = [fill(MILLION // 8, seed, 0, stream) for seed in (0, 1, 2**32, 2**63) for stream in (0, 1, 3, 4)]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            assert abs(np.mean(a.astype(np.float64) * b)) < 4.5 / math.sqrt(len(a))


def shares_are(actions: np.ndarray, expected: np.ndarray) -> None:
    n = len(actions)
    deviation = (actions.mean(axis=0) - expected) * np.sqrt(n / (expected * (1 - expected)))
    assert np.abs(deviation).max() < 4.5, deviation


def test_sampled_choices_follow_softmax_and_sigmoid() -> None:
    logits = np.array([0.0, 1.0, -2.0, 3.0, 2.5, -1.0, 0.5], dtype=np.float32)
    steps = 40_000
    _, discrete = policy(spaces.Discrete(7), logits)
    discrete.begin_episode(5, sample=True)
    chosen = episode(discrete, steps)[:, None] == np.arange(7)
    softmax = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    shares_are(chosen, softmax)
    shares_are(chosen[1:, [3]] & chosen[:-1, [3]], softmax[[3]] ** 2)  # steps are independent
    _, multi = policy(spaces.MultiDiscrete([2, 5]), logits)
    multi.begin_episode(6, sample=True)
    two, five = np.exp(logits[:2].astype(np.float64)), np.exp(logits[2:].astype(np.float64))
    pairs = episode(multi, steps) @ [5, 1]
    shares_are(pairs[:, None] == np.arange(10), np.outer(two / two.sum(), five / five.sum()).ravel())
    _, binary = policy(spaces.MultiBinary(7), logits)
    binary.begin_episode(7, sample=True)
    shares_are(episode(binary, steps), 1 / (1 + np.exp(-logits.astype(np.float64))))


def test_action_noise_is_normal() -> None:
    _, actor = policy(spaces.Box(-np.inf, np.inf, (64,)))
    actor.begin_episode(8, action_noise=0.5)
    assert doubts(episode(actor, MILLION // 64).ravel() / np.float32(0.5)) == []


# How exact our own functions are


def test_log_sin_and_cos(table: np.ndarray) -> None:
    """Normals against double precision: their radius tests the logarithm, their direction sine and cosine."""
    counters = np.zeros((MILLION // 4, 4), dtype=np.uint32)
    counters[:, 0] = np.arange(MILLION // 4)
    words = _core.philox(counters, 0).reshape(-1, 16, 4)
    for half in (0, 1):
        u = ((words[:, :, 2 * half] >> 1) | 1).astype(np.float32).astype(np.float64) * 2.0**-31
        turn = words[:, :, 2 * half + 1] * (2 * np.pi / 2**32)
        normals = table.reshape(-1, 2, 2, 16)[:, half].astype(np.float64)
        cos, sin = normals[:, 0], normals[:, 1]
        radius = np.sqrt(-2 * np.log(u))
        near = u < 0.9999  # beyond, rounding u itself decides
        assert np.abs(np.hypot(cos, sin) / radius - 1)[near].max() < 3e-7
        assert np.abs(cos / radius - np.cos(turn))[near].max() < 3e-7
        assert np.abs(sin / radius - np.sin(turn))[near].max() < 3e-7


def test_tanh_of_a_squashed_action() -> None:
    x = np.linspace(-12, 12, 20_001).astype(np.float32)
    _, actor = policy(spaces.Box(-1.0, 1.0, (len(x),)), x, action_mapping="squash")
    action = actor.act(np.ones(1)).astype(np.float64)
    assert np.abs(action - np.tanh(x.astype(np.float64))).max() < 5e-7
    assert np.abs(action).max() == 1.0


def test_tanh_between_layers() -> None:
    magnitude = 10.0 ** np.linspace(-30, 2, 150)
    x = np.concatenate([-magnitude[::-1], [0.0], magnitude]).astype(np.float32)
    spec = make_policy_spec(
        "MlpPolicy",
        spaces.Box(-1.0, 1.0, (1,)),
        spaces.Box(-np.inf, np.inf, x.shape),
        {"net_arch": [len(x)], "use_bias": False},
    )
    actor = _core.Actor(spec)
    actor.parameters[:] = np.concatenate([x, np.eye(len(x), dtype=np.float32).ravel()])
    y = actor.act(np.ones(1))
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(y - exact) <= 4e-7 * np.abs(exact)).all()
    assert np.array_equal(y, -y[::-1]), "tanh is odd"
    assert np.abs(y).max() <= 1.0
