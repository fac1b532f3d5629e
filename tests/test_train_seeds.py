"""Risk: trainings that share a pool disturb each other, or one's end, error or interrupt costs another its work."""

from __future__ import annotations

import csv
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import COMMON, caught_warnings, toy
from processes import children, interrupt_twice, run_script, started_script, wait_until
from training import MANY, TIMES, Result, assert_same, assert_same_state

from fastes import CallablePolicy, FastES, WorkerError, train_seeds
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.errors import FastESError
from fastes.reports.callbacks import Callback
from fastes.reports.progress_bar import (
    SeedsBar,
)
from fastes.runs.run_folder import RunFolder
from fastes.seeds import MOST_SEEDS
from fastes.settings.preset_loader import tomllib
from fastes.system.digits import short
from fastes.training.record import Record

SEEDS = (5, 6, 9)
STEPS = 1200  # of each: about ten generations
TRIALS = {"trials": 3, "rungs": 2, "trials_fraction": 0.6}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "trials": TRIALS,
    "trials alone": {"trials": 2, "trials_fraction": 1.0, "archive_size": 2},
    "lag 0": {"eval_lag": 0, "eval_episodes": 3},
    "lag 1": {"eval_lag": 1, "eval_episodes": 3},
    "lag 2": {"eval_lag": 2, "eval_episodes": 2, **TRIALS},
    "population": {"generation_timesteps": 300, "max_population_size": 64},
    "sigmas": {"sigma_adaptation": "per_parameter", "perturbed_fraction": 0.5, "obs_warmup": True},
    "solved": {"target_return": 8.0, "target_episodes": 4},
}
SMALL = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none"]


class Records(Callback):
    """Keeps what a model said, and the model."""

    def __init__(self, model: FastES, act: Callable[[FastES, Record], Any] | None = None) -> None:
        self.model, self.act, self.records = model, act, list[Record]()

    def on_generation(self, model: FastES, record: Record) -> Any:
        self.records.append(record)
        return None if self.act is None else self.act(model, record)

    def result(self) -> Result:
        return Result(self.model.snapshot(), self.records)


class Trainings:
    """The callbacks of several trainings. act: called once a generation with (model, record)."""

    def __init__(self, act: Callable[[FastES, Record], Any] | None = None) -> None:
        self.act, self.all = act, list[Records]()

    def __call__(self, model: FastES) -> Records:
        self.all.append(Records(model, self.act))
        return self.all[-1]

    def learn_on(self) -> None:
        """Each model to the end of its budget, by itself, undisturbed."""
        for one in self.all:
            one.act = None
            with one.model:
                one.model.learn(STEPS - one.model.num_timesteps, one, reset_num_timesteps=False)


@cache
def alone(kind: str = "plain", seed: int = SEEDS[0]) -> Result:
    """What a training of its own gives."""
    with FastES(toy(), n_workers=0, seed=seed, **{**COMMON, **KINDS[kind]}) as model:
        told = Records(model)
        model.learn(STEPS, told)
        return told.result()


def assert_each_as_alone(results: list[Result], kind: str = "plain") -> None:
    assert len(results) == len(SEEDS)
    for seed, result in zip(SEEDS, results, strict=True):
        assert_same(alone(kind, seed), result)


def together(trainings: Trainings, n_workers: int = 2, env: Any = None, **settings: Any) -> list[FastES]:
    return train_seeds(
        env or toy(), SEEDS, total_timesteps=STEPS, callback=trainings, n_workers=n_workers, **{**COMMON, **settings}
    )


def env_seed(seed: int, generation: int, pair: int = 1) -> int:
    """Of a pair of a model with COMMON."""
    with FastES(toy(), n_workers=0, seed=seed, **COMMON) as model:
        for _ in range(generation):
            model.strategy.ask()
            model.strategy.tell(np.arange(8.0))
        return int(model.strategy.ask().env_seed[pair, 0])


# --- each as alone ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_each_is_what_a_training_of_its_own_gives(kind: str, n_workers: int) -> None:
    trainings = Trainings()
    models = together(trainings, n_workers, **KINDS[kind])
    assert [model.seed for model in models] == list(SEEDS)
    assert_each_as_alone([one.result() for one in trainings.all], kind)


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("kind", ["plain", "trials", "lag 2"])
def test_a_callback_that_closes_its_model_changes_nothing(kind: str, n_workers: int) -> None:
    """The requests in flight begin again, and their first results free their slots in the pool of all."""

    def close(model: FastES, record: Record) -> None:
        if model.seed != SEEDS[2]:
            model.close()

    trainings = Trainings(close)
    together(trainings, n_workers, **KINDS[kind])
    assert_each_as_alone([one.result() for one in trainings.all], kind)


def test_the_kinds_do_what_their_names_say() -> None:
    assert alone("solved").state.data["trainings"][0]["counters"] != alone("plain").state.data["trainings"][0]["counters"]
    assert len({len(alone("solved", seed).records) for seed in SEEDS}) > 1, "one ends before another"
    assert len({len(alone("plain", seed).records) for seed in SEEDS} | {len(alone("lag 0").records)}) > 1
    assert any(record.episodes > 8 * record.generation for record in alone("population").records)


def test_a_policy_of_ones_own_is_trained_with_several_seeds() -> None:
    def act(theta: Any, observation: Any) -> Any:
        return np.clip(theta[:2] + observation[:2] * theta[2], -1.0, 1.0)

    policy, settings = CallablePolicy(act, 3), {**COMMON, "policy_kwargs": {}}
    models = train_seeds(toy(), [1, 2], policy, total_timesteps=400, n_workers=0, **settings)
    for seed, model in zip((1, 2), models, strict=True):
        with FastES(toy(), policy, n_workers=0, seed=seed, **settings) as single:
            single.learn(400)
            assert_same_state(single.snapshot(), model.snapshot())


def test_the_environment_is_built_once_here() -> None:
    built: list[int] = []

    def make() -> Toy:
        built.append(1)
        return Toy()

    train_seeds(make, 3, total_timesteps=100, n_workers=0, **COMMON)
    assert len(built) == 2, "one to know its spaces, one to play"


# --- afterwards ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_model_learns_on_and_evaluates_alone_afterwards(n_workers: int) -> None:
    before = set(children())
    trainings = Trainings(lambda _, record: record.generation < 4)
    models = together(trainings, n_workers)
    assert not set(children()) - before, "no process is left"
    with FastES(toy(), n_workers=0, seed=SEEDS[1], **COMMON) as single:
        single.learn(STEPS, lambda _, record: record.generation < 4)
        assert np.array_equal(single.evaluate(5).returns, models[1].evaluate(5).returns)
    trainings.learn_on()
    assert_each_as_alone([one.result() for one in trainings.all])
    for model in models:
        model.close()
    assert not set(children()) - before


def test_a_saved_model_goes_on_as_one_that_was_trained_alone(tmp_path: Path) -> None:
    """Also where evaluations were played beside the next generations."""
    trainings = Trainings(lambda _, record: record.generation < 3)
    together(trainings, 2, **KINDS["lag 2"])
    for one in trainings.all:
        results = []
        with FastES(toy(), n_workers=0, seed=one.model.seed, **{**COMMON, **KINDS["lag 2"]}) as single:
            single.learn(STEPS, lambda _, record: record.generation < 3)
            for stopped in (one.model, single):
                stopped.save(tmp_path / "m.zip")
                with FastES.load(tmp_path / "m.zip", toy(), 0) as model:
                    told = Records(model)
                    model.learn(STEPS - model.num_timesteps, told, reset_num_timesteps=False)
                    results.append(told.result())
        assert_same(*results)


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 3])
def test_killed_workers_change_no_result(n_workers: int) -> None:
    before, killed = set(children()), set[int]()

    def kill(model: FastES, record: Record) -> None:
        workers = set(children()) - before - killed
        if record.generation % 3 == 2 and model.seed == SEEDS[0] and workers:
            killed.add(max(workers))
            os.kill(max(workers), signal.SIGKILL)

    trainings = Trainings(kill)
    with caught_warnings() as messages:
        together(trainings, n_workers)
    assert len(killed) >= 2
    assert any("results do not change" in message for message in messages)
    assert_each_as_alone([one.result() for one in trainings.all])


def test_a_worker_that_dies_in_one_seed_s_episode(tmp_path: Path) -> None:
    trainings = Trainings()
    with caught_warnings() as messages:
        together(trainings, 2, toy(kill_seeds=[env_seed(6, 2)], marker=str(tmp_path / "marker")))
    assert any("results do not change" in message for message in messages)
    assert_each_as_alone([one.result() for one in trainings.all])


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_error_in_one_seed_s_episode_costs_no_other_its_work(n_workers: int, tmp_path: Path) -> None:
    fails, before = tmp_path / "it fails", set(children())
    fails.touch()
    trainings = Trainings()
    with pytest.raises(WorkerError, match="toy fails") as caught:
        together(trainings, n_workers, toy(fail_seeds=[env_seed(6, 2)], while_exists=str(fails)))
    assert caught.value.generation == 3
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["[in the training with seed 6]"]
    assert not set(children()) - before
    assert [one.model.generation for one in trainings.all] == [len(one.records) for one in trainings.all]
    assert trainings.all[1].model.generation == 2
    fails.unlink()
    trainings.learn_on()
    assert_each_as_alone([one.result() for one in trainings.all])


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_the_models_of_trainings_that_an_error_ended_come_with_it(kind: type[BaseException], tmp_path: Path) -> None:
    def fail(model: FastES, record: Record) -> None:
        if (model.seed, record.generation) == (1, 3):
            raise kind

    with pytest.raises(kind) as caught:
        train_seeds(toy(), 2, n_workers=0, callback=lambda _: fail, **COMMON)
    first, second = caught.value.models  # type: ignore[attr-defined]
    assert (first.seed, second.seed, second.generation) == (0, 1, 3)
    second.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model:
        assert model.generation == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda other: other.learn(100), "for the same model or one that trains with it"),
        (lambda other: other.set_env(toy()), "while the model trains with others on one pool"),
    ],
)
def test_a_callback_cannot_train_the_model_of_another_seed(call: Any, said: str) -> None:
    seen: dict[int, FastES] = {}

    def train_the_other(model: FastES, record: Record) -> None:
        seen[model.seed] = model
        if record.generation == 2 and len(seen) == 2:
            call(seen[1 - model.seed])

    with pytest.raises(FastESError, match=said):
        train_seeds(toy(), 2, n_workers=0, callback=lambda _: train_the_other, **COMMON)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_interrupt_leaves_every_model_whole(n_workers: int) -> None:
    def interrupt(model: FastES, record: Record) -> None:
        if (model.seed, record.generation) == (6, 4) and not interrupted:
            interrupted.append(model)
            raise KeyboardInterrupt

    interrupted: list[FastES] = []
    trainings, ended = Trainings(interrupt), list[int]()
    Records.on_end = lambda self, model: ended.append(model.seed)  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            together(trainings, n_workers)
    finally:
        del Records.on_end
    assert sorted(ended) == list(SEEDS), "each is told that it ends"
    trainings.learn_on()
    assert_each_as_alone([one.result() for one in trainings.all])


def test_too_little_memory_is_told_of_with_all_tables(monkeypatch: pytest.MonkeyPatch, no_process: None) -> None:
    monkeypatch.setattr("fastes.system.limits.available_memory", lambda: 10**9)
    settings = {**COMMON, "noise_table_size": 100_000_000}
    with pytest.raises(OSError, match=r"3 noise tables of 100,000,000 values.*1 GB available"):
        train_seeds(toy(), 3, total_timesteps=100, n_workers=2, **settings)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "error", "said"),
    [
        (0, ValueError, f"seeds = 0 is out of range: expected an int from 1 to {MOST_SEEDS}"),
        (-2, ValueError, "seeds = -2 is out of range"),
        (MOST_SEEDS + 1, ValueError, "is out of range"),
        ([], ValueError, "expected 1 to"),
        ([3, 4, 3], ValueError, r"\[3, 4, 3\]: expected 1 to 1000 different ones"),
        ([3, -1], ValueError, "seed = -1 is out of range"),
        ([3, "4"], TypeError, "seed = '4' is a str"),
        ([True], TypeError, "seed = True is a bool"),
        ("5", TypeError, "seeds = '5': expected how many, such as 5, or the seeds"),
        (True, TypeError, "seeds = True: expected how many"),
        (2.0, TypeError, "seeds = 2.0: expected how many"),
        (None, TypeError, "seeds = None: expected how many"),
    ],
)
def test_seeds_that_mean_nothing(seeds: Any, error: type[Exception], said: str, no_process: None) -> None:
    with pytest.raises(error, match=said):
        train_seeds(toy(), seeds, n_workers=2, **COMMON)


def test_one_seed_and_a_range_are_seeds() -> None:
    for seeds, expected in ((1, [0]), (range(7, 9), [7, 8]), (np.array([4, 2]), [4, 2]), (iter([3]), [3])):
        models = train_seeds(toy(), seeds, total_timesteps=1, n_workers=0, **COMMON)
        assert [model.seed for model in models] == expected


def test_what_belongs_to_one_training_is_refused(no_process: None) -> None:
    with pytest.raises(TypeError, match=r"seed = 3 is of one training: .* such as seeds=range\(5, 10\)"):
        train_seeds(toy(), 3, seed=3, n_workers=2, **COMMON)
    env = gymnasium.vector.SyncVectorEnv([toy()] * 2)
    with pytest.raises(ValueError, match="cannot be shared by several trainings: pass the environment's id"):
        train_seeds(env, 3, **COMMON)
    env.close()


# --- the command -----------------------------------------------------------------------------------------------------


def _command(root: Path, *flags: str, env: str = "Toy-v0", workers: str = "0") -> list[str]:
    return ["train", env, *flags, "--workers", workers, "--runs", str(root), "--quiet", *SMALL]


def _assert_same_runs(first: Path, second: Path) -> None:
    for name in ("checkpoint.zip", "best.zip"):
        assert_same_state(read_checkpoint(first / name), read_checkpoint(second / name))
    assert _rows(first) == _rows(second)


def _rows(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]


@pytest.mark.parametrize(
    ("workers", "flags"),
    [("0", []), ("2", ["--trials", "2", "--trials-fraction", "0.6", "--eval-lag", "2", "--eval-episodes", "2"])],
)
def test_run_folders_hold_what_those_of_single_trainings_hold(workers: str, flags: list[str], tmp_path: Path) -> None:
    flags = ["--total-timesteps", "900", "--monitor-csv", *flags]
    assert main(_command(tmp_path / "all", "--seeds", "3", "--seed", "4", *flags, workers=workers)) == 0
    for number, seed in enumerate((4, 5, 6), start=1):
        assert main(_command(tmp_path / "one", "--seed", str(seed), *flags)) == 0
        run, single = (tmp_path / root / "Toy-v0" / str(number) for root in ("all", "one"))
        _assert_same_runs(run, single)
        config = tomllib.loads((run / "config.toml").read_text())
        assert (config["run"]["seed"], config["run"]["finished"]) == (seed, True)
        assert config["settings"] == tomllib.loads((single / "config.toml").read_text())["settings"]
        names = {path.name for path in single.iterdir()}
        assert {path.name for path in run.iterdir()} == names >= {"learning_curve.png", "monitor.csv"}
    assert (tmp_path / "all" / "Toy-v0" / "runs-1-3.png").read_bytes().startswith(b"\x89PNG")


def test_it_ends_with_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--total-timesteps", "600", "--target-return", "6", "--target-episodes", "6", "--population-size", "8"]
    assert main([*_command(tmp_path, "--seeds", "3", "--env-kwargs", "length=12"), *flags]) == 0
    said = capsys.readouterr().out
    place = tmp_path / "Toy-v0"
    assert f"0 workers, seeds 0 to 2, run folders {place}/1 to 3\n" in said
    table = [line.split() for line in said.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    assert [row[0] for row in table] == ["0", "1", "2"]
    assert {row[-2] for row in table} == {"yes", "no"}, "solved ones have other episodes than those of their proof, too"
    returns = []
    for number, (_, timesteps, mean, sign, std, worst, _, folder) in enumerate(table, start=1):
        assert folder == str(place / str(number))
        assert timesteps == _rows(Path(folder))[-1]["timesteps"]
        with FastES.load(place / str(number) / "best.zip", n_workers=0) as model:
            kept = model.evaluate(6)
            assert (mean, sign, std, worst) == (f"{kept.mean:.1f}", "+-", f"{kept.std:.1f}", f"{kept.returns.min():.1f}")
        returns.append(float(mean))
    assert f"median return {np.median(returns):.1f}\n" in said
    assert re.search(rf"worst return {min(returns):.1f} \(seed {returns.index(min(returns))}\)\n", said)
    assert f"curves: {place}/runs-1-3.png\n" in said
    assert f"fastes play {place}/{returns.index(max(returns)) + 1} --video Toy-v0.mp4" in said


def test_a_target_that_no_evaluation_has_confirmed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--total-timesteps", "600", "--target-return", "0.9", "--target-episodes", "6", "--eval-every", "1000"]
    assert main([*_command(tmp_path, "--seeds", "2", "--env-kwargs", "length=12"), *flags]) == 0
    said = capsys.readouterr().out
    why = "target reached here, but the run is not solved: no evaluation in training was confirmed by 6 episodes on fresh seeds"
    table = [line.split() for line in said.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    reached = [f"seed {row[0]}" for row in table if row[-2] == "no" and float(row[2]) > 0.9]
    assert reached
    assert f"{', '.join(reached)}: {why}\n" in said


def test_the_same_seeds_again_leave_the_first_picture_as_it_is(tmp_path: Path) -> None:
    pictures = []
    for _ in range(2):
        assert main(_command(tmp_path, "--seeds", "2", "--total-timesteps", "100")) == 0
        pictures.append({path.name: path.stat().st_mtime_ns for path in (tmp_path / "Toy-v0").glob("*.png")})
    assert list(pictures[0]) == ["runs-1-2.png"]
    assert pictures[1].keys() == {"runs-1-2.png", "runs-3-4.png"}
    assert pictures[1]["runs-1-2.png"] == pictures[0]["runs-1-2.png"]


def test_best_holds_the_better_parameters_of_each_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--total-timesteps", "400", "--target-episodes", "6", "--learning-rate", "0.1", "--eval-lag", "0"]
    assert main(_command(tmp_path, "--seeds", "6", *flags)) == 0
    said, better, same = capsys.readouterr().out, 0, 0
    for number in range(1, 7):
        means = []
        for name in ("best.zip", "checkpoint.zip"):
            with FastES.load(tmp_path / "Toy-v0" / str(number) / name, n_workers=0) as model:
                means.append(model.evaluate(6).mean)
        assert re.search(rf" {number - 1} +\d+ +{means[0]:.1f} \+- \d+\.\d +-?\d+\.\d +-  ", said), said
        assert means[0] >= means[1]
        better, same = better + (means[0] > means[1]), same + (means[0] == means[1])
    assert better
    assert same


def test_a_seed_s_run_is_taken_by_the_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_command(tmp_path / "all", "--seeds", "2", "--total-timesteps", "400")) == 0
    assert main(_command(tmp_path / "one", "--seed", "1", "--total-timesteps", "400")) == 0
    run, single = (tmp_path / root / "Toy-v0" / number for root, number in (("all", "2"), ("one", "1")))
    for folder in (run, single):
        more = ["--total-timesteps", "800", "--workers", "0", "--quiet"]
        assert main(["train", "--resume", str(folder), *more]) == 0
    _assert_same_runs(run, single)
    assert main(["eval", str(run), "--episodes", "3", "--workers", "0"]) == 0
    assert main(["play", str(run)]) == 0
    assert main(["plot", str(run), str(single), "--out", str(tmp_path / "both.png")]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--seeds", "2"]) == 2
    assert "--seeds belongs to new runs: resume each run on its own" in capsys.readouterr().err


def test_a_config_gives_its_settings_to_all_seeds(tmp_path: Path) -> None:
    assert main(_command(tmp_path / "one", "--seed", "8", "--total-timesteps", "300", "--sigma", "0.3")) == 0
    config = tmp_path / "one" / "Toy-v0" / "1"
    command = ["train", "--config", str(config), "--seeds", "2", "--seed", "7", "--workers", "0", "--quiet"]
    assert main([*command, "--runs", str(tmp_path / "all")]) == 0
    _assert_same_runs(config, tmp_path / "all" / "Toy-v0" / "2")


@pytest.mark.parametrize(
    ("flags", "said"), [(["--seeds", "0"], "--seeds = 0 is out of range"), (["--seeds", "-3"], "--seeds = -3")]
)
def test_a_number_of_seeds_that_cannot_be(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_command(tmp_path, *flags)) == 2
    assert said in capsys.readouterr().err
    assert main(_command(tmp_path, "--seeds", "2", "--seed", "-1")) == 2
    assert "seed = -1 is out of range" in capsys.readouterr().err
    for text in ("2.5", "five", ""):
        with pytest.raises(SystemExit, match="2"):
            main(_command(tmp_path, "--seeds", text))
        assert f"argument --seeds: invalid int value: '{text}'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_one_seed_saves_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", preset="default", n_workers=0, seed=1, population_size=4, policy_kwargs={"net_arch": [4]}) as model:
        model.learn(1)
        bad = int(model.strategy.ask().env_seed[0, 0])
    flags = ["--seeds", "3", "--env-kwargs", f"fail_seeds=[{bad}]"]
    assert main(_command(tmp_path, *flags, "--total-timesteps", "300")) == 1
    error, place = capsys.readouterr().err, tmp_path / "Toy-v0"
    assert "training failed with seed 1, in its generation 2\n" in error
    assert "all 3 runs are saved as they were before; to continue:\n" in error
    assert f"fastes replay {place}/2 --generation 2 --job " in error
    assert "toy fails" in error
    for number in (1, 2, 3):
        assert f"  seed {number - 1}: fastes train --resume {place}/{number}\n" in error
        saved = read_checkpoint(place / str(number) / "checkpoint.zip").data["trainings"][0]["generation"]
        assert saved == len(_rows(place / str(number))) >= 1
    for number in (1, 3):
        assert main(["train", "--resume", str(place / str(number)), "--workers", "0", "--quiet"]) == 0
        seed = ["--seed", str(number - 1), "--total-timesteps", "300"]
        assert main(_command(tmp_path / f"one-{number}", *seed, *flags[2:])) == 0
        _assert_same_runs(place / str(number), tmp_path / f"one-{number}" / "Toy-v0" / "1")


def test_a_folder_that_cannot_be_written_keeps_no_other_from_being_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, save = [], RunFolder.save

    def failing(self: RunFolder, model: FastES) -> None:
        if model.seed == 1 and model.generation:
            raise OSError(28, "No space left on device")
        save(self, model)
        saved.append(model.seed)

    monkeypatch.setattr(RunFolder, "save", failing)
    monkeypatch.chdir(tmp_path)
    with caught_warnings() as messages:
        assert main(_command(tmp_path / "runs", "--seeds", "3", "--total-timesteps", "200")) == 1
    assert saved == [0, 1, 2, *sorted(set(saved[3:]))]
    assert {0, 2} == set(saved[3:])
    assert any("the checkpoint is in" in message for message in messages)
    assert list(tmp_path.glob("fastes-Toy-v0-2-checkpoint.zip"))


def _started(root: Path, *flags: str) -> Any:
    command = ["train", *flags, "--workers", "2", "--quiet", *SMALL]
    code = f"import sys, envs_for_tests; from fastes.cli.main import main; sys.argv[1:] = {command!r}; sys.exit(main())"
    return started_script(code, root)


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_all_and_saves_all(number: signal.Signals, status: int, tmp_path: Path) -> None:
    place = tmp_path / "runs" / "Slow-v0"
    folders = [place / str(n) for n in (1, 2, 3)]
    budget = ["--total-timesteps", "20000", "--checkpoint-seconds", "1000"]
    with _started(tmp_path, "Slow-v0", "--seeds", "3", *budget) as process:
        begun = lambda: all((run / "progress.csv").exists() and len(_rows(run)) >= 2 for run in folders)  # noqa: E731
        wait_until(begun, "two generations are done")
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert (place / "runs-1-3.png").exists()
    for seed, run in enumerate(folders):
        assert f"  seed {seed}: fastes train --resume {run.relative_to(tmp_path)}\n" in out + err
        (training,) = read_checkpoint(run / "checkpoint.zip").data["trainings"]
        assert training["generation"] == len(_rows(run)) >= 2
        assert training["counters"]["num_timesteps"] < 20000
        assert (run / "learning_curve.png").exists()
        assert tomllib.loads((run / "config.toml").read_text())["run"]["finished"] is False
    more = str(training["counters"]["num_timesteps"] + 100)
    resume = ["train", "--resume", str(folders[2]), "--workers", "0", "--quiet", "--total-timesteps", more]
    script = f"import envs_for_tests; from fastes.cli.main import main; assert main({resume!r}) == 0"
    assert run_script(script, tmp_path).returncode == 0
    assert len(_rows(folders[2])) > training["generation"]


def test_seeds_that_are_solved_are_not_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the first one is, and the others end their generations."""
    solved, on_end = list[int](), RunFolder.on_end

    def interrupting(self: RunFolder, model: Any) -> None:
        on_end(self, model)
        if model.solved:
            solved.append(model.seed)
            if len(solved) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunFolder, "on_end", interrupting)
    target = ["--target-return", "7", "--target-episodes", "3"]  # some 1,000 steps
    assert main([*_command(tmp_path, "--seeds", "3", "--total-timesteps", "20000"), *target]) == 130
    said, place = capsys.readouterr().out, tmp_path / "Toy-v0"
    assert 0 < len(solved) < 3
    left = [f"  seed {seed}: fastes train --resume {place}/{seed + 1}\n" for seed in range(3) if seed not in solved]
    named = ", ".join(f"seed {seed}" for seed in sorted(solved))
    assert f"stopped by Ctrl-C; solved: {named}; to continue:\n{''.join(left)}" in said
    assert said.count("--resume") == len(left)
    assert main(["runs", str(place)]) == 0
    shown = capsys.readouterr().out
    assert [shown.count(f"  {word}  ") for word in ("solved", "stopped")] == [len(solved), len(left)]
    noted = [tomllib.loads((place / str(seed + 1) / "config.toml").read_text())["run"].get("ended") for seed in range(3)]
    assert noted == [None if seed in solved else "stopped by Ctrl-C" for seed in range(3)]


def test_a_solved_seed_has_no_share_in_the_failure_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved, failed = list[int](), list[int]()
    on_end, on_generation = RunFolder.on_end, RunFolder.on_generation

    def note(self: RunFolder, model: Any) -> None:
        on_end(self, model)
        solved.extend([model.seed] if model.solved else [])

    def fail(self: RunFolder, model: Any, record: Record) -> None:
        on_generation(self, model, record)
        if solved and model.seed not in solved:
            failed.append(model.seed)
            raise RuntimeError("of the user")

    monkeypatch.setattr(RunFolder, "on_end", note)
    monkeypatch.setattr(RunFolder, "on_generation", fail)
    target = ["--target-return", "7", "--target-episodes", "3"]
    with pytest.raises(RuntimeError, match="of the user"):
        main([*_command(tmp_path, "--seeds", "3", "--total-timesteps", "20000"), *target])
    noted = [tomllib.loads((tmp_path / "Toy-v0" / name / "config.toml").read_text())["run"].get("ended") for name in "123"]
    expected = dict.fromkeys(range(3), "stopped when another seed failed")
    expected |= dict.fromkeys(failed, "failed: RuntimeError: of the user")
    assert noted == [None if seed in solved else expected[seed] for seed in range(3)]
    assert len(solved) == 1


def test_two_interrupts_stop_at_once(tmp_path: Path) -> None:
    with FastES("Toy-v0", preset="default", n_workers=0, seed=1, population_size=4, policy_kwargs={"net_arch": [4]}) as model:
        model.learn(1)
        hangs = int(model.strategy.ask().env_seed[1, 0])
    marker = tmp_path / "marker"
    habits = ["--env-kwargs", f"hang_seeds=[{hangs}]", f"marker={marker}"]
    with _started(tmp_path, "Toy-v0", "--seeds", "2", "--checkpoint-seconds", "0", *habits) as process:
        err = interrupt_twice(process, marker)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "each run's last checkpoint is whole; to continue:\n  seed 0: fastes train --resume runs/Toy-v0/1  (" in err
    for number in ("1", "2"):
        with FastES.load(tmp_path / "runs" / "Toy-v0" / number / "checkpoint.zip", n_workers=0) as model:
            assert model.generation >= 1
            assert re.search(rf"Toy-v0/{number}  \({model.num_timesteps} of \d+ timesteps\)\n", err)


# --- the bar ---------------------------------------------------------------------------------------------------------


def test_one_bar_adds_up_all_seeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = [word for word in _command(tmp_path, "--seeds", "3", "--total-timesteps", "400") if word != "--quiet"]
    assert main(command) == 0
    captured = capsys.readouterr()
    made = sum(int(_rows(tmp_path / "Toy-v0" / str(n))[-1]["timesteps"]) for n in (1, 2, 3))
    (line,) = captured.err.splitlines()
    notes = r"median eval -?\d+\.\d, 3 of 3 ended, best -?\d+\.\d, median mean -?\d+\.\d, util \d+%"
    assert re.fullmatch(rf"100% {made / 1000:.2f}k steps \[.*, {notes}\]", line), line
    assert "ret mean" not in captured.out


def test_a_seed_that_ends_early_leaves_less_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    bar, said = SeedsBar(3, line_seconds=0.0), list[str]()
    trainings = Trainings()

    def callbacks(model: FastES) -> list[Any]:
        return [trainings(model), bar, lambda *_: said.append(bar.progress().phase)]

    settings = {**COMMON, **KINDS["solved"]}
    train_seeds(toy(), SEEDS, total_timesteps=STEPS, callback=callbacks, n_workers=0, **settings)
    assert said[0].endswith(f" of {short(3 * STEPS)} steps")
    made = sum(one.model.num_timesteps for one in trainings.all)
    assert made < 3 * STEPS
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"100% {short(made)} steps ")


def test_a_bar_of_a_training_that_is_stopped_stays_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    bar = SeedsBar(2, line_seconds=100.0)
    train_seeds(toy(), 2, total_timesteps=MANY, callback=lambda _: [bar, lambda *_: False], n_workers=0, **COMMON)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r" *0% \d+ of 2\.00G steps ", line)
    assert "0 of 2 ended" in line


def test_python_has_the_bar_too(capsys: pytest.CaptureFixture[str]) -> None:
    trainings = Trainings()
    train_seeds(toy(), 2, total_timesteps=100, callback=trainings, progress_bar=True, n_workers=0, **COMMON)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"^100% \d+ steps \[.*, 2 of 2 ended, median mean -?\d+\.\d, util \d+%\]$", line)
    assert [len(one.records) for one in trainings.all] == [1, 1]
    train_seeds(toy(), 2, total_timesteps=100, n_workers=0, **COMMON)
    assert capsys.readouterr().err == ""
