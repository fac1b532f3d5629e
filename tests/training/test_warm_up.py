"""Risk: statistics from before the first generation depend on workers, are taken twice, move theta, or go uncounted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy, ToyError
from faults import PAIRS, SETTINGS, seed_of, toy
from training import MANY, Result, assert_same, assert_same_state, learn, theta_of, train

from fastes import FastES, WorkerError
from fastes.reports.callbacks import Callback
from fastes.rollout.job import Request
from fastes.training.player import Player

WARM: dict[str, Any] = {**SETTINGS, "obs_warmup": True, "eval_episodes": 2, "episodes_per_candidate": 2}


class Far(Toy):
    """Observations far from zero, which only statistics bring near."""

    def _observation(self) -> Any:
        return super()._observation() + 100.0


@pytest.fixture(scope="module")
def whole() -> Result:
    return train(Far, 4, 0, **WARM)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_number_of_workers_changes_no_bit(n_workers: int, whole: Result) -> None:
    assert_same(whole, train(Far, 4, n_workers, **WARM))


def test_the_first_generation_is_played_with_the_statistics_of_its_candidates() -> None:
    with FastES(Far, preset="default", n_workers=0, **WARM) as model:
        start, (perturbations, batch) = model.theta, model.evaluator.run(Player(model.evaluator).generation(model.training))
        asked: list[tuple[Request, Any]] = []  # with the theta that the model had
        submit = model.pool.submit

        def noting(request: Request) -> int:
            asked.append((request, model.theta))
            return submit(request)

        model.pool.submit = noting  # type: ignore[method-assign]
        (record,) = learn(model, 1)
    (warming, _), *others = asked
    assert warming.perturbations is not None, "theta's evaluation waits for the statistics"
    ((played, theta),) = [(request, theta) for request, theta in others if request.perturbations is not None]
    evaluations = [request for request, _ in others if request.perturbations is None]
    before, after = warming.normalizer.state(), played.normalizer.state()
    assert evaluations
    assert all(each.normalizer.state()["mean"].tolist() == after["mean"].tolist() for each in evaluations), "with them, too"
    assert before["counts"][0] == 0
    assert (theta == start).all()
    steps = int(batch.lengths.sum())
    assert after["counts"].tolist() == [steps, 0]
    assert after["mean"] == pytest.approx(batch.moments[:, 0].sum(axis=0) / steps, rel=1e-12)
    assert record.timesteps > steps, "steps count"
    assert record.episodes == 2 * 2 * len(perturbations)
    assert model.normalizer.count == record.timesteps


def test_without_the_setting_nothing_is_played() -> None:
    plain = train(Far, 2, 0, **{**WARM, "obs_warmup": False})
    assert plain.records[0].episodes == 2 * 2 * PAIRS
    warm_without_statistics = train(Far, 2, 0, **{**WARM, "normalize_obs": False})
    assert warm_without_statistics.records[0].episodes == 2 * 2 * PAIRS
    assert (theta_of(plain.state) != theta_of(train(Far, 2, 0, **WARM).state)).any()


def test_statistics_are_taken_once(whole: Result, tmp_path: Path) -> None:
    with FastES(Far, preset="default", n_workers=0, **WARM) as model:
        records = learn(model, 1)
        model.save(tmp_path / "m")
        records += learn(model, 2)
    with FastES.load(tmp_path / "m", Far, n_workers=0) as model:
        again = learn(model, 2)
        records += learn(model, 4)
        assert again[0].episodes == records[1].episodes
        assert_same(whole, Result(model.snapshot(), records))


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_failure_before_the_first_generation_can_be_played_again(n_workers: int) -> None:
    settings = {**SETTINGS, "obs_warmup": True}
    with FastES(toy(fail_seeds=[seed_of(0, 2)]), preset="default", n_workers=n_workers, **settings) as model:
        before = model.snapshot()
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        assert caught.value.generation == 1
        assert (caught.value.job or 0) // 2 == 2
        before.data["selection"]["budget"] = before.data["trainings"][0]["counters"]["budget"] = model.budget
        assert_same_state(before, model.snapshot())
        with pytest.raises(ToyError):
            model.replay(1, caught.value.job or 0)


@pytest.mark.parametrize("lag", [0, 1])
def test_they_are_not_taken_again_when_an_early_generation_failed(lag: int) -> None:
    told: list[Any] = []

    def refuse(*_: Any) -> None:
        raise RuntimeError("full")

    with FastES(Far, preset="default", n_workers=0, **WARM, eval_lag=lag) as model:
        callback = Callback()
        callback.on_generation = lambda _, record: told.append(record)  # type: ignore[method-assign]
        callback.on_new_best = refuse  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="full"):
            model.learn(MANY, callback)
        assert model.generation == lag
        records = learn(model, 4)
        assert_same(train(Far, 4, 0, **WARM, eval_lag=lag), Result(model.snapshot(), [*told, *records]))


def test_a_budget_below_the_first_candidates_still_trains() -> None:
    with FastES(Far, preset="default", n_workers=0, **WARM) as model:
        model.learn(1)
        assert model.generation == 1
        assert np.isfinite(model.theta).all()
