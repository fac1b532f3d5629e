"""Risk: a console that takes no more output ends a training; a command whose output is lost says that all is well."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, caught_warnings, toy
from processes import environment, fastes_command
from training import assert_same_state

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.reports.console_log import ConsoleLog
from fastes.runs.run_folder import RunFolder
from fastes.sb3.logger import configure
from fastes.system import console
from fastes.system.console import TolerantStream, output_errors_tolerated

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a disk that is always full")
SMALL = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none", "--seed", "0"]
TRAIN = ["train", "envs_for_tests:Toy-v0", *SMALL, "--total-timesteps", "400", "--workers", "1", "--env-kwargs", "noisy=true"]


def _command(*arguments: str, cwd: Path, **streams: Any) -> subprocess.CompletedProcess[str]:
    variables = {**environment(), **streams.pop("variables", {})}
    variables.pop("PYTHONUNBUFFERED")  # what waits in a buffer fails when the interpreter ends
    return subprocess.run(
        [*fastes_command(), *arguments], cwd=cwd, env=variables, text=True, errors="replace", timeout=120, **streams
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a training that could print."""
    root = tmp_path_factory.mktemp("console")
    assert _command(*TRAIN, cwd=root, capture_output=True).returncode == 0
    return root / "runs" / "envs_for_tests-Toy-v0" / "1"


def _is_whole(run: Path, undisturbed: Path) -> None:
    for name in ("checkpoint.zip", "best.zip"):
        assert_same_state(read_checkpoint(run / name), read_checkpoint(undisturbed / name))
    assert {path.name for path in undisturbed.iterdir()} <= {path.name for path in run.iterdir()}


@needs_full
@pytest.mark.parametrize("lost", [("stdout",), ("stdout", "stderr")])
def test_a_full_disk_under_the_output_ends_no_training(lost: tuple[str, ...], tmp_path: Path, undisturbed: Path) -> None:
    """The environment writes to stderr, too."""
    with open(FULL, "w") as full:
        streams = {name: full if name in lost else subprocess.PIPE for name in ("stdout", "stderr")}
        done = _command(*TRAIN, cwd=tmp_path, **streams)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "envs_for_tests-Toy-v0" / "1"
    _is_whole(run, undisturbed)
    notes = (run / "notes.txt").read_text().splitlines()
    assert len(notes) == len(lost)
    assert all(f"{name} cannot be written (No space left on device)" in note for name, note in zip(lost, notes, strict=True))
    if "stderr" not in lost:
        assert "stdout cannot be written (No space left on device): training continues\n" in done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


def test_a_reader_that_goes_away_ends_no_training(tmp_path: Path, undisturbed: Path) -> None:
    command = [*fastes_command(), *TRAIN]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait() == 0, errors
    run = tmp_path / "runs" / "envs_for_tests-Toy-v0" / "1"
    _is_whole(run, undisturbed)
    assert "Broken pipe" in (run / "notes.txt").read_text()
    assert "Exception ignored" not in errors


@needs_full
def test_an_environment_that_prints_into_a_full_disk_ends_no_training(tmp_path: Path) -> None:
    """In its worker, whose stdout is the training's."""
    (tmp_path / "prints.py").write_text(
        "import gymnasium, envs_for_tests\n"
        "class Prints(envs_for_tests.Toy):\n"
        "    def step(self, action):\n"
        "        print('step', flush=True)\n"
        "        return super().step(action)\n"
        "gymnasium.register('Prints-v0', entry_point=Prints)\n"
    )
    command = ["train", "prints:Prints-v0", "--workers", "2", "--population-size", "4", "--total-timesteps", "300", "--quiet"]
    with open(FULL, "w") as full:
        done = _command(*command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_closed_descriptors_are_given_to_no_file(tmp_path: Path, undisturbed: Path) -> None:
    """What an environment writes to stderr would be in the middle of a checkpoint."""
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *fastes_command(), *TRAIN], cwd=tmp_path, env=environment(), timeout=120
    )
    assert done.returncode == 0
    _is_whole(tmp_path / "runs" / "envs_for_tests-Toy-v0" / "1", undisturbed)


@needs_full
@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("eval RUN --episodes 2 --workers 0", "full"),
        ("play RUN", "full"),
        ("play RUN", "closed"),
        ("train --help", "closed"),
        ("--version", "full"),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error(command: str, how: str, tmp_path: Path, undisturbed: Path) -> None:
    arguments = [str(undisturbed) if word == "RUN" else word for word in command.split()]
    env = ["--env", "envs_for_tests:Toy-v0"] if "RUN" in command else []
    if how == "closed":
        line = ["sh", "-c", '"$@" >&-', "sh", *fastes_command(), *arguments, *env]
        done = subprocess.run(line, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True, timeout=120)
    else:
        with open(FULL, "w") as full:
            done = _command(*arguments, *env, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith(("toy:", "error: XDG_RUNTIME_DIR"))]
    assert len(said) == 1, said
    assert said[0].startswith("fastes: error: stdout ")


COMMANDS = ["runs FOLDER", "runs --json FOLDER", "info RUN", "plot RUN --out curve.png", "eval RUN --workers 0", "play --help"]


@pytest.mark.parametrize("command", [*COMMANDS, "--version", "info nothing-there"])
def test_a_reader_that_has_gone_is_told_nothing(command: str, tmp_path: Path, undisturbed: Path) -> None:
    """As in `fastes runs | head -1`. The status is that of the command with a reader."""
    places = {"RUN": str(undisturbed), "FOLDER": str(undisturbed.parent)}
    arguments = [places.get(word, word) for word in command.split()]
    env = ["--env", "envs_for_tests:Toy-v0"] if command.startswith("eval") else []
    whole = _command(*arguments, *env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ours, theirs = os.pipe()
    os.close(ours)
    done = _command(*arguments, *env, cwd=tmp_path, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (whole.returncode, whole.stderr)
    assert done.returncode == ("nothing" in command)
    assert (tmp_path / "curve.png").exists() == command.startswith("plot")


@needs_full
def test_a_full_stderr_ends_no_evaluation(tmp_path: Path, undisturbed: Path) -> None:
    env = ["--env", "envs_for_tests:Toy-v0", "--env-kwargs", "noisy=true"]
    with open(FULL, "w") as full:
        done = _command("eval", str(undisturbed), *env, "--workers", "1", cwd=tmp_path, stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 0
    assert "mean" in done.stdout


def test_a_console_without_the_characters_shows_escapes(tmp_path: Path) -> None:
    variables = {"PYTHONIOENCODING": "ascii"}
    train = ["train", "CartPole-v1", *SMALL, "--total-timesteps", "50", "--workers", "0", "--runs", "läufe"]
    done = _command(*train, cwd=tmp_path, capture_output=True, variables=variables)
    assert done.returncode == 0, done.stderr
    assert "run folder l\\xe4ufe/CartPole-v1/1" in done.stdout
    done = _command("play", "läufe/CartPole-v1/1", "--video", "ü.avi", cwd=tmp_path, capture_output=True, variables=variables)
    assert "\\xfc.avi" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_text_is_escaped_in_the_configuration(tmp_path: Path) -> None:
    runs = os.fsdecode(b"l\xff")
    train = ["train", "CartPole-v1", *SMALL, "--total-timesteps", "50", "--workers", "0", "--quiet", "--runs", runs]
    done = _command(*train, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert r"--runs 'l\\udcff'" in (tmp_path / runs / "CartPole-v1" / "1" / "config.toml").read_text()


# --- in Python -------------------------------------------------------------------------------------------------------


class BrokenTerminal(io.StringIO):
    """A terminal that hung up: for this one a progress bar is drawn."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        self.write("")

    def isatty(self) -> bool:
        return True


def _stream(kind: str) -> Any:
    if kind == "closed":
        stream = io.StringIO()
        stream.close()
        return stream
    return {"none": lambda: None, "terminal": BrokenTerminal, "full": lambda: open(FULL, "w", buffering=1)}[kind]()


@pytest.mark.parametrize("kind", ["none", "closed", "terminal", pytest.param("full", marks=needs_full)])
@pytest.mark.parametrize("n_workers", [0, 1])
def test_learn_goes_on_without_its_output(kind: str, n_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [FastES(toy(noisy=True), preset="default", n_workers=n_workers, verbose=1, **SETTINGS) for _ in range(2)]

    def learn(path: Path) -> None:
        path.mkdir()
        with models.pop() as model:
            model.learn(500, [RunFolder(path), ConsoleLog()], progress_bar=True)

    learn(tmp_path / "whole")
    out, err = _stream(kind), _stream(kind)
    with monkeypatch.context() as patch, caught_warnings() as messages:
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        learn(tmp_path / "run")
        assert sys.stdout is out
        assert sys.stderr is err
    for stream in (out, err):
        with contextlib.suppress(OSError, AttributeError):  # what it holds cannot be written; None
            stream.close()
    runs = [read_checkpoint(tmp_path / name / "checkpoint.zip") for name in ("whole", "run")]
    assert_same_state(*runs)
    if kind != "none":  # nobody asked for output then
        assert "cannot be written" in (tmp_path / "run" / "notes.txt").read_text()
        assert any(message.endswith("training continues") for message in messages)


def test_a_table_for_readers_is_worth_less_than_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", BrokenTerminal())
        logger = configure(None, ["stdout"])
        logger.record("train/sigma", 0.02)
        logger.dump(step=1)
        logger.info("words")


def test_a_stream_that_works_again_is_written_to() -> None:
    class Sometimes(io.StringIO):
        fails = True

        def write(self, text: str) -> int:
            if self.fails:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = Sometimes()
    lasts = TolerantStream(stream)
    print("first", file=lasts)  # type: ignore[call-overload]
    stream.fails = False
    print("second", file=lasts)  # type: ignore[call-overload]
    assert stream.getvalue() == "second\n"
    assert "No space left" in lasts.lost


def test_another_stream_that_is_put_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", sys.stdout)
    other = io.StringIO()
    with output_errors_tolerated():
        sys.stdout = other
    assert sys.stdout is other


def test_a_traceback_on_a_narrow_terminal_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "columns_of", lambda _: 30)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    trace = f'Traceback (most recent call last):\n  File "x.py", line 1\n    {"word " * 12}\n    ^^^^'
    said = console.fitted(f"{'word ' * 12}\n{trace}", terminal)
    assert said.endswith(f"\n{trace}")
    assert max(map(len, said.removesuffix(trace).split("\n"))) <= 30


def test_a_text_beside_a_title_goes_on_below(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    console.say_beside("  name  ", "one-two three four\nfive")
    assert capsys.readouterr().out == "  name  one-two three four\nfive\n", "a file or a pipe gets it as it is"
    monkeypatch.setattr(console, "columns_of", lambda _: 30)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    console.say_beside("  name  ", "one-two three four five six\nseven")
    assert capsys.readouterr().out == "  name  one-two three four\n        five six\n        seven\n"
    console.say_beside("  name  ", "one two three: pip install 'a very long thing'")
    assert capsys.readouterr().out.splitlines()[1:] == ["        pip install 'a very long thing'"], "for copying"
