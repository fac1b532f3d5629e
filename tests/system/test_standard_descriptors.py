"""Risk: a process that was started without standard input, output or errors writes what it prints into its files or sockets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment, fastes_command
from training import theta_of

from fastes.checkpoints.reader import read_checkpoint

CLOSED = {"input": "<&-", "output": ">&-", "errors": "2>&-", "all": "<&- >&- 2>&-"}
# what a C library prints goes to the descriptor, whatever Python has made of sys.stdout
CHATTERING = """
import os
import gymnasium
from envs_for_tests import Toy

class Chattering(Toy):
    def step(self, action):
        for number in (1, 2):
            os.fstat(number)
            os.write(number, b"chatter\\n")
        os.fstat(0)
        return super().step(action)

gymnasium.register("Chattering-v0", entry_point="chattering:Chattering")
"""


def run_closed(command: list[str], how: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {CLOSED[how]}', "sh", *command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


TRAIN = [*fastes_command(), "train", "chattering:Chattering-v0", "--seed", "0", "--workers", "2", "--population-size", "4"]
TRAIN += ["--total-timesteps", "300", "--checkpoint-seconds", "0", "--monitor-csv", "--target-return", "none"]


@pytest.fixture(scope="module")
def with_descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a training that has them all."""
    folder = tmp_path_factory.mktemp("open")
    (folder / "chattering.py").write_text(CHATTERING)
    done = subprocess.run(TRAIN, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return next((folder / "runs").glob("*/1"))


@pytest.mark.slow
@pytest.mark.parametrize("how", CLOSED)
def test_training_with_closed_descriptors(how: str, with_descriptors: Path, tmp_path: Path) -> None:
    (tmp_path / "chattering.py").write_text(CHATTERING)
    result = run_closed(TRAIN, how, tmp_path)
    assert result.returncode == 0, result.stderr
    runs = (with_descriptors, next((tmp_path / "runs").glob("*/1")))
    expected, found = map(files_of, runs)
    assert set(expected) == set(found)
    assert not [name for name, content in found.items() if b"chatter\n" in content]
    states = [read_checkpoint(run / "checkpoint.zip") for run in runs]
    assert theta_of(states[0]).tobytes() == theta_of(states[1]).tobytes()
    assert found["progress.csv"].count(b"\n") == expected["progress.csv"].count(b"\n")
    if how == "errors":
        assert "generation" not in result.stderr
        assert "run folder" in result.stdout


@pytest.mark.parametrize("how", CLOSED)
def test_a_wrong_argument_with_closed_descriptors(how: str, tmp_path: Path) -> None:
    result = run_closed([*fastes_command(), "train", "NoSuchEnvironment-v0"], how, tmp_path)
    assert result.returncode == 2
    assert result.stdout == "", "errors do not go to standard output"
    assert ("NoSuchEnvironment" in result.stderr) == (how in ("input", "output"))


SCRIPT = """
import os, sys, traceback
from pathlib import Path
from chattering import Chattering
from fastes import FastES
from fastes.runs.run_folder import RunFolder

when, n_workers = sys.argv[1], int(sys.argv[2])

def close(*numbers):
    for number in numbers:
        os.close(number)

def look(_, record):
    if when == "in between" and record.generation == 2:
        close(1, 2)
    return record.generation < 4

def main():
    if when == "by the script":
        sys.stdin = sys.stdout = sys.stderr = None
        close(0, 1, 2)
    Path("run").mkdir()
    run = RunFolder(Path("run"), checkpoint_seconds=0.0)
    settings = {"preset": "default", "population_size": 4, "seed": 0, "target_return": "none"}
    model = FastES(Chattering, n_workers=n_workers, verbose=1, tensorboard_log="tensorboard", **settings)
    model.learn(10**6, [run, look], progress_bar=True)
    os.write(1, b"chatter\\n")
    os.write(2, b"chatter\\n")
    model.save("whole")
    model.close()
    Path("told").write_text(str([os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]))

try:
    main()
except BaseException:
    Path("wrong").write_text(traceback.format_exc())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "n_workers"), [("before it starts", "2"), ("by the script", "0"), ("in between", "2")])
def test_a_script_without_descriptors(when: str, n_workers: str, tmp_path: Path) -> None:
    (tmp_path / "chattering.py").write_text(CHATTERING)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", when, n_workers]
    if when == "before it starts":
        run_closed(command, "all", tmp_path)
    else:
        subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=120
        )
    assert not (tmp_path / "wrong").exists(), (tmp_path / "wrong").read_text()
    closed = ["/dev/null"] * 3
    assert (tmp_path / "told").read_text() == str(closed)
    states = [read_checkpoint(tmp_path / name) for name in ("whole", "run/checkpoint")]
    assert [state.data["trainings"][0]["generation"] >= 3 for state in states] == [True, True]
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            assert b"chatter\n" not in path.read_bytes(), path
