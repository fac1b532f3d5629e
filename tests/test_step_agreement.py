"""Risk: steps are shortened by another factor than was measured, differ between workers, or forget it with a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from training import assert_same, assert_same_records, assert_same_state, learn, train
from uneven import Uneven, assert_same_results, settings

from fastes import CheckpointError, CheckpointMismatch, EvolutionStrategy, FastES, Settings
from fastes.checkpoints.writer import write_checkpoint
from fastes.es.fitness_shaping import shape_returns
from fastes.es.optimizers import SHORTEST, StepAgreement
from fastes.pools.cluster.replica import key_of

OPTIMIZERS = ("sgd", "adam", "clipup")


def strategy(window: int = 5, num_params: int = 7, **changes: Any) -> EvolutionStrategy:
    fixed: dict[str, Any] = {"sigma": 0.3, "population_size": 20, "seed": 4, "optimizer": "sgd", "learning_rate": 0.1}
    return EvolutionStrategy(np.linspace(-1, 1, num_params), step_agreement=window, **{**fixed, **changes})


def some_returns(es: EvolutionStrategy, generation: int) -> Any:
    noise = np.random.default_rng(generation).standard_normal(es.population_size)
    return np.array([float(x[0] - x[3]) for x in es.ask()]) + 0.1 * noise


# The rule


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shaping": "standardized", "top_fraction": 0.5},  # five pairs: halves of three and two
        {"sigma_adaptation": "per_parameter", "weight_decay": 0.3},
        {"perturbed_share": 0.4},
    ],
)
def test_a_generation_follows_the_formula(changes: dict[str, Any]) -> None:
    es, (signal, length) = strategy(**changes), (0.0, 0.0)
    for generation in range(4):
        returns, perturbations, before = some_returns(es, generation), es.ask(), es.theta
        sigma, kept = perturbations.sigma, math.ceil(10 * changes.get("top_fraction", 1.0))
        shaped = shape_returns(returns.reshape(-1, 2), sigma, es.shaping, es.top_fraction)
        each = sigma if perturbations.sigma_each is None else perturbations.sigma_each.astype(np.float64)
        eps = np.array([x.astype(np.float64) - before for x in perturbations])[::2] / each
        counted = np.flatnonzero(shaped.shaped.any(axis=1))
        assert len(counted) == kept
        terms = shaped.scale * perturbations.inverse_share * shaped.weights[:, np.newaxis] * eps * each / sigma
        even, odd = (kept * terms[counted[first::2]].mean(axis=0) for first in (0, 1))
        signal += (even @ odd - signal) / 5
        length += (terms.sum(axis=0) @ terms.sum(axis=0) - length) / 5
        factor = min(max(signal / length, SHORTEST), 1.0)
        update = es.tell(returns)
        assert update.step_factor == pytest.approx(factor, rel=1e-4)
        gradient = terms.sum(axis=0) - es.weight_decay * before
        assert update.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
        if not generation:  # momentum has nothing to add
            assert es.theta - before == pytest.approx(factor * 0.1 * gradient, abs=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_of_each_optimizer_are_shortened_by_it(optimizer: str) -> None:
    plain, measured = strategy(0, optimizer=optimizer), strategy(optimizer=optimizer)
    for generation in range(3):
        returns, before = some_returns(plain, generation), plain.theta
        measured.load_state({**measured.state(), "theta": before}, generation)
        measured.ask()
        full, update = plain.tell(returns), measured.tell(returns)
        assert 0.2 < update.step_factor < 1.0
        assert measured.theta - before == pytest.approx(update.step_factor * (plain.theta - before), abs=1e-6)
        assert update.step_norm == pytest.approx(update.step_factor * full.step_norm, rel=1e-4)
        assert update.learning_rate == full.learning_rate


def test_it_is_the_share_of_the_signal() -> None:
    """Of a linear function, n pairs, d parameters: |g|^2 / E|estimate|^2 = 1 / (1 + (d + 1) / n). Of noise alone: the least."""
    rng, factors = np.random.default_rng(0), []
    slope = np.linspace(-1.0, 2.0, 7)
    for returns_of in (lambda x: float(slope @ x), lambda _: float(rng.standard_normal())):
        es = strategy(400, shaping="standardized", learning_rate=1e-6)
        for _ in range(400):
            update = es.tell([returns_of(x) for x in es.ask()])
        factors.append(update.step_factor)
    assert factors[0] == pytest.approx(1.0 / (1.0 + 8.0 / 10.0), rel=0.1)
    assert factors[1] < 0.15


def test_what_cannot_be_compared_changes_nothing() -> None:
    es = strategy()
    es.ask()
    assert es.tell(np.ones(20)).step_factor == 1.0, "nothing was measured yet"
    es.tell(some_returns(es, 0))
    before = es.state()["agreement"]
    es.ask()
    es.tell(np.ones(20))
    es.ask(num_pairs=1)
    es.tell([1.0, 2.0])
    assert (es.state()["agreement"] == before).all()
    es.ask()
    es.tell(some_returns(es, 1))
    assert (es.state()["agreement"] != before).all()


def test_it_stays_between_its_bounds() -> None:
    assert StepAgreement(5).factor == 1.0
    factors = [StepAgreement(5, signal, 1.0).factor for signal in (-3.0, 0.0, 0.05, 0.4, 7.0)]
    assert factors == [SHORTEST, SHORTEST, SHORTEST, 0.4, 1.0]


def test_a_restart_begins_anew() -> None:
    es = strategy()
    es.tell(some_returns(es, 0))
    es.restart(np.zeros(7))
    assert (es.state()["agreement"] == 0.0).all()


def test_without_it_nothing_is_measured() -> None:
    es = strategy(0)
    assert math.isnan(es.tell(some_returns(es, 0)).step_factor)
    assert "agreement" not in es.state()


def test_who_follows_comes_to_the_same_state() -> None:
    es, replica = strategy(), strategy()
    for generation in range(3):
        es.tell(some_returns(es, generation))
        assert es.last_tell is not None
        replica.follow(es.last_tell)
        assert key_of(replica) == key_of(es)
    es.load_state({**es.state(), "agreement": np.zeros(2)}, es.generation)
    assert key_of(replica) != key_of(es)


# Trainings


def test_workers_lanes_and_a_pause_change_no_bit(tmp_path: Path) -> None:
    own = settings(step_agreement=3, population_size=16, sigma=0.3, policy="LinearPolicy", policy_kwargs={})
    expected = train(Uneven, 4, **own)
    assert_same(expected, train(Uneven, 4, 2, **own))
    env = SyncVectorEnv([Uneven] * 3)
    assert_same_results(train(Uneven, 4, **own), train(env, 4, **own))
    env.close()
    factors = [record.step_factor for record in expected.records]
    assert len(set(factors)) > 2, "the log shows how it changes"
    assert all(SHORTEST <= factor <= 1.0 for factor in factors)
    with FastES(Uneven, n_workers=0, preset="default", **own) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Uneven, n_workers=0) as model:
        assert_same_records(learn(model, 4), expected.records[2:])
        assert_same_state(model.snapshot(), expected.state)


@pytest.mark.parametrize(
    ("agreement", "message"),
    [
        (np.array([1.0, -1.0]), "'agreement' has a squared length below 0"),
        (np.array([1.0, math.nan]), "'agreement' has values that are not finite"),
        (np.zeros(3), r"'agreement' has shape \(3,\)"),
        (None, "'agreement' is missing"),
    ],
)
def test_damage_is_named(agreement: Any, message: str, tmp_path: Path) -> None:
    with FastES(Uneven, n_workers=0, **settings(step_agreement=3)) as model:
        saved = model.snapshot()
    saved.arrays["optimizer"].pop("agreement")
    if agreement is not None:
        saved.arrays["optimizer"]["agreement"] = agreement
    write_checkpoint(tmp_path / "m", saved)
    with pytest.raises(CheckpointError, match=message):
        FastES.load(tmp_path / "m", Uneven, n_workers=0)


def test_a_file_without_it_is_not_loaded_with_it(tmp_path: Path) -> None:
    with FastES(Uneven, n_workers=0, **settings()) as model:
        model.save(tmp_path / "m")
    with pytest.raises(CheckpointMismatch, match="step_agreement = 3 cannot change on loading, the checkpoint has 0"):
        FastES.load(tmp_path / "m", Uneven, n_workers=0, step_agreement=3)


@pytest.mark.parametrize("changes", [{"population_size": 2}, {"population_size": 16, "top_fraction": 0.125}])
def test_a_single_pair_has_no_halves(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"step_agreement = 5 compares two halves.*only one does: expected a larger"):
        Settings(step_agreement=5, **changes)
    Settings(step_agreement=5, population_size=4)
