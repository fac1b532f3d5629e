"""Risk: the command hides what check_env finds, or its exit status says that all is well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from native_library import HERE, compiled, needs_compiler
from processes import environment, wait_until
from terminals import shown

from fastes.cli.main import main
from fastes.cli.stop_on_signal import INTERRUPTED

MODULE = """
import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

class Scaled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 0.5 * reward

class Broken(CartPoleEnv):
    def step(self, action):
        return (*super().step(action)[:1], "much", False, False, {})

gymnasium.register("Pole-v0", lambda length=100: gymnasium.wrappers.TimeLimit(CartPoleEnv(), length))
class Exits(CartPoleEnv):
    def step(self, action):
        raise SystemExit(4)

class Crashes(CartPoleEnv):
    def step(self, action):
        import os, signal
        os.kill(os.getpid(), signal.SIGSEGV)

class NoFile(CartPoleEnv):
    def __init__(self):
        open("missing.csv")

class Leaves(CartPoleEnv):
    def __init__(self):
        raise SystemExit(0)

class Adds(CartPoleEnv):
    def __init__(self):
        self.sum = None + 1

gymnasium.register("Leaves-v0", Leaves)
gymnasium.register("Adds-v0", Adds)
gymnasium.register("Broken-v0", Broken)
gymnasium.register("Exits-v0", Exits)
gymnasium.register("Crashes-v0", Crashes)
gymnasium.register("NoFile-v0", NoFile)
"""


BEGINS = """
import pathlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Short(CartPoleEnv):
    pass

class Begins(CartPoleEnv):
    def step(self, action):
        pathlib.Path("begun").touch()
        while True:
            pass

    def close(self):
        pathlib.Path("closed").touch()

gymnasium.register("Begins-v0", Begins)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that registers environments, in the working directory."""
    name = f"poles_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_report_and_its_status(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", f"{module}:Pole-v0", "--episodes", "5", "--total-timesteps", "1e6", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    for words in (f"{module}:Pole-v0\n", "5 of random actions", "1,000,000 steps take", "on 2 cores", "No problems found"):
        assert words in said
    assert main(["check-env", f"{module}:Broken-v0"]) == 1
    said = capsys.readouterr().out
    assert "error: an episode of random actions raised TypeError: env.step returned the reward 'much'" in said


def test_a_long_row_continues_below_its_text_on_a_narrow_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fastes", "check-env", "CartPole-v1", "--episodes", "2"]
    lines = shown(command, 60, tmp_path, environment(), lambda _: None)
    rows = lines[1 : lines.index("No problems found.")]
    assert {row[:2] for row in rows} == {"  "}
    continued = [row for row in rows if row[2] == " "]
    assert continued
    assert {len(row) - len(row.lstrip()) for row in continued} == {len("  observations  ")}


def test_arguments_wrappers_and_settings_count(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check-env", f"{module}:Pole-v0", "--episodes", "5", "--json", "--preset", "default"]
    assert main([*command, "--policy", "LinearPolicy", "--use-bias", "--max-episode-steps", "5"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert settings["random_episodes"]["lengths"]["max"] == 5
    assert settings["choice"] == "preset 'default': LinearPolicy, 10 parameters"
    assert main(command) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*command, "--env-kwargs", "length=7", "--wrapper", f"{module}:Scaled"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert (plain["episode_limit"], changed["episode_limit"]) == (100, 7)
    assert plain["random_episodes"]["returns"]["mean"] == plain["random_episodes"]["lengths"]["mean"]
    assert changed["random_episodes"]["returns"]["mean"] == 0.5 * changed["random_episodes"]["lengths"]["mean"]
    assert plain["ok"]
    assert "preset 'default': MlpPolicy" in plain["choice"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Exits", "an episode of random actions raised RuntimeError: it called sys.exit(4) (in {module}.py, line 17)"),
        ("Leaves", "the environment called sys.exit(0) while it was made"),
        ("Adds", "with kwargs ({{}}) (in {module}.py, line 34)"),
        ("Crashes", "the environment crashed (signal SIGSEGV) in step 1 of episode 1 of random actions (seed 1000). To see"),
        ("NoFile", "FileNotFoundError: [Errno 2] No such file or directory: 'missing.csv' (in {module}.py, line 26)"),
    ],
)
def test_an_environment_that_ends_the_process_is_told(module: str, name: str, words: str) -> None:
    command = [sys.executable, "-m", "fastes", "check-env", f"{module}:{name}-v0", "--json"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 1, run.stderr
    (finding,) = json.loads(run.stdout)["findings"]
    assert words.format(module=module) in finding["text"]


def test_ctrl_c_lets_an_environment_close_what_it_began(module: str, tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(BEGINS)
    command = [sys.executable, "-m", "fastes", "check-env", "begun:Begins-v0"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, start_new_session=True, text=True) as run:
        wait_until((tmp_path / "begun").exists, "an episode has begun")
        os.killpg(run.pid, signal.SIGINT)
        assert "stopped at once" in run.communicate(timeout=60)[1]
    assert run.returncode == INTERRUPTED
    assert (tmp_path / "closed").exists()


def test_a_script_knows_what_it_registers(tmp_path: Path) -> None:
    own = "import gymnasium, sys; from fastes.cli.main import main; gymnasium.register('Own-v0', 'begun:Short')"
    (tmp_path / "begun.py").write_text(BEGINS)
    (tmp_path / "script.py").write_text(f"{own}\nsys.exit(main())\n")
    command = [sys.executable, "script.py", "check-env", "Own-v0", "--episodes", "2", "--seconds", "0.1"]
    run = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


def test_an_error_of_the_users_code_has_its_kind_and_place(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", f"{module}:NoFile-v0", "--workers", "0"]) == 1
    said = capsys.readouterr().err
    assert f"FileNotFoundError: [Errno 2] No such file or directory: 'missing.csv' (in {module}.py, line 26)" in said


def test_an_unknown_environment_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "CartPol-v1"]) == 2
    assert "did you mean 'CartPole-v1'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(HERE / "native_envs.c", tmp_path_factory.mktemp("native"))


@needs_compiler
def test_a_state_that_is_too_small_is_an_error(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", f"{library}:WiderState", "--episodes", "3"]) == 1
    assert "error: an episode of random actions raised RuntimeError: WiderState wrote past the end" in capfd.readouterr().out
    assert main(["check-env", f"{library}:Walk", "--episodes", "3"]) == 0
    assert "3 of random actions: 40 steps" in capfd.readouterr().out


@needs_compiler
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("crashes_at=17", "crashed (signal SIGSEGV) in step 17 of episode 1 of random actions (seed 1000). To see"),
        ("exits_at=3", "ended the process with exit status 0 in step 3 of episode 1"),
        ("crashes=1", "crashed (signal SIGFPE) while it was made"),
    ],
)
def test_a_crash_is_told(library: str, capfd: pytest.CaptureFixture[str], option: str, words: str) -> None:
    assert main(["check-env", f"{library}:Walk", "--env-kwargs", option, "--json"]) == 1
    (finding,) = json.loads(capfd.readouterr().out)["findings"]
    assert finding["level"] == "error"
    assert words in finding["text"]


@needs_compiler
def test_ctrl_c_says_where_an_environment_in_c_hangs(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", f"{library}:Walk", "--env-kwargs", "interrupts_at=5"]) == INTERRUPTED
    assert "stopped in step 5 of episode 1 of random actions (seed 1000)\n" in capfd.readouterr().out


@needs_compiler
def test_errors_of_the_child_are_its_parents(library: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", f"{library}:Walk", "--episodes", "0"]) == 2
    said = capfd.readouterr()
    assert (said.out, said.err.count("episodes = 0")) == ("", 1)
