"""Risk: sigma adapts by another rule than PGPE's, runs away, differs between workers, or is lost with a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from training import assert_same, learn, theta_of, train
from uneven import Uneven, assert_pool_plays_candidates, assert_same_results, settings

from fastes import CheckpointError, CheckpointMismatch, EvolutionStrategy, FastES, FastESError, Settings
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.es.fitness_shaping import shape_returns
from fastes.es.noise_table import NoiseTable
from fastes.es.sigma_adaptation import CEILING, FLOOR, SigmaAdaptation

KINDS = ("scalar", "per_parameter")
SHAPINGS = (
    {"shaping": "centered_ranks"},
    {"shaping": "standardized"},
    {"shaping": "centered_ranks", "top_fraction": 0.4},
    {"shaping": "standardized", "top_fraction": 0.4},
    {"shaping": "nes", "top_fraction": 0.4},
)


def strategy(kind: str = "none", num_params: int = 7, **changes: Any) -> EvolutionStrategy:
    fixed: dict[str, Any] = {"sigma": 0.3, "population_size": 20, "seed": 4, "optimizer": "sgd", "learning_rate": 0.1}
    return EvolutionStrategy(np.linspace(-1, 1, num_params), sigma_adaptation=kind, **{**fixed, **changes})


def sigma_of(es: EvolutionStrategy) -> Any:
    return es.state()["sigma"]


def some_returns(seed: int, count: int = 20) -> Any:
    returns = np.random.default_rng(seed).standard_normal(count)
    returns[3] = math.nan
    return returns


# The rule


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_begins_at_the_initial_sigma(kind: str) -> None:
    es = strategy(kind, sigma_learning_rate=0.3)
    initial = sigma_of(es)
    es.ask()
    es.tell(some_returns(0))
    assert (sigma_of(es) != initial).all()
    es.restart(np.zeros(7))
    assert (sigma_of(es) == initial).all()
    assert es.ask().sigma == pytest.approx(0.3)


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_generation_follows_the_formula(kind: str, shaping: dict[str, Any]) -> None:
    es = strategy(kind, sigma_learning_rate=0.3, **shaping)
    for generation in range(4):
        perturbations, before, returns = es.ask(), sigma_of(es).astype(np.float64), some_returns(generation)
        shaped = shape_returns(returns.reshape(-1, 2), 1.0, shaping["shaping"], shaping.get("top_fraction", 1.0)).shaped
        eps = np.stack([es.table.values[i : i + 7] for i in perturbations.noise_index]).astype(np.float64)
        kept = math.ceil(10 * shaping.get("top_fraction", 1.0))
        terms = 0.5 * shaped.sum(axis=1, keepdims=True) * (eps**2 - 1.0)
        assert np.count_nonzero(terms.any(axis=1)) <= kept
        change = 0.3 / kept * (terms.sum(axis=0) if kind == "per_parameter" else terms.mean(axis=1).sum())
        es.tell(returns)
        assert sigma_of(es) == pytest.approx(before * (1.0 + np.clip(change, -0.2, 0.2)), rel=1e-5)
        assert (sigma_of(es) != before).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_generation_changes_sigma_by_a_fifth_at_most(kind: str) -> None:
    es = strategy(kind, sigma_learning_rate=1000.0)
    ratios = []
    for generation in range(6):
        es.ask()
        before = sigma_of(es)
        es.tell(some_returns(generation))
        ratios += (sigma_of(es) / before).tolist()
    assert min(ratios) == pytest.approx(0.8, rel=1e-6)
    assert max(ratios) == pytest.approx(1.2, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sigma_stays_within_its_bounds(kind: str) -> None:
    for sign, bound in ((1.0, CEILING), (-1.0, FLOOR)):
        es = strategy(kind, num_params=2, sigma_learning_rate=1000.0)
        for _ in range(60):
            perturbations = es.ask()
            spread = [float(((x - perturbations.theta) ** 2).sum()) for x in perturbations]
            es.theta = perturbations.theta  # asks again: what moves is sigma
            es.ask()
            es.tell(sign * np.array(spread))
        assert sigma_of(es) == pytest.approx(np.full_like(sigma_of(es), 0.3 * bound), rel=1e-5)


def test_steep_parameters_get_a_smaller_sigma() -> None:
    es = strategy("per_parameter", num_params=4, optimizer="adam", population_size=40, learning_rate=0.02)
    steep = np.array([0.01, 0.01, 10.0, 10.0])
    for _ in range(150):
        es.tell([-float((steep * x * x).sum()) for x in es.ask()])
    sigma = sigma_of(es)
    assert sigma[2:].max() < 0.3 * sigma[:2].min()


# What it does to candidates and to the gradient


def test_one_sigma_for_each_parameter_starts_where_one_for_all_does() -> None:
    plain, each = strategy(), strategy("per_parameter")
    for mine, other in zip(plain.ask(), each.ask(), strict=True):
        assert (mine == other).all()
    returns = some_returns(0)
    first, second = plain.tell(returns), each.tell(returns)
    assert each.theta == pytest.approx(plain.theta, rel=1e-6)
    assert second.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-6)


def test_candidates_and_gradient_use_each_sigma() -> None:
    es, sigma = strategy("per_parameter", weight_decay=0.0, momentum=0.0), np.float32([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    es.load_state({**es.state(), "sigma": sigma}, 5)
    perturbations, returns, before = es.ask(), some_returns(1), es.theta
    assert perturbations.sigma == pytest.approx(0.4)
    shaped = shape_returns(returns.reshape(-1, 2), 0.4, "centered_ranks")
    step = np.zeros(7)
    for pair, index in enumerate(perturbations.noise_index):
        eps = es.table.values[index : index + 7]
        assert perturbations[2 * pair] == pytest.approx(before + sigma * eps, abs=1e-6)
        assert perturbations[2 * pair + 1] == pytest.approx(before - sigma * eps, abs=1e-6)
        step += 0.1 * shaped.scale * shaped.weights[pair] * eps * sigma / 0.4
    es.tell(returns)
    assert es.theta - before == pytest.approx(step, abs=1e-6)


def test_one_sigma_is_that_of_a_plain_strategy() -> None:
    es = strategy("scalar")
    for generation in range(3):
        es.ask()
        es.tell(some_returns(generation))
    plain = strategy(sigma=float(sigma_of(es)[0]))
    plain.load_state({name: array for name, array in es.state().items() if name != "sigma"}, 3)
    for mine, other in zip(plain.ask(), es.ask(), strict=True):
        assert (mine == other).all()
    plain.tell(some_returns(9))
    es.tell(some_returns(9))
    assert (plain.theta == es.theta).all()


def test_a_generation_that_fails_changes_nothing() -> None:
    for kind in KINDS:
        es = strategy(kind, learning_rate=1e39)
        es.ask()
        before = es.state()
        with pytest.raises(FastESError, match="not finite"):
            es.tell(some_returns(0))
        for name, array in es.state().items():
            assert (array == before[name]).all(), name


def test_a_sum_in_parts_is_the_sum() -> None:
    num_params = (1 << 20) + 5
    table = NoiseTable((1 << 21) + 777, 11)
    index, weights = np.array([3, 1 << 20, 0], dtype=np.int64), np.array([0.5, -2.0, 0.0], dtype=np.float32)
    expected = np.zeros(num_params, dtype=np.float32)
    for at, weight in zip(index[:2], weights[:2], strict=True):
        eps = table.values[at : at + num_params]
        expected += (eps * eps - np.float32(1.0)) * weight
    assert (table.weighted_sum(index, weights, num_params, squares=True) == expected).all()


# Trainings


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_evaluates_the_candidates_of_the_strategy(kind: str) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation=kind, sigma_learning_rate=1.0)) as model:
        learn(model, 2)
        assert_pool_plays_candidates(model)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_and_lanes_change_no_bit(kind: str) -> None:
    own = settings(sigma_adaptation=kind, sigma_learning_rate=1.0, max_episode_steps=15)
    expected = train(Uneven, 3, **own)
    assert_same(expected, train(Uneven, 3, 2, **own))
    env = SyncVectorEnv([Uneven] * 3)
    assert_same_results(expected, train(env, 3, **own))
    env.close()
    assert (theta_of(expected.state) != theta_of(train(Uneven, 3, **settings(max_episode_steps=15)).state)).any()
    sigmas = [record.sigma for record in expected.records]
    assert len(set(sigmas)) == 3, "the log shows how it changes"
    assert sigmas[0] == pytest.approx(0.05)


def test_the_log_shows_the_mean() -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation="per_parameter")) as model:
        learn(model, 2)
        mean = float(model.strategy.state()["sigma"].astype(np.float64).mean())
        assert learn(model, 3)[0].sigma == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_another_sigma_on_loading_is_that_of_what_has_adapted(kind: str, tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation=kind)) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        kept = sigma_of(model.strategy)
    assert (kept != kept.dtype.type(0.05)).all()
    with FastES.load(tmp_path / "m", Uneven, n_workers=0, sigma=1e30) as model:
        assert sigma_of(model.strategy) == pytest.approx(2e31 * kept, rel=1e-6)
    for factor in (1.2, 20_000.0, 0.002):
        with FastES.load(tmp_path / "m", Uneven, n_workers=0, sigma=0.05 * factor) as model:
            assert sigma_of(model.strategy) == pytest.approx(factor * kept, rel=1e-6)
            assert sigma_of(model.strategy).dtype == kept.dtype
            (report,) = learn(model, 1)
            assert report.sigma == pytest.approx(factor * kept.mean(), rel=1e-6)


def test_another_sigma_on_loading_is_that_of_every_trial(tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation="scalar", trials=3)) as model:
        learn(model, 3)
        kept = [float(sigma_of(trial.training.strategy)[0]) for trial in model.selection.trials]
        model.save(tmp_path / "m")
    assert len(set(kept)) == 3
    with FastES.load(tmp_path / "m", Uneven, n_workers=0, sigma=0.1) as model:
        again = [float(sigma_of(trial.training.strategy)[0]) for trial in model.selection.trials]
    assert again == pytest.approx([2 * sigma for sigma in kept], rel=1e-6)


def test_what_is_no_sigma_in_a_file_is_named(tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation="scalar")) as model:
        saved = model.snapshot()
    for wrong in (0, "lin_0.1", None, 10**400):
        saved.data["settings"]["sigma"] = wrong
        write_checkpoint(tmp_path / "m", saved)
        with pytest.raises(CheckpointError, match="settings are damaged: sigma"):
            FastES.load(tmp_path / "m", Uneven, n_workers=0, sigma=0.1)


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (np.zeros(26, np.float32), "not positive"),
        (np.full(26, np.nan, np.float32), "not finite"),
        (np.ones(25, np.float32), r"has shape \(25,\)"),
        (np.ones(26), "dtype float64"),
        (None, "'trainings.0.sigma' is missing"),
    ],
)
def test_a_damaged_sigma_is_named(sigma: Any, message: str, tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation="per_parameter")) as model:
        assert model.num_params == 26
        saved = model.snapshot()
    saved.arrays["trainings"].pop("0.sigma")
    if sigma is not None:
        saved.arrays["trainings"]["0.sigma"] = sigma
    write_checkpoint(tmp_path / "m", saved)
    with pytest.raises(CheckpointError, match=message):
        FastES.load(tmp_path / "m", Uneven, n_workers=0)


@pytest.mark.parametrize(("saved", "loaded"), [("scalar", "none"), ("none", "scalar"), ("scalar", "per_parameter")])
def test_another_adaptation_on_loading_is_no_damaged_file(saved: str, loaded: str, tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings(sigma_adaptation=saved)) as model:
        model.save(tmp_path / "m")
    message = f"sigma_adaptation = '{loaded}' cannot change on loading, the checkpoint has '{saved}'"
    with pytest.raises(CheckpointMismatch, match=message):
        FastES.load(tmp_path / "m", Uneven, n_workers=0, sigma_adaptation=loaded)


def test_a_plain_checkpoint_holds_no_sigma(tmp_path: Path) -> None:
    with FastES(Uneven, preset="default", n_workers=0, **settings()) as model:
        model.save(tmp_path / "m")
    assert not [name for name in read_checkpoint(tmp_path / "m").arrays["trainings"] if "sigma" in name]


# Arguments


@pytest.mark.parametrize("sigma", ["lin_0.1", "lin_0.1_0.1", lambda _: 0.1])
def test_a_schedule_of_a_sigma_that_adapts_is_refused(sigma: Any) -> None:
    message = r"sigma = .* is a schedule, and sigma_adaptation = 'scalar'.*expected a number"
    with pytest.raises(ValueError, match=message):
        Settings(sigma=sigma, sigma_adaptation="scalar")
    with pytest.raises(ValueError, match=message):
        strategy("scalar", sigma=sigma)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma_adaptation": "per_param"}, r"'per_param': expected one of .*did you mean 'per_parameter'"),
        ({"sigma_learning_rate": 0.0}, "sigma_learning_rate = 0.0 is out of range"),
        ({"sigma_learning_rate": math.nan}, "sigma_learning_rate = nan"),
        ({"sigma_learning_rate": 1001.0}, "sigma_learning_rate = 1001.0 is out of range"),
        ({"sigma_adaptation": "scalar", "sigma": 1e-31}, "sigma = 1e-31 cannot be adapted"),
        ({"sigma_adaptation": "scalar", "sigma": 1e31}, r"sigma = 1e\+31 cannot be adapted"),
        ({"sigma_adaptation": "scalar", "shaping": "signed_ranks"}, "'scalar' compares pairs .*expected another shaping"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**changes)
    with pytest.raises(ValueError, match=message):
        strategy(**{"kind": changes.get("sigma_adaptation", "none"), **_without(changes, "sigma_adaptation")})


def _without(changes: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if key != name}


@pytest.mark.parametrize("sigma", [1e-30, 1e30])
def test_the_widest_sigmas_stay_ordinary_numbers(sigma: float) -> None:
    adaptation = SigmaAdaptation("per_parameter", sigma, 0.1, 3)
    for bound in adaptation.bounds:
        adaptation.values = np.full(3, bound, np.float32)
        assert np.isfinite(adaptation.values).all()
        assert (adaptation.values > 0).all()
        assert adaptation.values.dtype == np.float32
