"""Risk: a command does not do what its help says, leaves less than a run folder, or loses work on Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from processes import environment, fastes_command, interrupt_twice, run_fastes, run_script, started_script, wait_until
from training import theta_of

from fastes import FastES, Settings, __version__
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import build_parser, main
from fastes.cli.setting_flags import given_settings
from fastes.cli.stop_on_signal import StopOnSignal
from fastes.errors import WorkerError
from fastes.es.optimizers import OPTIMIZERS
from fastes.es.perturbations import draw_pairs
from fastes.policies.policy_keywords import KEYS, POLICIES
from fastes.runs.run_folder import RunFolder
from fastes.settings.foreign_names import ANSWERS, FLAG_ANSWERS
from fastes.settings.preset_loader import load_preset, tomllib
from fastes.training.evaluation import Evaluation
from fastes.training.player import Player
from fastes.training.record import Record

SMALL = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a short CartPole training with workers."""
    root = tmp_path_factory.mktemp("cli")
    schedule = ["--sigma", "0.1", "--learning-rate", "lin_0.1_0.05"]
    budget = ["--seed", "3", "--workers", "2", "--total-timesteps", "2000"]
    result = run_fastes("train", "CartPole-v1", *budget, *schedule, *SMALL, "-v", cwd=root)
    assert result.returncode == 0, result.stderr
    (root / "stdout").write_text(result.stdout)
    (root / "stderr").write_text(result.stderr)
    return root / "runs" / "CartPole-v1" / "1"


def output(run: Path) -> str:
    return (run.parents[2] / "stdout").read_text()


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


# --- train -----------------------------------------------------------------------------------------------------------


def test_train_leaves_a_run_folder(run: Path) -> None:
    names = {path.name for path in run.iterdir() if not path.name.endswith(".bak")}
    told = {"progress.csv", "population.json", "config.toml", "learning_curve.png"}
    assert names == {"checkpoint.zip", "best.zip", "midway.zip", *told}
    assert (run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_progress_has_every_statistic(run: Path) -> None:
    table = rows(run)
    assert list(table[0]) == list(Record._fields)
    assert [int(row["generation"]) for row in table] == list(range(1, len(table) + 1))
    assert int(table[-1]["timesteps"]) >= 2000 > int(table[-2]["timesteps"])
    assert all(float(row["utilisation"]) <= 1.0 + 1e-6 for row in table)
    assert all(float(row["return_max"]) >= float(row["return_mean"]) >= 0.0 for row in table)
    assert float(table[0]["learning_rate"]) > float(table[-1]["learning_rate"]) >= 0.05


def test_config_holds_what_is_needed_to_repeat_the_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["run"]["env"] == "CartPole-v1"
    assert config["run"]["seed"] == 3
    assert config["run"]["n_workers"] == 2
    assert config["settings"]["sigma"] == 0.1
    assert config["settings"]["learning_rate"] == "lin_0.1_0.05"
    assert config["settings"]["policy_kwargs"] == {"net_arch": [4]}
    missing = {item.name for item in fields(Settings)} - set(config["settings"])
    assert missing == set()
    assert {"fastes", "numpy", "gymnasium", "python"} <= set(config["versions"])
    command = shlex.split(config["run"]["command"])
    assert command[:2] == ["fastes", "train"]
    monkeypatch.chdir(tmp_path)
    assert main([*command[1:], "-q"]) == 0
    first, second = (read_checkpoint(p / "checkpoint.zip") for p in (run, tmp_path / "runs" / "CartPole-v1" / "1"))
    assert first.arrays["trainings"]["0.theta"].tobytes() == second.arrays["trainings"]["0.theta"].tobytes()


def test_settings_of_a_config_make_the_same_model(run: Path) -> None:
    config = tomllib.loads((run / "config.toml").read_text())
    with FastES(config["run"]["env"], seed=config["run"]["seed"], preset="default", n_workers=0, **config["settings"]) as model:
        model.learn()
        saved = read_checkpoint(run / "checkpoint.zip")
        assert model.theta.tobytes() == saved.arrays["trainings"]["0.theta"].tobytes()


def test_train_says_what_the_policy_sees_and_that_populations_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["train", "CartPole-v1", *SMALL, "--workers", "0", "--quiet", "--total-timesteps", "50", "--runs", str(tmp_path)]
    assert main([*given, "--obs-columns", "0:2", "--generation-timesteps", "40"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "MlpPolicy of observations 0:2, " in first
    assert ", at least 4 candidates per generation, " in first
    assert main(given) == 0
    assert "MlpPolicy, " in (first := capsys.readouterr().out.splitlines()[0])
    assert ", 4 candidates per generation, " in first


def test_train_prints_statistics_and_how_to_play(run: Path) -> None:
    text = output(run)
    for word in ("ret mean", "eval", "rank", "elite", "|theta|", "|grad|", "upd ratio", "ep len", "steps/s", "util"):
        assert word in text
    assert len([line for line in text.splitlines() if re.match(r"^ *\d+ +\d+ +\d+\.\d", line)]) == len(rows(run))
    assert "runs/CartPole-v1/1" in text
    (command,) = re.findall(r"fastes play .*", text)
    assert "--video" in command


def test_quiet_prints_no_line_a_generation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--total-timesteps", "300", "--quiet", "--runs", str(tmp_path), "--seed", "0"]
    assert main(["train", "CartPole-v1", *flags, *SMALL]) == 0
    captured = capsys.readouterr()
    assert "ret mean" not in captured.out
    assert "fastes play" in captured.out
    assert captured.err == ""


def test_runs_are_numbered(tmp_path: Path) -> None:
    flags = ["--workers", "0", "--total-timesteps", "50", "--quiet", "--runs", str(tmp_path)]
    (tmp_path / "CartPole-v1").mkdir()
    (tmp_path / "CartPole-v1" / "7").mkdir()
    (tmp_path / "CartPole-v1" / "notes").mkdir()
    for _ in range(2):
        assert main(["train", "CartPole-v1", *flags, *SMALL]) == 0
    assert (tmp_path / "CartPole-v1" / "8" / "checkpoint.zip").exists()
    assert (tmp_path / "CartPole-v1" / "9" / "checkpoint.zip").exists()
    seeds = [tomllib.loads((tmp_path / "CartPole-v1" / n / "config.toml").read_text())["run"]["seed"] for n in "89"]
    assert seeds[0] != seeds[1], "a seed that was not given is drawn and recorded"


def test_env_kwargs_reach_the_environment_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--total-timesteps", "50", "--quiet", "--runs", str(tmp_path), *SMALL]
    assert main(["train", "Toy-v0", "--env-kwargs", "length=8", *flags]) == 0
    run = tmp_path / "Toy-v0" / "1"
    assert all(float(row["episode_length"]) == 8.0 for row in rows(run))
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "3", "--workers", "0"]) == 0
    assert "mean length 8.0" in capsys.readouterr().out


def test_a_solved_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--quiet", "--runs", str(tmp_path), "--target-return", "5", "--preset", "default"]
    assert main(["train", "CartPole-v1", *flags]) == 0
    saved = read_checkpoint(tmp_path / "CartPole-v1" / "1" / "best.zip")
    with FastES.load(tmp_path / "CartPole-v1" / "1" / "best.zip", n_workers=0) as model:
        others = model.evaluate(20)  # not the fresh ones, which were selected for passing
        assert model.evaluate(20, first_seed=None).mean >= 5 <= others.mean
    said = f"solved: confirmed over 20 fresh episodes (target 5); over 20 others: {others.in_words()}"
    assert said in capsys.readouterr().out.splitlines()
    assert saved.data["trainings"][0]["generation"] == 1, "the first evaluation is told with the second generation"
    with FastES("CartPole-v1", preset="default", seed=saved.data["seed"], n_workers=0) as model:
        last = read_checkpoint(tmp_path / "CartPole-v1" / "1" / "checkpoint.zip")
        for state in (saved, last):
            assert theta_of(state).tobytes() == model.theta.tobytes(), "parameters that reached the target are not moved on"


def test_a_solved_run_says_that_other_episodes_miss_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Player.evaluate

    async def worse_in_the_report(player: Player, training: Any, seeds: Any, of: Any = None) -> Evaluation:
        return await real(player, training, seeds, of) if of is not None else Evaluation(np.array([4.0]), np.array([4]), seeds)

    monkeypatch.setattr(Player, "evaluate", worse_in_the_report)
    flags = ["--workers", "0", "--quiet", "--runs", str(tmp_path), "--target-return", "5", "--target-episodes", "1"]
    assert main(["train", "CartPole-v1", *flags, "--preset", "default"]) == 0
    said = "solved: confirmed over 1 fresh episode (target 5); over 1 other: return 4.0 +- 0.0, worst 4.0, below the target"
    assert said in capsys.readouterr().out.splitlines()


def test_the_parameters_that_solved_are_the_best(tmp_path: Path) -> None:
    """Though an earlier, lucky evaluation was higher."""
    flags = ["--population-size", "8", "--net-arch", "5", "--target-return", "9", "--target-episodes", "6", "--seed", "9"]
    common = ["--preset", "default", "--workers", "0", "--quiet", "--runs", str(tmp_path), "--total-timesteps", "3000"]
    assert main(["train", "Toy-v0", *flags, *common]) == 0
    run = tmp_path / "Toy-v0" / "1"
    evaluations = [float(row["eval_return"]) for row in rows(run) if int(row["eval_generation"])]
    assert max(evaluations) > evaluations[-1] >= 9.0
    best, last = (read_checkpoint(run / name) for name in ("best.zip", "checkpoint.zip"))
    assert best.data["trainings"][0]["generation"] == len(evaluations) == len(rows(run)) - 1
    assert best.arrays["trainings"]["0.theta"].tobytes() == last.arrays["trainings"]["0.theta"].tobytes()


def test_resume_goes_on_and_keeps_the_record(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    before = len(rows(copy))
    result = run_fastes("train", "--resume", "run", "--total-timesteps", "3000", "--quiet", "--workers", "1", cwd=tmp_path)
    assert "with other settings" not in result.stdout
    assert result.returncode == 0, result.stderr
    table = rows(copy)
    assert [int(row["generation"]) for row in table] == list(range(1, len(table) + 1))
    assert len(table) > before
    rate = f"{0.05 + 0.05 * (1.0 - int(table[before - 1]['timesteps']) / 3000):.4g}"
    assert f"budget of 3000 timesteps: on with learning_rate from {rate} (lin_0.1_0.05)\n" in result.stdout
    config = tomllib.loads((copy / "config.toml").read_text())
    assert config["settings"]["total_timesteps"] == 3000
    assert config["settings"]["sigma"] == 0.1
    assert config["run"]["seed"] == 3
    assert [earlier["run"]["n_workers"] for earlier in config["earlier"]] == [2]


def test_resume_says_where_a_schedule_of_whole_numbers_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--workers", "0", "--quiet"]
    flags = ["--preset", "default", "--population-size", "8", "--generation-timesteps", "lin_100_900000", "--seed", "9"]
    assert main(["train", "Toy-v0", *flags, "--runs", str(tmp_path), "--total-timesteps", "500", *common]) == 0
    run = tmp_path / "Toy-v0" / "1"
    made = int(rows(run)[-1]["timesteps"])
    assert main(["train", "--resume", str(run), "--total-timesteps", str(made + 500), *common]) == 0
    steps = math.floor(100 + 899_900 * made / (made + 500) + 0.5)
    assert f"on with generation_timesteps from {steps} (lin_100_900000)\n" in capsys.readouterr().out


def test_resume_of_a_spent_run_says_what_to_do(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert "--total-timesteps" in error
    assert "has spent its budget of 2000 timesteps" in error
    assert main(["train", "--resume", str(run), "--total-timesteps", "1000"]) == 2
    error = capsys.readouterr().err
    assert f"has made {rows(run)[-1]['timesteps']} timesteps already" in error
    assert "of 1000)" not in error, "2004 of 1000 is no budget that was spent"


def test_a_budget_that_a_stopped_run_has_passed_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would end the run, with what its final selection chooses."""
    run = Path(shutil.copytree(run, tmp_path / "1"))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("finished = true", "finished = false"))
    before = (run / "checkpoint.zip").read_bytes()
    assert main(["train", "--resume", str(run), "--total-timesteps", "1000"]) == 2
    assert "--total-timesteps 1000 is the budget of the whole run" in capsys.readouterr().err
    assert (run / "checkpoint.zip").read_bytes() == before
    assert main(["train", "--resume", str(run), "--total-timesteps", "2000", "--quiet"]) == 0, "its own, which is spent"


def test_a_solved_run_that_is_resumed_tells_its_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--quiet", "--runs", str(tmp_path), "--target-return", "100", "--seed", "1"]
    assert main(["train", "CartPole-v1", *flags]) == 0
    first = capsys.readouterr().out
    assert re.search(r"^\d+ timesteps in \d+ generations?, \d+\.\d s$", first, re.MULTILINE), first
    run = tmp_path / "CartPole-v1" / "1"
    with pytest.warns(UserWarning, match="--target-return none"):
        assert main(["train", "--resume", str(run), "--workers", "0", "--quiet"]) == 0
    assert ", none of them since it was resumed\n" in capsys.readouterr().out
    more = int(rows(run)[-1]["timesteps"]) + 1000
    on = ["--workers", "0", "--quiet", "--target-return", "none", "--total-timesteps", str(more)]
    assert main(["train", "--resume", str(run), *on, "--sigma", "0.2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"generations, \d{4,} of them in \d+\.\d s since it was resumed\n", said)
    assert re.search(r"with other settings from here on: .*sigma = 0\.2", said)


def test_a_target_that_the_last_evaluation_reaches_is_not_called_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training ends unsolved all the same when no evaluation in it was confirmed."""

    real = Player.evaluate

    async def unconfirmed(player: Player, training: Any, seeds: Any, of: Any = None) -> Evaluation:
        if of is None:  # the report's
            return await real(player, training, seeds)
        return Evaluation(np.array([4.0]), np.array([4]), np.array([0]))

    monkeypatch.setattr(Player, "evaluate", unconfirmed)
    flags = ["--workers", "0", "--runs", str(tmp_path), "--preset", "default", "--seed", "1"]
    for target, said in (("5", "target 5 reached here, but the run is not solved"), ("600", "(target 600 not reached)")):
        assert main(["train", "CartPole-v1", *flags, "--total-timesteps", "300", "--target-return", target]) == 0
        text = capsys.readouterr().out
        assert said in text
        assert "solved: confirmed" not in text
        line = r"^not confirmed: the evaluation of \d+\.\d after \d+ steps; 1 fresh episode gives 4\.0 \(target 5\)$"
        assert bool(re.search(line, text, re.MULTILINE)) == (target == "5")
        assert text.count("not reached") == (target == "600")
        (kept,) = (line for line in text.splitlines() if f"(target {target} " in line)
        assert re.match(r"(last|best) parameters: return ", kept), "the sentence that has the number"


# --- eval, play ------------------------------------------------------------------------------------------------------


def test_eval_prints_statistics_and_seeds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "25", "--first-seed", "7", "--workers", "2"]) == 0
    text = capsys.readouterr().out
    with FastES.load(run / "best.zip", n_workers=0) as model:
        result = model.evaluate(25, first_seed=7)
    assert "25" in text
    assert text.index("env seeds") < text.index("mean ")
    assert "7 to 31" in text
    for name, value in (("mean", result.mean), ("std", result.std), ("min", min(result.returns)), ("max", max(result.returns))):
        assert f"{name} {value:.2f}" in text


def test_eval_takes_a_file_or_the_last_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in ([str(run), "--checkpoint", "last"], [str(run / "checkpoint.zip")], [str(run / "best.zip")], [str(run)]):
        assert main(["eval", *arguments, "--episodes", "3", "--workers", "0"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]


def test_play_prints_the_return_of_each_episode(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", str(run), "--episodes", "3", "--first-seed", "4"]) == 0
    text = capsys.readouterr().out
    with FastES.load(run / "best.zip", n_workers=0) as model:
        result = model.evaluate(3, first_seed=4)
    for seed, episode_return, length in zip((4, 5, 6), result.returns, result.lengths, strict=True):
        assert f"env seed {seed}: return {episode_return:.2f}, {length} steps" in text


def test_play_of_a_factory_environment_asks_for_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES(lambda: Toy(), preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.save(tmp_path / "m")
    assert main(["play", str(tmp_path / "m")]) == 2
    error = capsys.readouterr().err
    assert f"type: fastes play {tmp_path / 'm'} --env my_envs:MyEnv-v0" in error
    assert "env=" not in error, "words of Python"
    typed = ["play", str(tmp_path / "m"), "--video", "a film.mp4", "--episodes", "3", "--env-kwargs", 'a={"b": 1}']
    assert main(typed) == 2
    assert f"type: {shlex.join(['fastes', *typed])} --env my_envs:MyEnv-v0" in capsys.readouterr().err, "nothing is lost"
    assert main(["play", str(tmp_path / "m.zip"), "--env", "Toy-v0"]) == 0


def test_play_of_an_environment_that_is_not_registered_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a guess at an id that stands in the file: the command is the advice."""
    gymnasium.register("CartPole-v9", Toy)
    with FastES("CartPole-v9", preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.save(tmp_path / "m")
    del gymnasium.registry["CartPole-v9"]
    assert main(["play", str(tmp_path / "m")]) == 2
    said = "environment 'CartPole-v9' of the checkpoint is not registered here"
    assert f"{said}. Name the module that registers it, as in: fastes play" in capsys.readouterr().err
    with FastES.load(tmp_path / "m", n_workers=0) as model, pytest.raises(ValueError, match=f"{said}; import the package"):
        model.evaluate(1)


def test_an_argument_of_the_environment_needs_no_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is put in front of those that the checkpoint has."""
    with FastES(
        "Toy-v0", preset="unbiased", n_workers=0, population_size=4, seed=0, env_kwargs={"length": 8, "noisy": True}
    ) as model:
        model.save(tmp_path / "m")
    more, less = ["--env-kwargs", "at_step=2"], ["--env-kwargs", "length=12"]
    for flags, kept in (([], True), (more, True), (less, False), (["--env", "Toy-v0", *more], False), ([*more, *less], False)):
        assert main(["play", str(tmp_path / "m"), "--episodes", "1", *flags]) == 0
        assert (", 8 steps" in capsys.readouterr().out) == kept
    with FastES(lambda: Toy(), preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.save(tmp_path / "factory")
    assert main(["play", str(tmp_path / "factory"), "--env-kwargs", "length=8"]) == 2
    assert "fastes play" in capsys.readouterr().err


def test_arguments_of_an_environment_that_is_registered_when_it_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of ale-py are."""
    gymnasium.register("Late-v0", Toy)
    with FastES("Late-v0", preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.save(tmp_path / "m")
    del gymnasium.registry["Late-v0"]
    monkeypatch.setattr("fastes.cli.saved_model.register_atari", lambda env_id: gymnasium.register(env_id, Toy))
    try:
        assert main(["play", str(tmp_path / "m"), "--episodes", "1", "--env-kwargs", "length=8"]) == 0
        assert ", 8 steps" in capsys.readouterr().out
    finally:
        gymnasium.registry.pop("Late-v0", None)


def test_a_flag_that_is_typed_twice_loses_nothing(tmp_path: Path) -> None:
    flags = ["--workers", "0", "--quiet", "--total-timesteps", "50", "--runs", str(tmp_path), *SMALL]
    assert main(["train", "Toy-v0", *flags, "--env-kwargs", "length=8", "--env-kwargs", "noisy=true"]) == 0
    with FastES.load(tmp_path / "Toy-v0" / "1" / "checkpoint.zip", n_workers=0) as model:
        assert model.source.make_kwargs == {"length": 8, "noisy": True}


def test_arguments_that_a_file_may_not_name_are_to_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.source.make_kwargs["path"] = "some/file.xml"
        model.save(tmp_path / "m")
    typed = ["play", str(tmp_path / "m")]
    for flags, said in (
        ([], f"type: {shlex.join(['fastes', *typed])} --env Toy-v0 --env-kwargs KEY=VALUE"),
        (["--env", "Toy-v0"], f"type: {shlex.join(['fastes', *typed])} --env Toy-v0 --env-kwargs KEY=VALUE"),
        (["--env-kwargs", "length=8"], "add --env Toy-v0, and all of them to --env-kwargs"),
    ):
        assert main([*typed, *flags]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "env=" not in error, "words of Python"
    assert main([*typed, "--env", "Toy-v0", "--env-kwargs", "length=8"]) == 0


# --- help and flags --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["play"]])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    assert "usage: fastes" in capsys.readouterr().out


def test_help_opens_with_what_matters_and_help_all_has_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as stop:
            main(["train", flag])
        assert stop.value.code == 0
        shown[flag] = capsys.readouterr().out
    short, full = (set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)) for text in shown.values())
    assert 10 <= len(short) <= 19
    main_flags = (
        "--seed",
        "--seeds",
        "--workers",
        "--total-timesteps",
        "--max-minutes",
        "--target-return",
        "--preset",
        "--config",
        "--resume",
        "--policy",
    )
    assert short >= {*main_flags, "--population-size", "--sigma", "--learning-rate", "--quiet", "--help-all"}
    assert len(shown["--help"].splitlines()) < 50
    assert full >= short | {"--" + item.name.replace("_", "-") for item in fields(Settings) if item.name != "policy_kwargs"}
    for choices in (
        f"{{{','.join(OPTIMIZERS)}}}",
        "{none,mean,share,grow}",
        f"{{{','.join(POLICIES)}}}",
        "{clip,squash,bins}",
        "{stop,penalise}",
    ):
        assert choices in shown["--help-all"].replace("\n", ""), choices


def _without_dashes(text: str) -> str:
    return text.replace("--", "").replace("-", "_").replace("n_workers", "workers")


NO_FLAGS = ("population", "activation")  # argparse takes them for the beginning of a flag
NO_FLAGS += (*KEYS, "seeds", "population_scale", "max_minutes", "workers")  # flags of their own
ANSWERED = sorted(name for name in {*ANSWERS, *FLAG_ANSWERS} if not name.startswith("_") and name not in NO_FLAGS)


@pytest.mark.parametrize("name", ANSWERED)
def test_a_flag_of_stable_baselines3_is_answered_as_its_setting(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "CartPole-v1", "--" + name.replace("_", "-"), "1"])
    text = FLAG_ANSWERS.get(name) or ANSWERS[name]
    said = capsys.readouterr().err
    assert _without_dashes(text) in _without_dashes(said)
    assert not re.search(r"\b(population_size|top_fraction|learning_rate|total_timesteps|n_workers|it is sigma)\b", said)


@pytest.mark.parametrize("given", [["--env", "CartPole-v1"], ["--env=CartPole-v1"], ["--algo", "ppo", "--env", "CartPole-v1"]])
def test_the_environment_as_a_flag_is_answered(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """RL Zoo has it so; argparse would take it for --env-kwargs."""
    with pytest.raises(SystemExit, match="2"):
        main(["train", *given])
    answer = r"--env(: | \()the environment stands without a flag, as in fastes train CartPole-v1"
    assert re.search(answer, capsys.readouterr().err)


def test_a_command_names_no_flag_that_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["eval", str(tmp_path), "--verbose", "1"])
    assert "--quiet" not in capsys.readouterr().err


def test_a_mistyped_flag_is_met_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train", "CartPole-v1", "--sigam", "0.1"])
    said = capsys.readouterr().err
    assert said.startswith("fastes train: error: unrecognized arguments: --sigam 0.1; did you mean '--sigma'?")
    assert said.count("\n") == 1, "the usage has a screenful of flags"
    with pytest.raises(SystemExit, match="2"):
        main(["train", "CartPole-v1", "--n-delta", "8"])
    assert "--n-delta 8: --population-size is twice that here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("train CartPole-v1 --n_directions 8", "--n_directions 8: --population-size is twice that here ("),
        ("train CartPole-v1 --learning_rate 0.1", "--learning_rate 0.1; did you mean '--learning-rate'? ("),
        ("train CartPole-v1 --sample_actions", "--sample_actions; did you mean '--sample-actions'? ("),
        ("train CartPole-v1 --foo 3", "--foo 3 ("),
        ("train CartPole-v1 --foo 3 --lr 0.1 --sigam 1", "--foo 3, --lr 0.1 (it is --learning-rate here), --sigam 1 (did you"),
        ("train --env CartPole-v1 --gamma 0.9", "--env (the environment stands without a flag, as in"),
        ("train --env=CartPole-v1 --gamma 0.9", "--gamma 0.9 (it has no counterpart in ES: leave it out) ("),
        ("train CartPole-v1 --max-hours 3", "--max-hours 3: --max-minutes ends a training by time"),
        ("play x --max-minutes 3", "--max-minutes 3: it is of fastes train ("),
        ("eval x --n-delta 3", "--n-delta 3: it is of fastes train ("),
        ("eval x --lr 3", "--lr 3: it is of fastes train ("),
        ("eval x --seed 3", "--seed 3; did you mean '--first-seed'? ("),
        ("train CartPole-v1 --wrapper a:B c:D", "c:D: --wrapper takes one, and comes again for the next"),
        ("trian CartPole-v1", "did you mean 'train'?"),
    ],
)
def test_each_unknown_flag_has_its_answer(command: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(command.split())
    said = capsys.readouterr().err
    assert told in said
    assert "sample-actions" not in said or "sample_actions" in command


def test_a_preset_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--runs", str(tmp_path), "--workers", "0", "--total-timesteps", "8", "--learning-rate", "0.1"]
    for env, told in (("Pendulum-v1", False), ("CartPole-v0", True)):
        assert main(["train", env, *command, "--population-size", "2", "--max-episode-steps", "4"]) == 0
        assert ("CartPole-v0 has no preset (CartPole-v1 has one)" in capsys.readouterr().out) == told
    assert main(["train", "CartPole-v0", "--preset", "CartPole-v1", *command]) == 0
    assert "has no preset" not in capsys.readouterr().out


def test_an_environment_without_a_preset_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "Toy-v0", "--runs", str(tmp_path), "--workers", "0", "--total-timesteps", "8", "--population-size", "4"]
    race = "Toy-v0 has no preset: up to"
    for flags, told in (
        ([], race),
        (["--policy", "MlpPolicy"], race),
        (["--preset", "default"], "preset 'default': MlpPolicy"),
        (["--trials", "1"], "preset 'linear': LinearPolicy"),
    ):
        assert main([*command, *flags]) == 0
        assert told in capsys.readouterr().out
    FastES("Toy-v0", n_workers=0, verbose=1).close()
    assert capsys.readouterr().out == "", "nothing is trained yet"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert __version__ in capsys.readouterr().out


def _train_parser() -> argparse.ArgumentParser:
    (commands,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    parser: argparse.ArgumentParser = commands.choices["train"]
    return parser


POLICY_KWARGS = tuple(key.name for key in KEYS.values() if not key.description.flag)


def test_every_setting_has_a_flag_with_its_default() -> None:
    actions = {action.dest: action for action in _train_parser()._actions}
    names = [item.name for item in fields(Settings) if item.name != "policy_kwargs"]
    for name in (*names, *POLICY_KWARGS):
        action = actions[name]
        assert "--" + name.replace("_", "-") in action.option_strings
        assert action.help
        assert "(default:" in action.help
        assert action.default is None, "a flag that is not given leaves the preset alone"


FLAGS = {  # name -> value
    "total-timesteps": "1e2",
    "target-return": "12.5",
    "policy": "MlpLstmPolicy",
    "population-size": "6",
    "sigma": "lin_0.2_0.1",
    "learning-rate": "0.5",
    "optimizer": "sgd",
    "momentum": "0.5",
    "weight-decay": "0.125",
    "shaping": "standardized",
    "top-fraction": "0.5",
    "noise-table-size": "5000",
    "episodes-per-candidate": "2",
    "eval-episodes": "3",
    "action-noise": "0.25",
    "max-episode-steps": "30",
    "episode-cap": "mean",
    "obs-clip": "3",
    "activation-fn": "relu",
    "action-mapping": "squash",
    "cell": "gru",
    "lstm-hidden-size": "4",
    "n-lstm-layers": "2",
}


def test_flags_reach_the_settings(tmp_path: Path) -> None:
    flags = [part for name, value in FLAGS.items() for part in ("--" + name, value)]
    flags += ["--net-arch", "3", "2", "--no-use-bias", "--no-normalize-obs"]
    command = ["train", "Toy-v0", *flags, "--workers", "0", "--quiet", "--runs", str(tmp_path), "--seed", "2"]
    assert main(command) == 0
    config = tomllib.loads((tmp_path / "Toy-v0" / "1" / "config.toml").read_text())["settings"]
    for name, value in FLAGS.items():
        if name.replace("-", "_") in POLICY_KWARGS:
            continue
        expected = config[name.replace("-", "_")]
        assert str(expected) == value or float(expected) == float(value), name
    assert config["policy_kwargs"] == {
        "net_arch": [3, 2],
        "activation_fn": "relu",
        "use_bias": False,
        "action_mapping": "squash",
        "cell": "gru",
        "lstm_hidden_size": 4,
        "n_lstm_layers": 2,
    }
    assert config["normalize_obs"] is False


def test_the_flags_of_images_reach_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--features-dim", "5", "--batch-norm", "none", "--no-normalize-images"]
    expected = {"features_extractor_kwargs": {"features_dim": 5}, "batch_norm": "none", "normalize_images": False}
    for cnn, meant in (("[[4, 4, 2]]", [[4, 4, 2]]), ("nature", "nature")):
        arguments = build_parser().parse_args(["train", "Toy-v0", "--cnn", cnn, *flags])
        assert given_settings(arguments)["policy_kwargs"] == {"cnn": meant, **expected}
    with pytest.raises(SystemExit):
        build_parser().parse_args(["train", "Toy-v0", "--cnn", "[[4, 4,"])
    assert "is not JSON" in capsys.readouterr().err


def test_the_flag_of_sampled_actions_reaches_the_settings(tmp_path: Path) -> None:
    command = [
        "train",
        "CartPole-v1",
        "--total-timesteps",
        "1e2",
        "--sample-actions",
        "--workers",
        "0",
        "--runs",
        str(tmp_path),
    ]
    assert main(command) == 0
    assert tomllib.loads((tmp_path / "CartPole-v1" / "1" / "config.toml").read_text())["settings"]["sample_actions"] is True


def test_a_preset_is_taken_by_name(tmp_path: Path) -> None:
    """Another environment's, with a schedule of its own on top."""
    flags = ["--preset", "CartPole-v1", "--learning-rate", "lin_0.05", "--total-timesteps", "1", "--seed", "2", "--quiet"]
    assert main(["train", "Toy-v0", *flags, "--workers", "0", "--runs", str(tmp_path)]) == 0
    config = tomllib.loads((tmp_path / "Toy-v0" / "1" / "config.toml").read_text())["settings"]
    expected = {**load_preset("CartPole-v1"), "learning_rate": "lin_0.05", "total_timesteps": 1}
    assert {name: config[name] for name in expected} == expected
    assert config["population_size"] != Settings().population_size


@pytest.mark.parametrize(("schedule", "last"), [("lin_0.1", 0.0), ("lin_0.1_0.05", 0.05), ("exp_0.1_0.02", 0.02)])
def test_a_learning_rate_falls_over_the_budget(schedule: str, last: float, tmp_path: Path) -> None:
    flags = ["--learning-rate", schedule, "--total-timesteps", "600", "--seed", "2", "--quiet", *SMALL]
    assert main(["train", "Toy-v0", *flags, "--workers", "0", "--runs", str(tmp_path)]) == 0
    before = 0
    for row in rows(tmp_path / "Toy-v0" / "1"):
        remaining = 1.0 - before / 600
        expected = last + (0.1 - last) * remaining if schedule.startswith("lin") else last * (0.1 / last) ** remaining
        assert float(row["learning_rate"]) == pytest.approx(expected, rel=1e-6)
        before = int(row["timesteps"])
    assert before >= 600


@pytest.mark.parametrize("seconds", ["0", "1000"])
def test_every_generation_is_saved_when_asked(seconds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a whole checkpoint in the run folder, before the next generation begins."""
    saved, whole = [], RunFolder.on_generation

    def on_generation(self: RunFolder, model: FastES, record: Record) -> None:
        whole(self, model, record)
        saved.append((record.generation, read_checkpoint(self.path / "checkpoint.zip").data["trainings"][0]["generation"]))

    monkeypatch.setattr(RunFolder, "on_generation", on_generation)
    flags = ["--checkpoint-seconds", seconds, "--total-timesteps", "600", "--seed", "2", "--quiet", *SMALL]
    assert main(["train", "Toy-v0", *flags, "--workers", "0", "--runs", str(tmp_path)]) == 0
    assert len(saved) > 5
    assert saved == [(n, n if seconds == "0" else 0) for n in range(1, len(saved) + 1)]


def test_a_warning_is_a_line_of_its_own(tmp_path: Path) -> None:
    """Of FastES: without the place in its code. Others keep theirs."""
    (tmp_path / "loud.py").write_text(
        "import warnings, gymnasium, envs_for_tests\n"
        "def make(**kwargs):\n    warnings.warn('from afar')\n    return envs_for_tests.Toy()\n"
        "gymnasium.register('Loud-v0', entry_point='loud:make')\n"
    )
    flags = ["--preset", "CartPole-v1", "--total-timesteps", "1", "--seed", "2", "--quiet", "--workers", "0"]
    result = run_fastes("train", "loud:Loud-v0", *flags, "--population-size", "64", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "population_size" in line]
    assert line.startswith("fastes: warning: population_size = 64 with learning_rate = ")
    assert "UserWarning: population_size" not in result.stderr
    assert "warnings.warn(" in result.stderr, "loud.py's own"
    assert "loud.py:3: UserWarning: from afar" in result.stderr
    rate = load_preset("CartPole-v1")["learning_rate"]
    result = run_fastes("train", "loud:Loud-v0", *flags, "--population-size", "64", "--learning-rate", str(rate), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "population_size" not in result.stderr


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def _training(root: Path, *flags: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """`fastes train` with the environments of these tests."""
    command = ["train", *flags, "--workers", "2", "--seed", "1", "--quiet", *SMALL]
    code = f"import sys, envs_for_tests; from fastes.cli.main import main; sys.argv[1:] = {command!r}; sys.exit(main())"
    return started_script(code, root)


@pytest.mark.parametrize("to", ["parent", "group"])
def test_one_interrupt_ends_after_the_generation_and_saves(to: str, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to the whole group: workers have to ignore it."""
    run = tmp_path / "runs" / "Slow-v0" / "1"
    with _training(tmp_path, "Slow-v0") as process:
        wait_until(lambda: (run / "progress.csv").exists() and len(rows(run)) >= 2, "two generations are done")
        if to == "group":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "died" not in err
    assert f"fastes train --resume {run.relative_to(tmp_path)}" in out + err
    table = rows(run)
    state = read_checkpoint(run / "checkpoint.zip")
    assert state.data["trainings"][0]["generation"] == len(table)
    assert state.data["trainings"][0]["counters"]["num_timesteps"] == int(table[-1]["timesteps"])
    assert (run / "learning_curve.png").exists()


def _interrupt_twice(root: Path, *flags: str) -> tuple[int, str]:
    """Two Ctrl-C in a generation 3 that never ends: exit status and stderr."""
    marker, seed = root / "marker", int(draw_pairs(1, 2, 2, 1, 1, 2)[1][1, 0])
    with _training(root, "Toy-v0", *flags, "--env-kwargs", f"hang_seeds=[{seed}]", f"marker={marker}") as process:
        err = interrupt_twice(process, marker)
    return process.returncode, err


def test_two_interrupts_stop_at_once_with_the_last_checkpoint(tmp_path: Path) -> None:
    status, err = _interrupt_twice(tmp_path, "--checkpoint-seconds", "0")
    assert status == 130
    assert "Traceback" not in err
    assert "fastes train --resume runs/Toy-v0/1" in err
    last = int(rows(tmp_path / "runs" / "Toy-v0" / "1")[-1]["timesteps"])
    assert f"holds {last} timesteps; what was running is lost. To continue: fastes train" in err
    with FastES.load(tmp_path / "runs" / "Toy-v0" / "1" / "checkpoint.zip", n_workers=0) as model:
        assert model.generation == 2


def test_two_interrupts_before_the_first_checkpoint_promise_nothing_that_is_not_there(tmp_path: Path) -> None:
    status, err = _interrupt_twice(tmp_path)
    assert status == 130
    if "--resume" in err:
        run = tmp_path / "runs" / "Toy-v0" / "1"
        FastES.load(run / "checkpoint.zip", n_workers=0).close()
        lost = int(rows(run)[-1]["timesteps"])
        assert f"holds 0 timesteps; the {lost} since are lost. To continue: " in err


@pytest.mark.parametrize("settings", [{}, {"archive_size": 2}, {"trials": 2}])
def test_an_interrupt_names_the_choice_at_the_end_if_there_can_be_one(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with FastES("CartPole-v1", n_workers=0, seed=1, **settings) as model, StopOnSignal() as interrupt:
        interrupt.on_start(model, 100)
        signal.raise_signal(signal.SIGINT)
    assert ("or after the final selection" in capsys.readouterr().err) == bool(settings)


def test_an_interrupt_while_modules_are_imported_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastes.__main__.import_home", interrupted)
    assert importlib.import_module("fastes.__main__").main() == 130


def test_a_training_waits_for_no_module_that_it_does_not_need() -> None:
    names = {"torch", "matplotlib", "ray", "optuna", "fastes.tuning.tune"}
    code = f"import sys, fastes.cli.main; print({names} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_after_training_one_interrupt_is_enough() -> None:
    """There is no generation to wait for: the report can be had again."""
    with StopOnSignal() as interrupt:
        interrupt.training_has_ended()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not interrupt.requested, "the run has its exit status"


# --- where it runs ---------------------------------------------------------------------------------------------------


def test_a_folder_named_fastes_in_the_working_directory_is_not_taken_for_the_package(tmp_path: Path) -> None:
    (tmp_path / "fastes").mkdir()
    (tmp_path / "fastes" / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    assert len(fastes_command()) == 2, "needs the installed command"
    flags = ["--workers", "2", "--total-timesteps", "100", "--quiet", "--seed", "0", *SMALL]
    result = run_fastes("train", "CartPole-v1", *flags, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = """
        import gymnasium, numpy as np
        from fastes import FastES

        class Own(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1, 1, (2,))
            action_space = gymnasium.spaces.Discrete(2)
            scale = 3.0
            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                self.steps = 0
                return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}
            def step(self, action):
                self.steps += 1
                observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
                return observation, self.scale * float(action), self.steps == 10, False, {}

        print("once")
        thetas = []
        for n_workers in (2, 0):
            with FastES(Own, preset="unbiased", n_workers=n_workers, seed=0, population_size=4, max_episode_steps=100) as model:
                model.learn(200)
                thetas.append(model.theta.tobytes())
        assert thetas[0] == thetas[1]
        Own.scale = -1.0
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "once\n"
    assert result.stderr == ""


def test_an_exception_of_an_environment_defined_in_a_script_is_reported(tmp_path: Path) -> None:
    script = """
        import gymnasium, numpy as np
        from fastes import FastES

        class OwnError(Exception):
            pass

        class Own(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1, 1, (2,))
            action_space = gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None):
                return np.zeros(2), {}
            def step(self, action):
                raise OwnError("my words")

        FastES(Own, preset="unbiased", n_workers=2, seed=0, population_size=4).learn(200)
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 1
    for words in ("OwnError", "my words", "WorkerError", "env seed", "in step"):
        assert words in result.stderr


def test_a_failed_training_saves_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES("Toy-v0", preset="default", n_workers=0, seed=1, population_size=4, policy_kwargs={"net_arch": [4]}) as model:
        model.learn(1)
        seed = int(model.strategy.ask().env_seed[0, 0])
    command = ["train", "Toy-v0", "--workers", "0", "--seed", "1", "--runs", str(tmp_path), "--quiet", *SMALL]
    assert main([*command, "--env-kwargs", f"fail_seeds=[{seed}]"]) == 1
    error = capsys.readouterr().err
    for words in ("toy fails", f"env seed {seed}", "ToyError", "saved"):
        assert words in error
    run = tmp_path / "Toy-v0" / "1"
    assert read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["generation"] == len(rows(run)) == 1


def test_module_and_command_are_the_same(tmp_path: Path) -> None:
    module = [sys.executable, "-m", "fastes", "--version"]
    result = subprocess.run(module, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert result.stdout == run_fastes("--version", cwd=tmp_path).stdout == f"fastes {__version__}\n"


def test_help_shows_the_values_of_the_plain_recipe() -> None:
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help for action in commands.choices["train"]._actions}
    with FastES("Toy-v0", preset=None, n_workers=0) as model:
        for name, value in load_preset("linear").items():
            assert getattr(model.settings, name) == value
            if name != "policy_kwargs":
                assert helps[name].endswith(f"(default: {value})"), name


def test_nothing_typed_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "gallery" in capsys.readouterr().out


@pytest.mark.parametrize(("trial", "words"), [(3, "generation 12 of trial 3;"), (None, "generation 12;")])
def test_an_error_has_the_generation_in_which_it_was_raised(
    trial: int | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model shows another trial, whose generation is another one."""

    def fail(*_: object, **__: object) -> None:
        raise WorkerError("OwnError: my words", generation=12, job=5, env_seed=7, trial=trial)

    monkeypatch.setattr(FastES, "learn", fail)
    assert main(["train", "CartPole-v1", "--workers", "0", "--quiet", "--runs", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"training failed in {words}" in said
    assert f"--generation 12 --job 5{' --trial 3' if trial else ''}" in said
