"""Risk: a wrapper that a command names is lost between training and playing, or is imported from a file that names no code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import caught_warnings

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.envs.named_wrappers import wrapper_named
from fastes.errors import CheckpointError, EnvironmentUnavailable
from fastes.runs.run_config import read_config

MODULE = """
import gymnasium
import numpy as np


class Twice(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 2.0 * reward, *rest


class Two(gymnasium.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation):
        return observation[:2]


class Needs(gymnasium.Wrapper):
    def __init__(self, env, size, *, other, third=3):
        super().__init__(env)


class Fails(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env.spaces)


class TakesNone(gymnasium.Wrapper):
    def __init__(self):
        pass


class NoWrapper:
    pass


def function(env):
    return env
"""
SMALL = ["--workers", "0", "--quiet", "--total-timesteps", "100", "--target-episodes", "2", "--population-size", "4"]
WRAPPERS = ["--wrapper", "own_wrappers:Twice", "--wrapper", "own_wrappers:Two"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_wrappers.py").write_text(MODULE)
    (tmp_path / "broken_wrappers.py").write_text("import nowhere_at_all\n")
    (tmp_path / "raising_wrappers.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_wrappers", "broken_wrappers", "raising_wrappers"):
        sys.modules.pop(name, None)


def evaluated(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main([*command]) == 0
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.filterwarnings("ignore:CartPole-v1 has the wrapper")
def test_wrappers_are_found_again_by_every_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", *WRAPPERS, *SMALL, "--workers", "1"]) == 0
    run = "runs/CartPole-v1/1"
    config = read_config(here / run / "config.toml")
    assert config is not None
    assert config["run"]["wrappers"] == ["own_wrappers:Twice", "own_wrappers:Two"]
    played = evaluated(capsys, "play", run)
    assert float(played.split()[4].rstrip(",")) == 2.0 * int(played.split()[5])
    assert main(["train", "--resume", run, "--workers", "0", "--quiet", "--total-timesteps", "300"]) == 0
    config = read_config(here / run / "config.toml")
    assert config is not None
    assert config["run"]["wrappers"] == ["own_wrappers:Twice", "own_wrappers:Two"]
    typed = evaluated(capsys, "play", f"{run}/best.zip", "--env", "CartPole-v1", *WRAPPERS)
    assert typed == evaluated(capsys, "play", run) == evaluated(capsys, "play", f"{run}/best")
    once = evaluated(capsys, "play", run, *WRAPPERS[2:])
    assert once.split()[5] == typed.split()[5], "what is typed goes before what the run has"
    assert 2.0 * float(once.split()[4].rstrip(",")) == float(typed.split()[4].rstrip(","))
    assert "mean " in evaluated(capsys, "eval", run, "--episodes", "2", "--workers", "0")
    assert main(["train", "--config", run, *SMALL]) == 0
    with FastES.from_config(here / run, n_workers=0) as model:
        assert [wrapper.name for wrapper in model.source.wrappers] == ["Twice", "Two"]
        assert model.observation_space.shape == (2,)
    config = read_config(here / "runs/CartPole-v1/2/config.toml")
    assert config is not None
    assert config["run"]["wrappers"] == ["own_wrappers:Twice", "own_wrappers:Two"]
    assert main(["train", "CartPole-v1", *WRAPPERS, *SMALL, "--seeds", "2"]) == 0
    assert "mean " in evaluated(capsys, "eval", "runs/CartPole-v1/4", "--episodes", "2", "--workers", "0")


def test_a_run_that_goes_on_in_another_environment_has_no_wrappers(here: Path) -> None:
    assert main(["train", "CartPole-v1", *WRAPPERS[:2], *SMALL, "--seed", "0"]) == 0
    run = here / "runs" / "CartPole-v1" / "1"
    further = ["--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps"]
    assert main(["train", "CartPole-v1", *further, "2000"]) == 0
    assert (read_config(run / "config.toml") or {})["run"]["wrappers"] == ["own_wrappers:Twice"]
    assert main(["train", "CartPole-v0", *further, "9000"]) == 0
    assert "wrappers" not in (read_config(run / "config.toml") or {})["run"]


def test_a_target_that_is_missed_is_told_only_where_it_would_count(here: Path) -> None:
    """eval, play and replay have no flag for a target, and need none."""
    missed = "its reward_threshold of 475 is not a target. To use .* train with .*target_return=475"
    with pytest.warns(UserWarning, match=missed):
        assert main(["train", "CartPole-v1", *WRAPPERS, *SMALL]) == 0
    for command in ("eval", "play"):
        with caught_warnings() as messages:
            assert main([command, str(here / "runs" / "CartPole-v1" / "1"), "--episodes", "1"]) == 0
        assert messages == []


@pytest.mark.filterwarnings("ignore:CartPole-v1 has the wrapper")
def test_a_checkpoint_names_no_wrapper(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", *WRAPPERS, *SMALL]) == 0
    in_run, best = here / "runs/CartPole-v1/1/best.zip", here / "copied.zip"
    best.write_bytes(in_run.read_bytes())
    assert "own_wrappers" not in str(read_checkpoint(best).data)
    capsys.readouterr()
    assert main(["play", str(best)]) == 2
    said = capsys.readouterr().err
    assert "the wrappers Twice, Two were around 'CartPole-v1'. Type: fastes play" in said
    assert said.rstrip().endswith("--env CartPole-v1 --wrapper MODULE:CLASS")
    assert main(["play", str(best), *WRAPPERS]) == 2
    assert "--wrapper own_wrappers:Twice goes around an environment, which no" in capsys.readouterr().err
    with FastES.load(best, n_workers=0) as model, pytest.raises(ValueError, match="the wrappers Twice, Two were around"):
        model.evaluate(1)
    assert main(["play", str(in_run.parent), "--env", "Acrobot-v1"]) == 2
    assert "env = 'Acrobot-v1' does not fit the policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("own_wrappers", ValueError, "expected module:Class, such as minigrid.wrappers:ImgObsWrapper"),
        ("Two", ValueError, "expected module:Class"),
        ("own_wrappers:", ValueError, "expected module:Class"),
        ("own_wrappers:Two()", ValueError, "expected module:Class"),
        (7, ValueError, "wrapper 7: expected module:Class"),
        ("own_wrappers:Tow", ValueError, "own_wrappers has no 'Tow'; did you mean 'Two'"),
        (
            "own_wrapers:Two",
            EnvironmentUnavailable,
            "module 'own_wrapers' is not importable; check the spelling, install it",
        ),
        ("broken_wrappers:Two", EnvironmentUnavailable, "No module named 'nowhere_at_all'; check the spelling, install it"),
        ("raising_wrappers:Two", EnvironmentUnavailable, "importing 'raising_wrappers' raises RuntimeError: no"),
        ("own_wrappers:NoWrapper", ValueError, "is another class: expected a class that derives from gymnasium.Wrapper"),
        ("own_wrappers:function", ValueError, "is a function: expected a class that derives from gymnasium.Wrapper"),
        ("gymnasium.wrappers.vector:FlattenObservation", ValueError, "is for vector environments: expected a class"),
        ("own_wrappers:Needs", ValueError, "needs size, other: name a class that needs nothing, .* 'class Mine\\(Needs\\)'"),
    ],
)
def test_names_that_are_no_wrapper(name: Any, error: type[Exception], said: str, here: Path) -> None:
    sys.path.append(str(here))
    with pytest.raises(error, match=said):
        wrapper_named(name)


@pytest.mark.parametrize(("name", "error"), [("Fails", "AttributeError"), ("TakesNone", "TypeError: TakesNone.__init__")])
def test_a_wrapper_that_does_not_fit_its_environment(
    name: str, error: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "CartPole-v1", "--wrapper", f"own_wrappers:{name}", *SMALL]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fastes: error: wrapper 'own_wrappers:{name}' cannot go around <TimeLimit<")
    assert f"it raises {error}" in said
    assert said.count("\n") == 1


def test_a_configuration_that_was_edited(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", *SMALL]) == 0
    path = here / "runs/CartPole-v1/1/config.toml"
    before = path.read_text()
    for value in ("7", '"own_wrappers:Two"', '["nothing"]', "[[1]]"):
        path.write_text(before.replace("[run]", f"[run]\nwrappers = {value}", 1))
        capsys.readouterr()
        assert main(["play", str(path.parent)]) in (1, 2)
        assert capsys.readouterr().err.startswith("fastes: error: ")


def test_minigrids_images_are_played_with_its_wrapper(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("minigrid")
    assert main(["train", "MiniGrid-Empty-5x5-v0", "--wrapper", "minigrid.wrappers:ImgObsWrapper", *SMALL]) == 0
    assert evaluated(capsys, "play", "runs/MiniGrid-Empty-5x5-v0/1").startswith("env seed 0: return")


def test_no_file_of_settings_of_others_imports_anything(here: Path) -> None:
    """A table of settings, as a search leaves it, has no wrappers."""
    (here / "best.toml").write_text('[CartPole-v1]\nsigma = 0.1\nwrappers = ["own_wrappers:Two"]\n')
    with pytest.raises((TypeError, CheckpointError), match="wrappers"):
        FastES.from_config(here / "best.toml", n_workers=0)
    assert "own_wrappers" not in sys.modules
