"""Risk: the report of a gradient's signal counts noise as signal, or plays other candidates than a training would."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.learning import gradient_signal
from benchmarks.learning.gradient_signal import Signal, measure, signal_of
from fastes import FastES

PARAMS = 50


def drawn(slope: float, noise: float, pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Differences of pairs over a plane that rises along the first parameter, and eps."""
    rng = np.random.default_rng(seed)
    eps = rng.standard_normal((pairs, PARAMS))
    return slope * eps[:, 0] + noise * rng.standard_normal(pairs), eps


def of(weights: np.ndarray, eps: np.ndarray) -> Signal:
    return signal_of(weights, (eps**2).sum(axis=1), weights @ eps)


def test_half_of_an_estimate_of_so_many_pairs_is_signal() -> None:
    found = of(*drawn(1.0, 2.0, 20_000))
    assert not found.at_least
    assert found.pairs == pytest.approx(5 * PARAMS + 1, rel=0.1)  # |S| = 1, and E |w eps|^2 = (1 + 4) PARAMS + 2
    shares = []
    for seed in range(200):
        weights, eps = drawn(1.0, 2.0, round(found.pairs), seed + 1)
        estimate = weights @ eps
        shares.append(estimate[0] ** 2 / (estimate @ estimate))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.05)


def test_scale_of_returns_changes_nothing() -> None:
    weights, eps = drawn(1.0, 2.0, 1000)
    assert of(1e6 * weights, eps).pairs == pytest.approx(of(weights, eps).pairs)


def test_noise_alone_is_no_signal() -> None:
    found = [of(*drawn(0.0, 1.0, 1000, seed)) for seed in range(20)]
    assert sum(each.at_least for each in found) >= 17
    assert all(each.pairs > 1000 for each in found)


def test_a_signal_that_is_not_seen_may_need_no_more_pairs_than_it_does() -> None:
    """1001 pairs would do, of which 100 show little."""
    found = [of(*drawn(1.0, math.sqrt(19.0), 100, seed)) for seed in range(40)]
    bounds = [each.pairs for each in found if each.at_least]
    assert len(bounds) > 10
    assert max(bounds) < 20 * PARAMS + 1


def test_candidates_that_are_all_alike_have_no_signal() -> None:
    assert of(np.zeros(10), np.ones((10, 3))).pairs == np.inf


class Plane(gymnasium.Env[np.ndarray, np.ndarray]):
    """One step, whose reward is the action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (20,))
    action_space = gymnasium.spaces.Box(-1e6, 1e6, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.linspace(-1, 1, 20, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(20, np.float32), float(action[0]), True, False, {}


@pytest.mark.parametrize(("top_fraction", "expected"), [(1.0, 21.0), (0.1, 54.0)])
def test_a_plane_is_seen_through_its_candidates(
    top_fraction: float, expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """w_j = u . eps_j shows 1 direction of 20: |S|^2 = 1, V = 19 + 3 - 1. The steepest tenth of the pairs, with |w_j| > 1.645,
    has |S| = E w^2 = 0.439 and V = 0.439 * 19 + E w^4 - |S|^2 = 10.4."""
    monkeypatch.setitem(gymnasium.registry, "Plane-v0", gymnasium.envs.registration.EnvSpec("Plane-v0", entry_point=Plane))
    path = str(tmp_path / "plane.zip")
    flat: dict[str, Any] = {"policy": "LinearPolicy", "normalize_obs": False, "shaping": "standardized"}
    with FastES("Plane-v0", n_workers=0, seed=3, preset="default", top_fraction=top_fraction, **flat) as model:
        assert model.num_params == 20
        model.save(path)
    found = measure(path, 0.1, 0, 1000).signal
    assert not found.at_least
    assert found.pairs == pytest.approx(expected, rel=0.2)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    path = str(tmp_path / "cart.zip")
    with FastES("CartPole-v1", n_workers=0, seed=3, policy="LinearPolicy", population_size=16, alive_bonus=0.25) as model:
        model.learn(2000)
        model.save(path)
    return path


def test_its_candidates_are_those_that_a_training_would_play(checkpoint: str) -> None:
    row = measure(checkpoint, 0.5, 0, 8)
    with FastES.load(checkpoint, n_workers=0, target_return="none") as model:
        drawn = model.strategy.changed(sigma=0.5, sigma_adaptation="none").ask(num_pairs=8, drawn_as=gradient_signal._DRAWN_AS)
        played = []
        for job, candidate in enumerate(drawn):
            model.strategy.restart(candidate)
            played.append(model.evaluate(1, first_seed=int(drawn.env_seed[job // 2, 0]) % 2**30).mean)
    assert np.ptp(played) > 0
    assert row.steps == np.mean(played)  # a reward of 1 a step
    assert row.fitness == pytest.approx(0.75 * np.mean(played))
    assert measure(checkpoint, 0.5, 9, 8).steps <= 9


def test_report(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    gradient_signal.main([checkpoint, "--pairs", "4", "--sigma", "0.1", "0.2", "--horizon", "9"])
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| 0")]
    assert [(row[0].strip(), row[1].strip()) for row in rows] == [
        ("0.1", "9"),
        ("0.1", "whole"),
        ("0.2", "9"),
        ("0.2", "whole"),
    ]
    with pytest.raises(SystemExit, match=r"no-such\.zip"):
        gradient_signal.main(["no-such.zip", "--sigma", "0.1"])
