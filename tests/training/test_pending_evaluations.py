"""Risk: an evaluation that plays beside the next generations is told late, twice, of another theta, or not at all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, toy
from processes import sent_by_value
from training import assert_same, assert_same_records, assert_same_state, learn, theta_of, train

from fastes import FastES, WorkerError
from fastes.es.perturbations import draw_eval_seeds
from fastes.pools.processes.process_pool import spare_workers
from fastes.reports.callbacks import Callback
from fastes.training.record import Record
from fastes.training.training import Training

sent_by_value(__name__)
LAGS = [0, 1, 3]


def evaluations(records: list[Record]) -> dict[int, tuple[float, float]]:
    """Generation that was evaluated -> its return, and the timesteps that it had been trained with."""
    return {record.eval_generation: (record.eval_return, record.eval_at) for record in records if record.eval_generation}


@pytest.mark.parametrize("lag", LAGS)
def test_each_evaluation_is_told_exactly_so_many_generations_later(lag: int) -> None:
    at_once, late = train(toy(), 8, **SETTINGS, eval_lag=0), train(toy(), 8, **SETTINGS, eval_lag=lag)
    assert [record.eval_generation for record in late.records] == [max(0, g - lag) for g in range(1, 9)]
    assert evaluations(late.records).items() <= evaluations(at_once.records).items()
    assert (theta_of(late.state) == theta_of(at_once.state)).all()
    steps = [0, *(record.timesteps for record in at_once.records)]
    assert all(at == steps[generation - 1] for generation, (_, at) in evaluations(late.records).items())


def test_figures_of_no_evaluation_say_so() -> None:
    first, *_ = train(toy(), 3, **SETTINGS, eval_lag=1).records
    assert first.eval_generation == first.eval_at == first.eval_rank == 0
    assert math.isnan(first.eval_return)
    assert math.isnan(first.eval_std)


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("n_workers", [1, 3])
def test_no_number_of_workers_changes_a_bit(n_workers: int, lag: int) -> None:
    settings = {**SETTINGS, "eval_lag": lag, "eval_episodes": 3}
    assert_same(train(toy(), 6, 0, **settings), train(toy(), 6, n_workers, **settings))


def test_ranks_are_those_among_the_candidates_of_the_same_generation() -> None:
    ranks = [{r.eval_generation: r.eval_rank for r in train(toy(), 6, **SETTINGS, eval_lag=lag).records} for lag in (0, 2)]
    assert {**ranks[0], **ranks[1]} == {**ranks[0], 0: 0}
    assert len(set(ranks[0].values())) > 1


@pytest.mark.parametrize("every", [1, 2, 3])
def test_theta_is_evaluated_every_so_many_generations(every: int) -> None:
    records = train(toy(), 9, **SETTINGS, eval_every=every, eval_lag=1).records
    told = [record.eval_generation for record in records if record.eval_generation]
    assert told == list(range(1, 9, every))
    at_once = evaluations(train(toy(), 9, **SETTINGS, eval_lag=0).records)
    assert evaluations(records).items() <= at_once.items()


class Noting(Callback):
    """Every best theta, with the model's state at that moment."""

    def __init__(self) -> None:
        self.best: list[tuple[float, Any, Any]] = []

    def on_new_best(self, model: Any, eval_return: float) -> None:
        state = model.snapshot()
        self.best.append((eval_return, theta_of(state).copy(), state.arrays["trainings"]["0.normalizer.mean"].copy()))


@pytest.mark.parametrize("lag", [1, 3])
def test_the_best_parameters_are_those_that_were_evaluated(lag: int) -> None:
    found = []
    for its_lag in (0, lag):
        noting = Noting()
        with FastES(toy(), n_workers=0, preset="default", **SETTINGS, eval_lag=its_lag) as model:
            model.learn(600, noting)
            found.append(noting.best)
            last = model.evaluate(3)
            at_end = model.theta
        assert last is not None
        assert at_end is not None
    at_once, late = found
    assert len(at_once) > 1
    assert [mean for mean, *_ in at_once] == [mean for mean, *_ in late]
    for (_, theta, mean), (_, other, its_mean) in zip(at_once, late, strict=True):
        assert theta.tobytes() == other.tobytes()
        assert mean.tobytes() == its_mean.tobytes()


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_last_generations_are_told_when_training_ends(lag: int) -> None:
    with FastES(toy(), n_workers=2, preset="default", **SETTINGS, eval_lag=lag) as model:
        learn(model, 5)
        assert model.last_evaluation_of is not None
        assert model.last_evaluation_of.generation == 4
        expected = train(toy(), 5, **SETTINGS, eval_lag=0)
        assert model.last_evaluation is not None
        assert model.last_evaluation.mean == expected.records[-1].eval_return
        counters = expected.state.data["trainings"][0]["counters"]
        assert model.best_eval_return == counters["best_eval_return"]
        assert model.eval_timesteps == counters["eval_timesteps"]


@pytest.mark.parametrize("lag", [1, 2])
def test_training_that_ends_and_goes_on_is_the_same(lag: int) -> None:
    settings = {**SETTINGS, "eval_lag": lag}
    whole = train(toy(), 8, **settings)
    with FastES(toy(), n_workers=0, preset="default", **settings) as model:
        records = learn(model, 3) + learn(model, 5) + learn(model, 8)
        assert_same_state(whole.state, model.snapshot())
        assert [r._replace(eval_timesteps=0) for r in map(_timeless, records)] == [
            r._replace(eval_timesteps=0) for r in map(_timeless, whole.records)
        ]


def _timeless(record: Record) -> Record:
    record = record._replace(seconds=0.0, cpu_seconds=0.0, steps_per_second=0.0, utilisation=0.0, jobs_rerun=0)
    return record._replace(**{name: "nan" for name, value in record._asdict().items() if value != value})


@pytest.mark.parametrize("lag", [1, 2])
@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_checkpoint_between_an_evaluation_and_its_figures_continues_exactly(lag: int, n_workers: int, tmp_path: Path) -> None:
    settings = {**SETTINGS, "eval_lag": lag, "eval_episodes": 2}
    whole = train(toy(), 8, **settings)

    def save(model: FastES, record: Record) -> bool:
        model.save(tmp_path / f"{record.generation}")
        return record.generation < 8

    with FastES(toy(), n_workers=0, preset="default", **settings) as model:
        model.learn(10**9, save)
    for generation in (1, 2, 5):
        with FastES.load(tmp_path / f"{generation}", toy(), n_workers=n_workers) as model:
            assert len(model.training.pending) == min(lag, generation)
            records = learn(model, 8)
            assert_same_state(whole.state, model.snapshot())
            assert_same_records(whole.records[generation:], records)


def test_a_solved_theta_is_what_training_ends_with(tmp_path: Path) -> None:
    """Though candidates of later ones are played by then."""
    with FastES("CartPole-v1", seed=3, n_workers=2, eval_lag=2, target_return=300.0, target_episodes=5) as model:
        noting = Noting()
        model.learn(200_000, noting)
        assert model.solved
        mean, theta, _ = noting.best[-1]
        assert mean >= 300.0
        assert model.theta.tobytes() == theta.tobytes()
        assert model.evaluate(5, first_seed=None).mean >= 300.0
        model.save(tmp_path / "solved")
    with FastES("CartPole-v1", seed=3, n_workers=0, eval_lag=2, target_return=300.0, target_episodes=5) as other:
        other.learn(200_000)
        assert other.theta.tobytes() == theta.tobytes()
        assert other.num_timesteps == model.num_timesteps


def test_parameters_that_are_set_end_the_evaluations_of_others() -> None:
    with FastES(toy(), n_workers=2, preset="default", **SETTINGS, eval_lag=3) as model:
        learn(model, 3)
        assert model.training.pending
        model.set_parameters({"policy": {name: 0.0 * array for name, array in model.get_parameters()["policy"].items()}})
        assert not model.training.pending
        learn(model, 6)


def test_a_worker_killed_in_an_evaluation_changes_no_result(tmp_path: Path) -> None:
    settings = {**SETTINGS, "eval_lag": 2}
    whole = train(toy(), 5, **settings)
    env = toy(kill_seeds=draw_eval_seeds(5, 2, 1).tolist(), marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        assert_same(whole, train(env, 5, 2, **settings))
    (message,) = messages
    assert "generation 3, evaluation episode 0" in message


class Failing(Toy):
    """Raises in the evaluation of the third generation."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed in draw_eval_seeds(5, 2, 1):
            raise RuntimeError("this environment has no such evaluation")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_an_error_in_an_evaluation_is_raised_when_it_would_be_told(lag: int, n_workers: int) -> None:
    with FastES(Failing, n_workers=n_workers, preset="default", **SETTINGS, eval_lag=lag) as model:
        with pytest.raises(WorkerError, match="no such evaluation") as caught:
            learn(model, 8)
        assert (caught.value.generation, caught.value.job) == (3, 8)
        assert "generation 3, evaluation episode 0" in str(caught.value)
        assert model.generation == 2 + lag
        with pytest.raises(RuntimeError, match="no such evaluation"):
            model.replay(3, 8)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_solved_training_confirms_its_target_once(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed: list[int] = []
    fresh_seeds = Training.fresh_seeds

    def noting(training: Training, episodes: int) -> Any:
        confirmed.append(training.generation)
        return fresh_seeds(training, episodes)

    monkeypatch.setattr(Training, "fresh_seeds", noting)
    settings: dict[str, Any] = {"target_return": 300.0, "target_episodes": 5, "eval_lag": lag}
    with FastES("CartPole-v1", seed=3, n_workers=0, **settings) as model:
        model.learn(200_000)
        assert model.solved
        assert len(confirmed) == len(set(confirmed)), "each generation confirms one evaluation"


@pytest.mark.parametrize(("settings", "most"), [({"eval_lag": 100}, 4), ({"eval_lag": 3, "eval_every": 4}, 1)])
def test_spare_workers_are_as_many_as_evaluations_and_no_more_than_workers(settings: dict[str, int], most: int) -> None:
    with FastES(toy(), n_workers=4, preset="default", **SETTINGS, **settings) as model:
        assert spare_workers(model.evaluator.pool_spec(), 4) == most
