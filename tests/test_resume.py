"""Risk: a training that was stopped and resumed is not the training that never stopped."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS as SMALL
from processes import run_fastes, run_script
from training import Result, assert_same, assert_same_records, assert_same_state, learn, train

from fastes import CheckpointError, FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.cli.train import note_start
from fastes.cli.train_report import choose_best, resume_command
from fastes.pools.pool import PoolChoice
from fastes.reports.progress_bar import ProgressBar
from fastes.runs.run_config import read_config
from fastes.runs.run_folder import RunFolder
from fastes.training.record import Record

TOTAL = 3000
SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "weight_decay": 0.01},
    "sgd": {"optimizer": "sgd", "momentum": 0.8, "learning_rate": 0.1},
    "ars": {
        "optimizer": "sgd",
        "momentum": 0.0,
        "shaping": "standardized",
        "top_fraction": 0.5,
        "policy": "LinearPolicy",
        "policy_kwargs": {},
    },
    "clipup": {"optimizer": "clipup", "momentum": 0.8, "learning_rate": "lin_0.1_0.01"},
    "nes": {"shaping": "nes", "top_fraction": 0.75},
    "signed ranks": {"shaping": "signed_ranks"},
    "schedules": {"learning_rate": "lin_0.1_0.01", "sigma": "lin_0.2"},
    "exponential schedules": {"learning_rate": "exp_0.1_0.01", "sigma": "exp_0.2_0.05"},
    "one sigma that adapts": {"sigma_adaptation": "scalar", "sigma_learning_rate": 2.0},
    "sigmas that adapt": {"sigma_adaptation": "per_parameter", "shaping": "standardized", "top_fraction": 0.5},
    "a share of the parameters": {"perturbed_fraction": 0.3},
    "a share of the sigmas": {"perturbed_fraction": 0.5, "sigma_adaptation": "per_parameter"},
    "cap mean": {"episode_cap": "mean", "episode_cap_start": 6, "episode_cap_factor": 1.5},
    "cap grow": {"episode_cap": "grow", "episode_cap_start": 4, "episode_cap_factor": 1.2},
    "cap share": {"episode_cap": "share", "episode_cap_start": 4, "episode_cap_factor": 1.3},
    "adaptive population": {"population_size": 4, "generation_timesteps": 150, "max_population_size": 16},
    "no normaliser": {"normalize_obs": False},
    "noise": {"action_noise": 0.3, "episodes_per_candidate": 2, "eval_episodes": 2, "alive_bonus": 0.5},
    "bonus schedule": {"alive_bonus": "lin_-0.5_2"},
    "small table": {"noise_table_size": 2000},
    "target that is not confirmed": {"target_return": 10.0, "target_episodes": 40},
}


def _model(**changes: Any) -> FastES:
    settings = {"population_size": 8, "policy_kwargs": {"net_arch": [5]}, "total_timesteps": TOTAL, "target_return": "none"}
    return FastES("Toy-v0", preset="default", seed=9, n_workers=0, **{**settings, **changes})


@pytest.mark.parametrize("case", SETTINGS)
def test_five_and_five_are_ten(case: str, tmp_path: Path) -> None:
    with _model(**SETTINGS[case]) as model:
        whole = Result(None, learn(model, 10, TOTAL))._replace(state=model.snapshot())  # type: ignore[arg-type]
        assert model.generation == 10
    with _model(**SETTINGS[case]) as model:
        records = learn(model, 5, TOTAL)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        records += learn(model, 10, TOTAL)
        assert_same(whole, Result(model.snapshot(), records))


def test_a_failed_confirmation_is_remembered() -> None:
    """What the case above rests on: one confirmation before the stop forbids the ones after it."""
    with _model(**SETTINGS["target that is not confirmed"]) as model:
        records = learn(model, 10, TOTAL)
        costs = np.diff([0, *(record.eval_timesteps for record in records)])
        assert [cost > 100 for cost in costs].index(True) < 5
        reached = [record.generation for record in records if record.eval_return >= 10.0 and record.generation > 5]
        assert any(costs[generation - 1] < 100 for generation in reached)


@pytest.mark.parametrize("n_workers", [0, 3])
def test_five_and_five_in_another_process_are_ten(n_workers: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"learning_rate": "lin_0.1_0.01", "episode_cap": "mean", "episode_cap_start": 30}
    settings |= {"preset": "default", "seed": 9, "target_return": "none", "population_size": 6}
    with FastES("CartPole-v1", n_workers=0, **settings) as model:
        learn(model, 10, 20_000)
        whole = model.snapshot()
    with FastES("CartPole-v1", n_workers=2, **settings) as model:
        learn(model, 5, 20_000)
        model.save(tmp_path / "half")
    script = """
        import sys
        from fastes import FastES
        model = FastES.load("half", n_workers=int(sys.argv[1]))
        model.learn(20_000 - model.num_timesteps, lambda m, r: r.generation < 10, reset_num_timesteps=False)
        model.save("whole.zip")
    """
    result = run_script(script, tmp_path, str(n_workers))
    assert result.returncode == 0, result.stderr
    assert_same_state(whole, read_checkpoint(tmp_path / "whole.zip"))


def test_a_schedule_that_is_a_function_comes_back_as_an_argument(tmp_path: Path) -> None:
    def schedule(remaining: float) -> float:
        return 0.01 + 0.1 * remaining

    with _model(learning_rate=schedule, sigma=schedule) as model:
        learn(model, 6, TOTAL)
        whole = model.snapshot()
    with _model(learning_rate=schedule, sigma=schedule) as model:
        learn(model, 3, TOTAL)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert model.predict(np.zeros(3), deterministic=True)[0].shape == (2,)
        with pytest.raises(ValueError, match=r"learning_rate|sigma") as caught:
            model.learn(1000, reset_num_timesteps=False)
        assert "was a function" in str(caught.value)
        assert model.generation == 3
    with FastES.load(tmp_path / "m", n_workers=0, learning_rate=schedule, sigma=schedule) as model:
        learn(model, 6, TOTAL)
        assert_same_state(whole, model.snapshot())


def test_saving_changes_nothing(tmp_path: Path) -> None:
    with _model() as model:
        learn(model, 3, TOTAL)
        before = model.snapshot()
        model.save(tmp_path / "m")
        assert_same_state(before, model.snapshot())
    with FastES.load(tmp_path / "m", n_workers=0) as loaded:
        assert_same_state(before, loaded.snapshot())


@pytest.mark.parametrize("env", ["Toy-v0", "spec", "instance", "factory"])
def test_load_takes_every_kind_of_environment(env: str, tmp_path: Path) -> None:
    with _model() as model:
        learn(model, 2, TOTAL)
        model.save(tmp_path / "m")
        learn(model, 4, TOTAL)
        whole = model.snapshot()
    instance = gymnasium.make("Toy-v0")
    given: Any = {"spec": gymnasium.spec("Toy-v0"), "instance": instance, "factory": partial(Toy)}.get(env, env)
    with FastES.load(tmp_path / "m", env=given, n_workers=0) as model:
        learn(model, 4, TOTAL)
        assert_same_state(whole._replace(data=_without_env(whole.data)), _bare(model))
    instance.close()


def _bare(model: FastES) -> Any:
    state = model.snapshot()
    return state._replace(data=_without_env(state.data))


def _without_env(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in ("env", "env_name")}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "InvertedPendulum-v5"])
def test_load_refuses_an_environment_with_other_spaces(env: str, tmp_path: Path) -> None:
    with FastES("CartPole-v1", seed=0, n_workers=0) as model:
        model.save(tmp_path / "m")
    if env == "CartPole-v1":
        FastES.load(tmp_path / "m", env=env, n_workers=0).close()
        return
    with pytest.raises((ValueError, CheckpointError), match=r"space|observation|action"):
        FastES.load(tmp_path / "m", env=env, n_workers=0)


def test_a_setting_given_to_load_takes_effect(tmp_path: Path) -> None:
    with _model() as model:
        learn(model, 2, TOTAL)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0, max_episode_steps=5, learning_rate=0.5) as model:
        (record,) = learn(model, 3, TOTAL)
        assert record.learning_rate == 0.5
        assert record.episode_length == 5.0, "training episodes are cut at the new max_episode_steps"


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("lag", [0, 1, 5])
def test_another_lag_of_evaluations_can_be_given_to_load(lag: int, n_workers: int, tmp_path: Path) -> None:
    """Those that wait when it falls are told at once, and none is lost."""
    at_once = train(Toy, 9, **SMALL, eval_lag=0)
    with FastES(Toy, n_workers=0, preset="default", **SMALL, eval_lag=3) as model:
        learn(model, 5)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Toy, n_workers=n_workers, eval_lag=lag) as model:
        records = learn(model, 9)
        told = {record.eval_generation: record.eval_return for record in records if record.eval_generation}
        assert sorted(told) == {0: [6, 7, 8, 9], 1: [5, 6, 7, 8], 5: [3, 4]}[lag]
        assert told == {generation: at_once.records[generation - 1].eval_return for generation in told}
        assert model.eval_timesteps == at_once.state.data["trainings"][0]["counters"]["eval_timesteps"]
        assert model.best_eval_return == at_once.state.data["trainings"][0]["counters"]["best_eval_return"]


def test_env_kwargs_given_to_load_take_effect_or_are_refused(tmp_path: Path) -> None:
    with _model() as model:
        model.save(tmp_path / "m")
    try:
        loaded = FastES.load(tmp_path / "m", n_workers=0, env_kwargs={"length": 8})
    except (TypeError, ValueError):
        return
    with loaded:
        assert set(loaded.evaluate(5).lengths) == {8}


def test_learn_counts_on_or_from_zero() -> None:
    with _model() as model:
        model.learn(100)
        first = model.num_timesteps
        assert first >= 100
        model.learn(100, reset_num_timesteps=False)
        assert model.num_timesteps >= first + 100
        generation = model.generation
        model.learn(100)
        assert 100 <= model.num_timesteps < first + 100
        assert model.generation > generation, "parameters go on from where they were"


def test_learn_stops_with_the_generation_that_spends_the_budget() -> None:
    with _model() as model:
        model.learn(1)
        assert model.generation == 1
        steps = model.num_timesteps
    with _model() as model:
        model.learn(steps)
        assert model.generation == 1
    with _model() as model:
        model.learn(steps + 1)
        assert model.generation == 2


# --- run folders -----------------------------------------------------------------------------------------------------


def _rows(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def _statistics(run: Path) -> list[dict[str, str]]:
    times = ("seconds", "cpu_seconds", "steps_per_second", "utilisation", "jobs_rerun")
    return [{name: value for name, value in row.items() if name not in times} for row in _rows(run)]


FLAGS = ["CartPole-v1", "--seed", "4", "--quiet", "--workers", "0"]
FLAGS += ["--preset", "default", "--population-size", "6", "--target-return", "none"]


def test_progress_has_no_gap_and_no_repeat_after_resume(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *FLAGS, "--runs", str(whole), "--total-timesteps", "2500"]) == 0
    assert main(["train", *FLAGS, "--runs", str(parts), "--total-timesteps", "900"]) == 0
    run = parts / "CartPole-v1" / "1"
    first = len(_rows(run))
    assert main(["train", "--resume", str(run), "--quiet", "--workers", "2", "--total-timesteps", "2500"]) == 0
    rows = _rows(run)
    assert [int(row["generation"]) for row in rows] == list(range(1, len(rows) + 1))
    assert 0 < first < len(rows)
    assert _statistics(run) == _statistics(whole / "CartPole-v1" / "1")
    first_state, second_state = (read_checkpoint(p / "CartPole-v1" / "1" / "checkpoint.zip") for p in (whole, parts))
    assert first_state.arrays["trainings"]["0.theta"].tobytes() == second_state.arrays["trainings"]["0.theta"].tobytes()
    first_best, second_best = (
        state.data["trainings"][0]["counters"]["best_eval_return"] for state in (first_state, second_state)
    )
    assert json.dumps(first_best) == json.dumps(second_best)


def test_records_after_the_last_checkpoint_are_written_again(tmp_path: Path) -> None:
    """A run that was killed has statistics of generations that its checkpoint does not know."""
    with _model() as model:
        whole = learn(model, 9, TOTAL)
    run = RunFolder(tmp_path, checkpoint_seconds=1e9)
    with _model() as model:

        def save_once(record: Record) -> None:
            if record.generation == 5:
                run.save(model)

        _learn_into(model, run, 8, save_once)
    with open(tmp_path / "progress.csv", "a") as file:
        file.write("1")  # torn: generation 10 was being written
    assert len(_rows(tmp_path)) == 9
    with FastES.load(tmp_path / "checkpoint.zip", n_workers=0) as model:
        assert model.generation == 5
        _learn_into(model, RunFolder(tmp_path, checkpoint_seconds=1e9), 9, lambda _: None)
    rows = _rows(tmp_path)
    assert [int(row["generation"]) for row in rows] == list(range(1, 10))
    assert [float(row["theta_norm"]) for row in rows] == [record.theta_norm for record in whole]


def _learn_into(model: FastES, run: RunFolder, generations: int, on_record: Any) -> None:
    def stop(_: FastES, record: Record) -> bool:
        on_record(record)
        return record.generation < generations

    model.learn(TOTAL - model.num_timesteps, [run, stop], reset_num_timesteps=False)


def test_best_parameters_are_of_the_best_evaluation(tmp_path: Path) -> None:
    """best.zip holds theta as it was evaluated, not as it was after the update that followed."""
    run = RunFolder(tmp_path)
    thetas: dict[int, bytes] = {}
    with _model(eval_episodes=2) as model:
        thetas[1] = model.theta.tobytes()
        records: list[Record] = []

        def note(_: FastES, record: Record) -> bool:
            records.append(record)
            thetas[record.generation + 1] = model.theta.tobytes()
            return record.generation < 8

        model.learn(TOTAL, [run, note])
        run.save(model)
        last = model.last_evaluation
    assert last is not None
    told = {record.eval_generation: record.eval_return for record in records if record.eval_generation} | {8: last.mean}
    best = max(told, key=lambda generation: told[generation])
    saved = read_checkpoint(tmp_path / "best.zip")
    assert saved.arrays["trainings"]["0.theta"].tobytes() == thetas[best]
    assert saved.data["trainings"][0]["counters"]["best_eval_return"] == told[best]


@pytest.mark.parametrize("normalize_obs", [True, False])
def test_the_best_parameters_play_episodes_as_long_as_the_last_ones(normalize_obs: bool, tmp_path: Path) -> None:
    """Where steps pay, those of a longer training would always win."""
    run = RunFolder(tmp_path)
    with _model() as model:
        model.learn(TOTAL, [run, lambda _, record: record.generation < 3])
        run.save(model)
    changes: dict[str, Any] = {"max_episode_steps": 3, "normalize_obs": normalize_obs}
    with FastES.load(tmp_path / "checkpoint.zip", n_workers=0, **changes) as model:
        outcome = model.evaluator.run(choose_best(model, run, ProgressBar()))
    assert outcome.best is not None
    assert outcome.best.lengths.tolist() == outcome.last.lengths.tolist() == [3] * len(outcome.last.lengths)
    assert outcome.best.env_seeds.tolist() == outcome.last.env_seeds.tolist()


def test_records_of_a_resumed_model_follow_on(tmp_path: Path) -> None:
    whole = train("Toy-v0", 6, population_size=4)
    with FastES("Toy-v0", n_workers=0, seed=5, target_return="none", population_size=4, preset="default") as model:
        records = learn(model, 2)
        for generation in (4, 6):
            model.save(tmp_path / "m")
            with FastES.load(tmp_path / "m", n_workers=0) as again:
                records += learn(again, generation)
                again.save(tmp_path / "m")
            model = FastES.load(tmp_path / "m", n_workers=0)
        model.close()
    assert_same_records(whole.records, records)


@pytest.mark.slow
def test_a_module_id_keeps_the_arguments_of_its_environment(tmp_path: Path) -> None:
    """Train, stop, resume and play with the printed commands: the environment is the one with the arguments, all along."""
    flags = ["--workers", "0", "--quiet", "--population-size", "4", "--seed", "1", "--target-return", "none"]
    (tmp_path / "near.py").write_text("import envs_for_tests\n")  # a module that lies in the working directory
    env = "near:Toy-v0"
    first = run_fastes("train", env, *flags, "--env-kwargs", "length=8", "--total-timesteps", "200", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (run,) = (tmp_path / "runs").glob("*/1")
    second = run_fastes("train", env, "--resume", str(run), "--quiet", "--total-timesteps", "400", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert read_checkpoint(run / "checkpoint.zip").data["env"]["kwargs"] == {"length": 8}
    played = run_fastes("play", str(run), "--env", env, "--episodes", "3", cwd=tmp_path)
    assert played.stdout.count(", 8 steps") == 3, played.stdout + played.stderr
    other = run_fastes("eval", str(run), "--env", env, "--env-kwargs", "length=20", "--episodes", "5", cwd=tmp_path)
    assert "mean length 8.0" not in other.stdout
    assert other.returncode == 0, other.stderr


@pytest.mark.slow
def test_a_module_id_that_is_missing_is_asked_for_before_anything_happens(tmp_path: Path) -> None:
    flags = ["--workers", "0", "--quiet", "--population-size", "4", "--seed", "1", "--target-return", "none"]
    assert run_fastes("train", "envs_for_tests:Toy-v0", *flags, "--total-timesteps", "200", cwd=tmp_path).returncode == 0
    (run,) = (tmp_path / "runs").glob("*/1")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for command, typed in (
        (["train", "--resume", str(run), "--total-timesteps", "400"], f"fastes train envs_for_tests:Toy-v0 --resume {run}"),
        (["eval", str(run)], f"fastes eval {run} --env envs_for_tests:Toy-v0"),
        (["play", str(run)], f"fastes play {run} --env envs_for_tests:Toy-v0"),
    ):
        result = run_fastes(*command, cwd=tmp_path)
        assert result.returncode == 2, result.stderr
        assert typed in result.stderr
        assert "env=" not in result.stderr, "words of Python"
        assert "Traceback" not in result.stderr
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_what_goes_on_with_a_run_names_its_cluster() -> None:
    with FastES("CartPole-v1", n_workers=0) as model:
        assert resume_command(model, Path("runs/1")) == "fastes train --resume runs/1"
        model.pool_choice = PoolChoice(cluster="10.0.0.1:6379")
        assert resume_command(model, Path("runs/1")) == "fastes train --resume runs/1 --cluster 10.0.0.1:6379"


def test_a_run_folder_names_its_cluster(tmp_path: Path) -> None:
    with FastES("CartPole-v1", n_workers=0) as model, RunFolder(tmp_path) as folder:
        note_start(model, folder)
        first = read_config(tmp_path / "config.toml")
        assert first is not None
        assert "cluster" not in first["run"]
        model.pool_choice = PoolChoice(cluster="10.0.0.1:6379")
        note_start(model, folder)
        second = read_config(tmp_path / "config.toml")
        assert second is not None
        assert second["run"]["cluster"] == "10.0.0.1:6379"
