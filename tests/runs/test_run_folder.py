"""Risk: two trainings mix in one run folder; a run that was stopped at its end is never finished; odd files in it are lost."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings
from processes import children, environment, fastes_command, run_fastes, run_script, wait_until
from training import assert_same_state

from fastes import FastES, FastESError
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.reports.callbacks import Callback
from fastes.reports.progress_rows import read_progress
from fastes.runs.overview import read_overview
from fastes.runs.run_folder import RunFolder, new_run_folder
from fastes.settings.preset_loader import tomllib

SMALL = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none", "--seed", "0"]
TRAIN = ["train", "CartPole-v1", *SMALL, "--workers", "0", "--total-timesteps", "1000"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    assert main([*TRAIN, "--quiet", "--runs", str(root)]) == 0
    return root / "CartPole-v1" / "1"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run, to be spoiled."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def _config(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


# --- stopped at its end ----------------------------------------------------------------------------------------------

KILLED_IN_ITS_LAST_EVALUATION = """
    import os, signal, sys
    from fastes.cli import main as cli
    from fastes.cli import train_report as report
    report.choose_best = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    cli.main(sys.argv[1:])
"""


def test_a_run_killed_in_its_last_evaluation_is_finished(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(KILLED_IN_ITS_LAST_EVALUATION, tmp_path, *TRAIN, "--quiet").returncode == -signal.SIGKILL
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    assert not (run / "learning_curve.png").exists()
    assert _config(run)["run"]["finished"] is False
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"^last parameters: return \d+\.\d \+- \d+\.\d, worst \d+\.\d over 20 noise-free episodes$", said, re.MULTILINE
    )
    assert "fastes play" in said
    for name in ("checkpoint.zip", "best.zip"):
        assert_same_state(read_checkpoint(run / name), read_checkpoint(finished / name))
    assert (run / "learning_curve.png").exists()
    assert (read_progress(run / "progress.csv")["return_mean"] == read_progress(finished / "progress.csv")["return_mean"]).all()
    assert main(["train", "--resume", str(run)]) == 2
    assert "give a larger one with --total-timesteps" in capsys.readouterr().err


def test_a_run_without_a_mark_is_finished_once_more(run: Path) -> None:
    """Nobody knows whether it was."""
    config = (run / "config.toml").read_text()
    last, seen = _config(run)["run"]["last_evaluation"], read_overview(run)
    (run / "config.toml").write_text(config.replace("finished = true\n", ""))
    assert "finished" not in _config(run)["run"]
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet"]) == 0
    assert _config(run)["run"]["finished"] is True
    assert _config(run)["run"]["last_evaluation"] == last, "no row of progress.csv has it"
    assert read_overview(run).best == seen.best
    assert main(["train", "--resume", str(run)]) == 2


def test_a_finished_run_that_goes_on_is_not_finished_until_it_is(run: Path, tmp_path: Path) -> None:
    script = KILLED_IN_ITS_LAST_EVALUATION
    more = ["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "1500"]
    assert run_script(script, tmp_path, *more).returncode == -signal.SIGKILL
    assert _config(run)["run"]["finished"] is False
    assert main([word for word in more if word not in ("--total-timesteps", "1500")]) == 0
    assert _config(run)["run"]["finished"] is True
    assert [start["run"]["finished"] for start in _config(run)["earlier"]] == [True, False]


STOPPED_WHILE_TRIALS_ARE_SCORED = """
    import os, signal, sys
    from fastes.cli import main as cli
    from fastes.training import evaluator
    evaluate, calls = evaluator.Evaluator.evaluate, []
    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)
    evaluator.Evaluator.evaluate = stopped
    sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_run_stopped_while_its_trials_are_scored_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = ["--trials", "2", "--trials-fraction", "1"]
    assert main([*TRAIN, *trials, "--quiet", "--runs", str(tmp_path / "whole")]) == 0
    stopped = run_script(STOPPED_WHILE_TRIALS_ARE_SCORED, tmp_path, *TRAIN, *trials)
    assert stopped.returncode == 143, stopped.stderr
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    saved = read_checkpoint(run / "checkpoint.zip").data
    assert sum(training["counters"]["num_timesteps"] for training in saved["trainings"]) >= 1000
    assert len(saved["selection"]["trials"]) == 2
    assert main(["train", "--resume", str(run), "--workers", "0"]) == 0
    assert re.search(r"^2 trials: trial [12] has won and continues alone$", capsys.readouterr().out, re.MULTILINE)
    for name in ("checkpoint.zip", "best.zip"):
        assert_same_state(read_checkpoint(run / name), read_checkpoint(tmp_path / "whole" / "CartPole-v1" / "1" / name))


def test_learn_of_nothing_trains_nothing() -> None:
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(200)
        before = model.snapshot()
        model.learn(0, reset_num_timesteps=False)
        assert_same_state(before, model.snapshot())


def test_a_budget_is_new_only_where_it_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = [*TRAIN[:-1], "3000", "--learning-rate", "lin_0.1_0.05", "--runs", str(tmp_path), "--quiet"]
    run = tmp_path / "CartPole-v1" / "1"
    stop = STOPPED_WHILE_TRIALS_ARE_SCORED  # a fifth of the budget is spent
    assert run_script(stop, tmp_path, *train, "--trials", "3").returncode == 143
    for number, (budget, words) in enumerate((([], ""), (["3000"], ""), (["4000"], "new budget of 4000 timesteps"))):
        copy = shutil.copytree(run, tmp_path / f"copy-{number}")
        resume = ["train", "--resume", str(copy), "--workers", "0", "--quiet"]
        assert main([*resume, *(["--total-timesteps", *budget] if budget else [])]) == 0
        said = capsys.readouterr().out
        assert words in said
        assert ("new budget" in said) == bool(words)


# --- odd files -------------------------------------------------------------------------------------------------------


def _odd(path: Path, kind: str) -> None:
    """Put something in the place of a file."""
    content = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
        (path / "inside").touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(
            {
                "a word": lambda: re.sub(rb"(?m)^(\d+,)\d+,", rb"\1many,", content, count=1),
                "a long number": lambda: re.sub(rb"(?m)^1,", b"1" * 5000 + b",", content),
                "a long field": lambda: content[:-10] + b"x" * 200_000 + b"\n",
                "zeros": lambda: bytes(len(content)),
                "no text": lambda: b"\xff\xfe" + content,
                "no table": lambda: b'run = "yesterday"\n',
                "no list": lambda: b"earlier = 3\n" + content,
                "a list of numbers": lambda: b"earlier = [1, 2]\n" + content,
                "deep": lambda: b"a = " + b"[" * 100_000,
            }[kind]()
        )


RESUME = ["--workers", "0", "--quiet", "--total-timesteps", "1500"]


@pytest.mark.parametrize("more", [False, True])
def test_statistics_of_another_version_are_kept(more: bool, run: Path) -> None:
    """One that had no utilisation yet; and one with a column that is not known here, which stays in a file of its own."""
    path = run / "progress.csv"
    before = read_progress(path)
    header, *lines = [line.split(",") for line in path.read_text().splitlines()]
    at = header.index("utilisation")
    other = [[*line[:at], *line[at + 1 :], *(["7"] if more else [])] for line in lines]
    other.insert(0, [*header[:at], *header[at + 1 :], *(["later"] if more else [])])
    path.write_text("".join(",".join(line) + "\n" for line in other))
    with caught_warnings():
        assert main(["train", "--resume", str(run), *RESUME]) == 0
    after, rows = read_progress(path), len(lines)
    assert len(after["generation"]) > rows
    assert (after["return_mean"][:rows] == before["return_mean"]).all()
    assert all(math.isnan(value) for value in after["utilisation"][:rows])
    assert not any(math.isnan(value) for value in after["utilisation"][rows:])
    assert len(list(run.glob("*.damaged"))) == more


@pytest.mark.parametrize("kind", ["a word", "a long number", "a long field", "zeros", "no text", "folder", "pipe"])
def test_statistics_that_are_none_are_kept_aside(kind: str, run: Path) -> None:
    """And the training, which has a whole checkpoint, goes on to its end."""
    before = len(read_progress(run / "progress.csv")["generation"])
    _odd(run / "progress.csv", kind)
    with caught_warnings() as messages:
        assert main(["train", "--resume", str(run), *RESUME]) == 0
    if kind != "no text":  # the first line, which names the statistics, is not read
        assert any("progress.csv.damaged" in message for message in messages)
        assert (run / "progress.csv.damaged").exists()
        assert any("some are lost" in message or "not a regular file" in message for message in messages)
        assert len(list(run.glob("progress.csv.damaged*"))) == 1
    generations = read_progress(run / "progress.csv")["generation"].tolist()
    assert generations[-1] > before
    assert generations == sorted(set(generations))


@pytest.mark.parametrize("kind", ["no text", "no table", "no list", "a list of numbers", "deep", "zeros", "folder", "pipe"])
def test_a_configuration_that_is_none_is_kept_aside(kind: str, run: Path) -> None:
    _odd(run / "config.toml", kind)
    with caught_warnings() as messages:
        assert main(["train", "--resume", str(run), *RESUME]) == 0
    assert any(message.startswith(f"{run / 'config.toml'} cannot be understood") for message in messages)
    assert (run / "config.toml.damaged").exists()
    assert _config(run)["run"]["finished"] is True


@pytest.mark.parametrize("name", ["monitor.csv", "evaluations.npz"])
def test_a_pipe_is_no_file_of_statistics(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(run / name)
    before = read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]["num_timesteps"]
    assert main(["train", "--resume", str(run), *RESUME]) == 2
    assert f"{run / name} is not a regular file: move it away" in capsys.readouterr().err
    assert read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]["num_timesteps"] == before


# --- one training at a time ------------------------------------------------------------------------------------------


def test_a_second_training_is_locked_out_and_a_killed_one_is_not_waited_for(tmp_path: Path) -> None:
    first = [*fastes_command(), "train", "CartPole-v1", *SMALL, "--workers", "1", "--total-timesteps", "1000000000", "--quiet"]
    process = subprocess.Popen(first, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    try:
        run = tmp_path / "runs" / "CartPole-v1" / "1"
        wait_until(lambda: (run / "checkpoint.zip").exists() and bool(children(process.pid)), "the first one trains")
        config, checkpoint = (run / "config.toml").read_bytes(), (run / "checkpoint.zip").stat()
        second = run_fastes("train", "--resume", str(run), "--total-timesteps", "5000", cwd=tmp_path)
        assert second.returncode == 1
        who = f" (process {process.pid})" if Path("/proc/locks").exists() else ""
        assert second.stderr.startswith(f"fastes: error: another training{who} uses {run}: wait until it ends")
        assert second.stderr.count("\n") == 1
        assert (run / "config.toml").read_bytes() == config
        assert (run / "checkpoint.zip").stat().st_ino == checkpoint.st_ino
    finally:
        process.kill()
        process.wait()
    steps = read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]["num_timesteps"] + 500
    resume = ["train", "--resume", str(run), "--total-timesteps", str(steps), "--quiet", "--workers", "1"]
    assert run_fastes(*resume, cwd=tmp_path).returncode == 0


def test_a_training_in_python_takes_the_folder_and_gives_it_back(tmp_path: Path) -> None:
    refused: list[str] = []

    class Intruder(Callback):
        def on_start(self, model: FastES, total_timesteps: int) -> None:
            with pytest.raises(FastESError, match="another training") as caught:
                RunFolder(tmp_path).on_start(model, total_timesteps)
            refused.append(str(caught.value))

    with FastES(Toy, preset="default", n_workers=2, **SETTINGS) as model:
        for _ in range(2):
            model.learn(200, [RunFolder(tmp_path), Intruder()])
        with pytest.raises(ZeroDivisionError):
            model.learn(200, [RunFolder(tmp_path), lambda model, record: 1 / 0])
        model.learn(200, RunFolder(tmp_path))
    assert len(refused) == 2
    assert str(tmp_path) in refused[0]
    if sys.platform == "linux":
        assert f"process {os.getpid()}" in refused[0]


def test_a_folder_that_another_refused_is_free(tmp_path: Path) -> None:
    """What fails before training starts holds no lock."""
    (tmp_path / "checkpoint.zip").mkdir()
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        folder = RunFolder(tmp_path)
        with pytest.raises(OSError):
            model.learn(200, folder)
        (tmp_path / "checkpoint.zip").rmdir()
        model.learn(200, RunFolder(tmp_path))


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_a_file_system_without_locks_ends_no_training(error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert main([*TRAIN, "--quiet", "--runs", str(tmp_path)]) == 0
    assert {path.name for path in (tmp_path / "CartPole-v1" / "1").iterdir() if not path.name.endswith(".bak")} == {
        "checkpoint.zip", "best.zip", "midway.zip", "progress.csv", "population.json", "config.toml", "learning_curve.png"
    }  # fmt: skip


def test_the_settings_that_the_user_gave_to_a_race_are_noted_and_stay(tmp_path: Path) -> None:
    """They tell it from other runs: those of the winner depend on the seed, too."""
    given: dict[str, Any] = {"policy_kwargs": {"action_mapping": "clip"}, "noise_table_size": 30_000}
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with FastES(Toy, seed=0, n_workers=0, **given) as model:
        assert model.selection.is_race
        folder.write_config(model, {})
        model.save(tmp_path / "model")
    assert read_overview(folder.path).given == given
    with FastES.load(tmp_path / "model", Toy, 0, obs_clip=7.0) as model:
        RunFolder(folder.path).write_config(model, {})
    assert read_overview(folder.path).given == {**given, "obs_clip": 7.0}
    with FastES(Toy, seed=0, n_workers=0, preset="linear", **given) as model:
        RunFolder(tmp_path).write_config(model, {})
    assert read_overview(tmp_path).given is None


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("../walk.so:F32", "walk.so-F32"),
        ("./a b.so:X", "a-b.so-X"),
        (f"/{'d/' * 90}walk.so:F32", ""),
    ],
)
def test_folders_of_runs_are_not_hidden(env: str, name: str, tmp_path: Path) -> None:
    folder = new_run_folder(tmp_path, env)
    assert folder.parent.name == name if name else folder.parent.name.endswith("walk.so-F32")
    assert folder.parent.name[0] not in ".-"
    assert len(folder.parent.name) <= 100
