"""Risk: a window of the parameters is not the one drawn for its pair, biases the gradient, or differs between workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from training import assert_same, learn, theta_of, train
from uneven import Uneven, assert_pool_plays_candidates, assert_same_results, settings

from fastes import EvolutionStrategy, FastES, Settings
from fastes.es import noise_table as noise
from fastes.es.fitness_shaping import shape_returns
from fastes.es.noise_table import NoiseTable, window_size
from fastes.es.perturbations import draw_pairs, draw_windows

SHARES = (0.05, 0.3, 0.5, 0.9)


def strategy(share: float, num_params: int = 11, **changes: Any) -> EvolutionStrategy:
    fixed: dict[str, Any] = {"sigma": 0.3, "population_size": 20, "seed": 4, "optimizer": "sgd", "momentum": 0.0}
    theta0 = np.linspace(-1, 1, num_params)
    return EvolutionStrategy(theta0, learning_rate=0.1, perturbed_fraction=share, **{**fixed, **changes})


def members(first: int, size: int, num_params: int) -> list[int]:
    return [(first + k) % num_params for k in range(size)]


# What is drawn


def test_sizes_are_rounded_up() -> None:
    sizes = [(window_size(share, 10), share) for share in (1e-9, 0.1, 0.11, 0.3, 0.7000000001, 0.9, 0.91, 1.0)]
    assert sizes == list(zip((1, 1, 2, 3, 7, 9, 0, 0), (share for _, share in sizes), strict=True))
    assert window_size(0.5, 1) == 0, "nothing is left out of one parameter"


def test_windows_are_the_same_forever() -> None:
    """Frozen: another draw needs a new stream version."""
    assert draw_windows(42, 3, 4, 1000, 10).first.tolist() == GOLDEN
    assert draw_windows(42, 3, 2, 1000, 10).first.tolist() == GOLDEN[:2], "a pair's own, however many there are"
    assert draw_windows(42, 4, 4, 1000, 10).first.tolist() != GOLDEN


GOLDEN = [140, 320, 195, 402]


def test_windows_begin_anywhere_and_tell_nothing_of_the_noise() -> None:
    first = draw_windows(1, 0, 20_000, 8, 3).first
    index = draw_pairs(1, 0, 20_000, 1, 8, 15)[0]
    joint = np.zeros((8, 8))
    np.add.at(joint, (first, index), 1)
    assert abs(joint / (20_000 / 64) - 1.0).max() < 0.25


def test_a_whole_share_changes_no_bit() -> None:
    plain, whole = EvolutionStrategy(np.zeros(5), seed=1), EvolutionStrategy(np.zeros(5), seed=1, perturbed_fraction=1.0)
    assert whole.ask().windows is None
    returns = np.random.default_rng(0).standard_normal(50)
    for es in (plain, whole):
        es.ask()
        es.tell(returns)
    assert (plain.theta == whole.theta).all()


# Candidates and the gradient


@pytest.mark.parametrize("share", SHARES)
def test_candidates_differ_in_their_window_alone(share: float) -> None:
    es, turned = strategy(share), 0
    for _ in range(5):
        perturbations = es.ask()
        assert perturbations.windows is not None
        size = math.ceil(share * 11)
        assert perturbations.windows.size == size
        for pair, first in enumerate(perturbations.windows.first.tolist()):
            window, eps = members(first, size, 11), es.table.values[perturbations.noise_index[pair] :][:size]
            expected = np.zeros(11)
            expected[window] = 0.3 * eps
            turned += first + size > 11
            assert perturbations[2 * pair] - es.theta == pytest.approx(expected, abs=1e-6)
            assert perturbations[2 * pair + 1] - es.theta == pytest.approx(-expected, abs=1e-6)
            outside = np.setdiff1d(np.arange(11), window)
            assert (perturbations[2 * pair][outside] == es.theta[outside]).all()
        es.tell(np.arange(20.0))
    assert turned or share == 0.05


@pytest.mark.parametrize("shaping", [{}, {"shaping": "standardized", "top_fraction": 0.5}])
@pytest.mark.parametrize("share", SHARES)
def test_the_gradient_follows_the_formula(share: float, shaping: dict[str, Any]) -> None:
    es, size = strategy(share, **shaping), math.ceil(share * 11)
    for generation in range(3):
        perturbations, before = es.ask(), es.theta.astype(np.float64)
        returns = np.random.default_rng(generation).standard_normal(20)
        shaped = shape_returns(
            returns.reshape(-1, 2), 0.3, shaping.get("shaping", "centered_ranks"), shaping.get("top_fraction", 1.0)
        )
        assert perturbations.windows is not None
        total = np.zeros(11)
        for pair, first in enumerate(perturbations.windows.first.tolist()):
            eps = es.table.values[perturbations.noise_index[pair] :][:size]
            total[members(first, size, 11)] += shaped.weights[pair] * eps.astype(np.float64)
        es.tell(returns)
        assert es.theta - before == pytest.approx(0.1 * shaped.scale * total * 11 / size, abs=1e-6)


def test_the_gradient_is_unbiased() -> None:
    """Of a linear function, over many pairs: each component as long as with whole perturbations."""
    slope = np.array([1.0, -2.0, 3.0, 0.5, -1.0])
    steps = []
    for share in (1.0, 0.4):
        es = EvolutionStrategy(
            np.zeros(5), 0.1, 1.0, 40_000, 3, optimizer="sgd", momentum=0.0, perturbed_fraction=share, shaping="standardized"
        )
        returns = np.array([x @ slope for x in es.ask()])
        es.tell(returns)
        steps.append(es.theta * returns.std() / 0.1)  # standardised returns are over their own deviation
    assert steps[1] / 2.0 == pytest.approx(slope, abs=0.12)
    assert steps[1] == pytest.approx(steps[0], abs=0.2)


@pytest.mark.parametrize("kind", ["scalar", "per_parameter"])
def test_sigma_adapts_by_the_windows(kind: str) -> None:
    es = strategy(0.5, sigma_adaptation=kind, sigma_learning_rate=0.2)
    for generation in range(3):
        perturbations, before = es.ask(), es.state()["sigma"].astype(np.float64)
        returns = np.random.default_rng(generation).standard_normal(20)
        middle = 0.5 * shape_returns(returns.reshape(-1, 2), 1.0, "centered_ranks").shaped.sum(axis=1)
        assert perturbations.windows is not None
        each, mean = np.zeros(11), 0.0
        for pair, first in enumerate(perturbations.windows.first.tolist()):
            eps = es.table.values[perturbations.noise_index[pair] :][:6].astype(np.float64)
            each[members(first, 6, 11)] += middle[pair] * (eps**2 - 1.0)
            mean += middle[pair] * (eps**2 - 1.0).mean()
        change = 0.2 / 10 * (each * 11 / 6 if kind == "per_parameter" else mean)
        es.tell(returns)
        assert es.state()["sigma"] == pytest.approx(before * (1.0 + np.clip(change, -0.2, 0.2)), rel=1e-5)


@pytest.mark.parametrize("squares", [False, True])
def test_a_sum_in_parts_is_the_sum(squares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    num_params, size = (1 << 16) + 5, 40_000
    table, windows = NoiseTable(1 << 18, 11), draw_windows(3, 0, 9, num_params, size)
    index = np.random.default_rng(0).integers(0, (1 << 18) - num_params, 9)
    weights = np.random.default_rng(1).standard_normal(9).astype(np.float32)
    weights[4] = 0.0
    assert (windows.first + size > num_params).any()
    expected = np.zeros(num_params, dtype=np.float32)
    for pair, first in enumerate(windows.first.tolist()):
        eps = table.values[index[pair] : index[pair] + size]
        expected[np.arange(first, first + size) % num_params] += (eps * eps - np.float32(1) if squares else eps) * weights[pair]
    for threads in (1, 2, 3):
        monkeypatch.setattr(noise, "available_cpus", lambda threads=threads: threads)
        monkeypatch.setattr(noise, "WORTH_A_THREAD", 1)
        assert (table.weighted_sum(index, weights, num_params, windows, squares) == expected).all()


# Trainings


@pytest.mark.parametrize("sigmas", ["none", "per_parameter"])
def test_a_pool_evaluates_the_candidates_of_the_strategy(sigmas: str) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(perturbed_fraction=0.4, sigma_adaptation=sigmas)) as model:
        learn(model, 2)
        assert_pool_plays_candidates(model)


@pytest.mark.parametrize("sigmas", ["none", "per_parameter"])
def test_workers_and_lanes_change_no_bit(sigmas: str) -> None:
    own = settings(perturbed_fraction=0.4, sigma_adaptation=sigmas, max_episode_steps=15)
    expected = train(Uneven, 3, **own)
    assert_same(expected, train(Uneven, 3, 2, **own))
    env = SyncVectorEnv([Uneven] * 3)
    assert_same_results(expected, train(env, 3, **own))
    env.close()
    whole = train(Uneven, 3, **settings(sigma_adaptation=sigmas, max_episode_steps=15))
    assert (theta_of(expected.state) != theta_of(whole.state)).any()


@pytest.mark.parametrize("sigmas", ["none", "per_parameter"])
def test_an_adaptive_population_has_windows_for_all_its_pairs(sigmas: str) -> None:
    own = settings(perturbed_fraction=0.4, sigma_adaptation=sigmas, generation_timesteps=300)
    expected = train(Uneven, 3, **own)
    assert expected.records[-1].episodes > 3 * own["population_size"], "blocks were added"
    assert_same(expected, train(Uneven, 3, 2, **own))
    with FastES(Uneven, preset="default", n_workers=0, **own) as model:
        learn(model, 2)
        assert_pool_plays_candidates(model)


def test_evaluation_is_of_theta_itself() -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(perturbed_fraction=0.4)) as model:
        learn(model, 1)
        first = model.evaluate(3)
        model.close()
        assert (model.evaluate(3).returns == first.returns).all()


@pytest.mark.parametrize("share", [0.0, -0.5, 1.0000001, math.nan, math.inf])
def test_a_wrong_share_is_named(share: float) -> None:
    with pytest.raises(ValueError, match="perturbed_fraction"):
        Settings(perturbed_fraction=share)
    with pytest.raises(ValueError, match="perturbed_fraction"):
        strategy(share)
