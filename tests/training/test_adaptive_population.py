"""Risk: an adaptive population depends on workers, forgets or repeats candidates, names the wrong one, or never stops."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_checkpoints import edited
from envs_for_tests import Toy, ToyError
from faults import SETTINGS, caught_warnings, toy
from gymnasium.vector import SyncVectorEnv
from processes import sent_by_value
from training import Result, assert_same, assert_same_state, learn, train
from uneven import Uneven, assert_same_results

from fastes import EvolutionStrategy, FastES, WorkerError
from fastes.errors import CheckpointError, FastESError
from fastes.es.perturbations import draw_pairs
from fastes.pools.serial_pool import SerialPool
from fastes.rollout.job import Request
from fastes.settings.settings import Settings
from fastes.training.adaptive_population import AdaptivePopulation
from fastes.training.player import Player

sent_by_value(__name__)
BLOCK = 8
ADAPTIVE = {**SETTINGS, "generation_timesteps": 300, "max_population_size": 5 * BLOCK}


class Growing(Toy):
    """Episodes grow as the policy moves away from zero action: their length differs between candidates and generations."""

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.steps >= 4 + 60 * float(np.abs(action).mean()), False, info


@pytest.fixture(scope="module")
def whole() -> Result:
    return train(Growing, 5, 0, **ADAPTIVE)


def populations(result: Result) -> list[int]:
    return np.diff([0, *(record.episodes for record in result.records)]).tolist()


def steps(result: Result) -> list[int]:
    return np.diff([0, *(record.timesteps for record in result.records)]).tolist()


def test_blocks_are_added_until_the_budget_is_met(whole: Result) -> None:
    found = populations(whole)
    assert len(set(found)) > 1, "the comparisons here are of populations that vary"
    for population, made in zip(found, steps(whole), strict=True):
        assert population % BLOCK == 0
        assert made >= 300 or population == 5 * BLOCK


@pytest.mark.parametrize("n_workers", [1, 3])
def test_number_of_workers_changes_no_bit(n_workers: int, whole: Result) -> None:
    assert_same(whole, train(Growing, 5, n_workers, **ADAPTIVE))


@pytest.mark.parametrize("num_envs", [1, 3, 11])
def test_vector_envs_change_no_bit(num_envs: int) -> None:
    own = {**ADAPTIVE, "eval_episodes": 2, "episodes_per_candidate": 2, "max_episode_steps": 15}
    expected = train(Uneven, 3, **own)
    env = SyncVectorEnv([Uneven] * num_envs)
    assert_same_results(expected, train(env, 3, **own))
    env.close()


def test_a_budget_that_one_block_meets_changes_no_bit() -> None:
    plain, met = train(Growing, 3, 0, **SETTINGS), train(Growing, 3, 0, **{**ADAPTIVE, "generation_timesteps": 1})
    assert [state.data["trainings"][0].pop("population") for state in (plain.state, met.state)] == [None, 1]
    for state in (plain.state, met.state):
        state.data.pop("settings")
    assert_same(plain, met)


def test_two_blocks_are_the_generation_of_twice_the_population(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, environment seeds and order of the pairs do not depend on when they were asked for."""
    at_once = train(Growing, 1, 0, **{**SETTINGS, "population_size": 5 * BLOCK})
    one_by_one = train(Growing, 1, 0, **{**ADAPTIVE, "generation_timesteps": 10**6})
    monkeypatch.setattr(AdaptivePopulation, "missing_pairs", lambda self, lengths, _: BLOCK // 2 * (lengths.size < 5 * BLOCK))
    in_small_steps = train(Growing, 1, 0, **{**ADAPTIVE, "generation_timesteps": 10**6})
    assert_same(one_by_one, in_small_steps)
    assert [state.data["trainings"][0].pop("population") for state in (at_once.state, one_by_one.state)] == [None, 5]
    for state in (at_once.state, one_by_one.state):
        state.data.pop("settings")
    assert_same(at_once, one_by_one)


def test_evaluation_runs_once_a_generation(whole: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    submit = SerialPool.submit

    def watched(pool: SerialPool, request: Any) -> Any:
        candidates = request.perturbations is not None
        generation = request.perturbations.generation if candidates else request.generation
        asked.append((generation, request.first_pair if candidates else -1, len(request.eval_seeds)))
        return submit(pool, request)

    monkeypatch.setattr(SerialPool, "submit", watched)
    assert_same(whole, train(Growing, 5, 0, **ADAPTIVE))
    assert len([first for generation, first, _ in asked if generation == 0]) > 2, "the first generation guesses nothing"
    assert [generation for generation, first, _ in asked if first < 0] == list(range(5))
    assert all(evaluations == (first < 0) for _, first, evaluations in asked)


def rule(budget: int | str, most: int = 10, block: int = 4) -> AdaptivePopulation:
    return AdaptivePopulation(Settings(population_size=block, generation_timesteps=budget, max_population_size=most * block))


def lengths(blocks: int, each: int) -> Any:
    return np.full((2 * blocks, 2), each, dtype=np.int64)


def test_the_rule() -> None:
    population = rule(1000)
    assert population.num_pairs == 2
    assert population.missing_pairs(lengths(1, 250), 0.5) == 0
    assert population.missing_pairs(lengths(1, 249), 0.5) == 2
    assert population.missing_pairs(lengths(1, 30), 0.5) == 2 * 8  # 9 blocks of 120 steps
    assert population.missing_pairs(lengths(9, 25), 0.5) == 2  # 1000 steps are 10 blocks of 100
    assert population.missing_pairs(lengths(1, 1), 0.5) == 2 * 9
    assert population.missing_pairs(lengths(10, 1), 0.5) == 0, "there may be no more"
    assert population.missing_pairs(lengths(3, 0), 0.5) == 2 * 7, "episodes that fail at once have no steps"
    for each, first in ((30, 9), (25, 10), (1, 10), (0, 10), (249, 2), (250, 1), (10**6, 1)):
        population = population.after(lengths(4, each), 0.5)
        assert population.num_pairs == 2 * first
    assert AdaptivePopulation.start(Settings(population_size=4)) is None


def test_the_rule_with_a_schedule() -> None:
    population = rule("lin_200_1000")
    for remaining, blocks in ((1.0, 2), (0.5, 6), (0.0, 10)):  # of 100 steps each
        assert population.missing_pairs(lengths(1, 25), remaining) == 2 * (blocks - 1)
        population = population.after(lengths(4, 25), remaining)
        assert population.num_pairs == 2 * blocks
    assert population.missing_pairs(lengths(2, 25), 1.0) == 0
    assert population.missing_pairs(lengths(2, 25), 0.99) == 2


def scheduled(schedule: str) -> dict[str, Any]:
    return {**SETTINGS, "generation_timesteps": schedule, "max_population_size": 40 * BLOCK}


def run_of(schedule: str, n_workers: int) -> Result:
    with FastES(Toy, preset="default", n_workers=n_workers, **scheduled(schedule)) as model:
        records = learn(model, 10**6, 4000)
        return Result(model.snapshot(), records)


@pytest.mark.parametrize(("first", "last"), [(100, 900), (900, 100)])
def test_a_schedule_changes_generations(first: int, last: int) -> None:
    """Each begins with what its own budget needs: more come where that is too few, and none go where it is too many."""
    expected = run_of(f"exp_{first}_{last}", 0)
    begun = np.array([0, *(record.timesteps for record in expected.records[:-1])])
    made, wanted = np.array(steps(expected)), first * (last / first) ** (begun / 4000)
    block = BLOCK * made.sum() / sum(populations(expected))  # mean steps of one
    assert (made >= wanted - 0.5).all()
    assert (made <= wanted + 2.5 * block).all()
    assert max(made) > 5 * min(made)
    assert_same(expected, run_of(f"exp_{first}_{last}", 2))


@pytest.mark.parametrize("schedule", ["exp_100_900", "exp_900_100"])
def test_a_schedule_goes_on_after_a_pause(schedule: str, tmp_path: Path) -> None:
    expected = run_of(schedule, 0)
    for generations in range(1, len(expected.records)):
        with FastES(Toy, preset="default", n_workers=0, **scheduled(schedule)) as model:
            learn(model, generations, 4000)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", Toy, n_workers=0) as model:
            learn(model, 10**6, 4000)
            assert_same_state(model.snapshot(), expected.state)


def test_another_budget_moves_a_schedule_at_once() -> None:
    with FastES(Toy, preset="default", n_workers=0, **scheduled("exp_100_900")) as model:
        first = learn(model, 10**6, 4000)[0]
        model.learn(4000, lambda _, record: False)
        assert model.num_timesteps < 2 * first.timesteps, "as large as the last one of the training before"


def test_a_schedule_that_does_not_change_is_the_number() -> None:
    number, schedule = (train(Growing, 5, 0, **{**ADAPTIVE, "generation_timesteps": each}) for each in (300, "lin_300_300"))
    for result in (number, schedule):
        result.state.data.pop("settings")
    assert_same(number, schedule)


@pytest.mark.parametrize("pair", [1, BLOCK - 1], ids=["first block", "second block"])
def test_a_killed_worker_changes_no_result(pair: int, whole: Result, tmp_path: Path) -> None:
    size = len(whole.state.arrays["trainings"]["0.theta"])
    seed = int(draw_pairs(5, 0, 2 * BLOCK, 1, size, 5000)[1][pair, 0])
    env = partial(Growing, kill_seeds=[seed], marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        result = train(env, 5, 2, **ADAPTIVE)
    assert_same_results(whole, result)
    (message,) = messages
    assert f"(pair {pair}, side" in message
    assert "generation 1" in message
    assert result.records[0].jobs_rerun >= 1


def fail_late(**changes: Any) -> tuple[Any, dict[str, Any]]:
    """A toy whose generation 1 needs three blocks, and fails in the third."""
    seed = int(draw_pairs(5, 0, 20, 1, 30, 5000)[1][9, 0])
    settings = {**SETTINGS, "generation_timesteps": 300, "max_population_size": 3 * BLOCK, **changes}
    return toy(fail_seeds=[seed]), settings


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_error_in_a_later_block_names_the_job_and_changes_nothing(n_workers: int) -> None:
    env, settings = fail_late()
    with FastES(env, preset="default", n_workers=n_workers, **settings) as model:
        before = model.snapshot()
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        assert (caught.value.generation, (caught.value.job or 0) // 2) == (1, 9)
        assert model.num_timesteps == model.num_episodes == model.eval_timesteps == 0
        before.data["selection"]["budget"] = before.data["trainings"][0]["counters"]["budget"] = model.budget
        assert_same_state(before, model.snapshot())
        with pytest.raises(ToyError):
            model.replay(1, caught.value.job or 0)
        assert model.replay(1, 0).length > 0


def test_every_job_of_a_generation_can_be_played_again() -> None:
    with FastES(Growing, preset="default", n_workers=0, **ADAPTIVE) as model:
        learn(model, 1)
        _, batch = model.evaluator.run(Player(model.evaluator).generation(model.training))
        for job in range(batch.returns.size):
            assert model.replay(2, job).episode_return == batch.returns.flat[job]
        (seed,) = model.training.eval_seeds(1)
        assert model.replay(2, 5 * BLOCK).episode_return == model.evaluate(1, first_seed=int(seed)).mean
        with pytest.raises(ValueError, match=f"to {5 * BLOCK}"):
            model.replay(2, 5 * BLOCK + 1)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_penalised_candidate_of_a_later_block_is_told(n_workers: int) -> None:
    env, settings = fail_late(on_env_error="penalise")
    with caught_warnings() as messages:
        result = train(env, 1, n_workers, **settings)
    assert result.records[0].num_nonfinite == 2
    (message,) = messages
    assert "ToyError" in message
    assert "generation 1" in message


def test_a_generation_in_which_all_fail_at_once_ends() -> None:
    class Failing(Toy):
        def step(self, action: Any) -> Any:
            raise ToyError

    with (
        FastES(Failing, preset="default", n_workers=0, **{**ADAPTIVE, "on_env_error": "penalise"}) as model,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        with pytest.raises(FastESError, match="every candidate"):
            learn(model, 1)


def test_ctrl_c_in_a_later_block_leaves_the_model_as_it_was() -> None:
    with FastES(Growing, preset="default", n_workers=2, **ADAPTIVE) as model:
        learn(model, 2)
        before = model.snapshot()
        asked, submit_all = [], model.pool.submit_all

        def interrupt(requests: Sequence[Request]) -> list[int]:
            asked.extend(request.first_pair for request in requests if request.perturbations is not None)
            if len(asked) == 2:
                signal.raise_signal(signal.SIGINT)
            return submit_all(requests)

        model.training = model.training._replace(population=model.training.population._replace(first=1))
        model.pool.submit_all = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            learn(model, 3)
        assert asked == [0, BLOCK // 2]
        before.data["trainings"][0]["population"] = 1
        before.data["selection"]["budget"] = before.data["trainings"][0]["counters"]["budget"] = model.budget
        assert_same_state(before, model.snapshot())


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "m.zip"
    with FastES("Toy-v0", preset="default", n_workers=0, **{**ADAPTIVE, "generation_timesteps": 500}) as model:
        learn(model, 2)
        model.save(path)
        assert model.training.population.first > 1
    return path


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2", 2**60])
def test_a_damaged_population_is_refused(value: Any, saved: Path, tmp_path: Path) -> None:
    path = edited(saved, tmp_path / "t.zip", lambda data: data["trainings"][0].update(population=value))
    with pytest.raises(CheckpointError, match="population"):
        FastES.load(path, n_workers=0)


def test_a_missing_population_is_refused(saved: Path, tmp_path: Path) -> None:
    path = edited(saved, tmp_path / "t.zip", lambda data: data["trainings"][0].pop("population"))
    with pytest.raises(CheckpointError, match="population"):
        FastES.load(path, n_workers=0)


def test_settings_may_change_on_loading(saved: Path, tmp_path: Path) -> None:
    with FastES.load(saved, n_workers=0, max_population_size=2 * BLOCK) as model:
        assert model.training.population.num_pairs == BLOCK
        learn(model, 3)
    with FastES.load(saved, n_workers=0, generation_timesteps=0) as model:
        episodes = model.num_episodes
        learn(model, 3)
        assert model.num_episodes == episodes + BLOCK
        model.save(tmp_path / "off")
    assert model.snapshot().data["trainings"][0]["population"] is None
    with FastES.load(tmp_path / "off", n_workers=0, generation_timesteps=500) as model:
        episodes = model.num_episodes
        learn(model, 4)
        assert model.num_episodes > episodes + BLOCK


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"generation_timesteps": -1}, ValueError, ("generation_timesteps", "-1")),
        (
            {"generation_timesteps": 1e5 + 0.5},
            TypeError,
            ("is a float", "or a schedule such as 'exp_5000_40000'"),
        ),
        ({"generation_timesteps": "lin_0_900"}, ValueError, ("'lin_0_900' does not stay between 1 and", "'lin_5000_40000'")),
        ({"generation_timesteps": "lin_900"}, ValueError, ("'lin_900'", "between 1 and", "whole number of at least 0, 'lin_5")),
        ({"generation_timesteps": len}, TypeError, ("generation_timesteps", "is a function")),
        ({"generation_timesteps": 9, "max_population_size": 60}, ValueError, ("60", "not a multiple", "= 16", "48 or 64")),
        ({"generation_timesteps": 9, "max_population_size": 8}, ValueError, ("8", "not a multiple", "use 16,")),
        ({"max_population_size": -16}, ValueError, ("max_population_size", "-16")),
    ],
)
def test_errors_say_what_to_do(settings: dict[str, Any], error: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        Settings(population_size=16, **settings)
    assert [word for word in words if word not in str(caught.value)] == []


def test_memory_is_for_the_largest_population_only_when_it_is_asked_for() -> None:
    plain = Settings(population_size=10)
    assert plain.largest_population() == plain.changed(max_population_size=40).largest_population() == 10
    assert plain.changed(generation_timesteps=1).largest_population() == 160
    assert plain.changed(generation_timesteps=1, max_population_size=40).largest_population() == 40


def test_ask_gives_other_numbers_of_pairs_and_tell_takes_them() -> None:
    es = EvolutionStrategy(np.zeros(3), population_size=4, seed=3)
    few, many = es.ask(num_pairs=3), es.ask(num_pairs=50)
    for name in ("noise_index", "env_seed", "action_key"):
        assert (getattr(few, name) == getattr(many, name)[:3]).all()
    assert len(es.ask()) == 4
    es.ask(num_pairs=3)
    with pytest.raises(ValueError, match=r"gave 6 candidates: expected \(6,\) in job order or \(3, 2\)"):
        es.tell(np.zeros(4))
    other = EvolutionStrategy(np.zeros(3), population_size=6, seed=3)
    other.ask()
    es.tell(range(6))
    other.tell(range(6))
    assert (es.theta == other.theta).all()
    for wrong in (0, -1, 2**31):
        with pytest.raises(ValueError, match="num_pairs"):
            es.ask(num_pairs=wrong)
    with pytest.raises(TypeError, match="num_pairs"):
        es.ask(num_pairs=1.0)  # type: ignore[arg-type]
