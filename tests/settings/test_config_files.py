"""Risk: a file of settings is taken in part, wins over what was passed beside it, or is met by a riddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from training import learn

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.runs.run_folder import RunFolder
from fastes.settings.config_file import arguments_from
from fastes.settings.preset_loader import tomllib

BEST = """[CartPole-v1]
source = "a search"
total_timesteps = 300
policy = "MlpPolicy"
population_size = 4
sigma = 0.25

[CartPole-v1.policy_kwargs]
net_arch = [4]
activation_fn = "relu"
"""
SMALL = ["--workers", "0", "--quiet"]


@pytest.fixture
def best(tmp_path: Path) -> Path:
    path = tmp_path / "best.toml"
    path.write_text(BEST)
    return path


def train(folder: Path, *arguments: str) -> Path:
    """The folder of a run that ended well."""
    assert main(["train", *arguments, *SMALL, "--runs", str(folder)]) == 0
    (run,) = folder.glob("*/*")
    return run


def theta(run: Path) -> bytes:
    return read_checkpoint(run / "checkpoint.zip").arrays["trainings"]["0.theta"].tobytes()


def test_a_run_is_repeated_from_its_config(tmp_path: Path) -> None:
    flags = [
        "--sigma",
        "0.3",
        "--learning-rate",
        "0.1",
        "--preset",
        "default",
        "--population-size",
        "4",
        "--policy",
        "MlpPolicy",
        "--net-arch",
        "3",
        "--total-timesteps",
        "300",
    ]
    first = train(tmp_path / "a", "CartPole-v1", "--env-kwargs", "sutton_barto_reward=true", "--seed", "7", *flags)
    again = train(tmp_path / "b", "--config", str(first / "config.toml"))
    assert theta(first) == theta(again)
    before, after = (tomllib.loads((run / "config.toml").read_text()) for run in (first, again))
    assert before["settings"] == after["settings"]
    assert after["run"]["env_kwargs"] == "{'sutton_barto_reward': True}"
    assert theta(train(tmp_path / "d", "--config", str(first))) == theta(first), "a run folder has its config.toml"
    more = arguments_from(first, None, {"env_kwargs": {"render_mode": "rgb_array"}})
    assert more["env_kwargs"] == {"sutton_barto_reward": True, "render_mode": "rgb_array"}
    assert arguments_from(first, "Acrobot-v1", {"env_kwargs": {"a": 1}})["env_kwargs"] == {"a": 1}
    other = train(tmp_path / "c", "--config", str(first / "config.toml"), "--seed", "8")
    assert theta(other) != theta(first)


RACE = ["--seed", "4", "--total-timesteps", "12000"]


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--policy", "MlpPolicy", "--net-arch", "3", "--rungs", "2"],
        pytest.param(["--population-scale", "2", "--trials", "3"], marks=pytest.mark.slow),
    ],
)
def test_a_race_is_repeated_from_its_config(flags: list[str], tmp_path: Path) -> None:
    first = train(tmp_path / "a", "FrozenLake-v1", *RACE, *flags)
    again = train(tmp_path / "b", "--config", str(first))
    assert theta(first) == theta(again)
    before, after = (tomllib.loads((run / "config.toml").read_text()) for run in (first, again))
    for noted in ("given", "racing", "rungs", "recipe"):
        assert before["run"][noted] == after["run"][noted]
    assert before["settings"] == after["settings"]
    other = train(tmp_path / "c", "--config", str(first), "--sigma", "0.5", "--seed", "5")
    given = tomllib.loads((other / "config.toml").read_text())["run"]["given"]
    assert given == {**before["run"]["given"], "sigma": 0.5}


def test_a_race_that_was_interrupted_is_repeated_from_its_config(tmp_path: Path) -> None:
    whole = train(tmp_path / "a", "FrozenLake-v1", *RACE)
    folder, given = RunFolder(tmp_path / "b"), {"total_timesteps": 12000}
    folder.path.mkdir()
    with FastES("FrozenLake-v1", seed=4, n_workers=0, **given) as model:  # type: ignore[arg-type]
        folder.write_config(model, {})
        model.learn(12000, [folder, lambda *_: False])
        assert model.selection.is_open_race
        recipes = [trial.recipe for trial in model.selection.trials]
    with FastES.from_config(folder.path, n_workers=0) as again:
        assert recipes == [trial.recipe for trial in again.selection.trials][: len(recipes)]
        again.learn()
        assert again.theta.tobytes() == theta(whole)


def test_what_a_search_wrote_is_taken_and_flags_win(best: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "runs", "--config", str(best), "--sigma", "0.5", "--num-bins", "7", "--seed", "1")
    config = tomllib.loads((run / "config.toml").read_text())
    assert (config["run"]["env"], config["run"]["seed"]) == ("CartPole-v1", 1)
    settings = config["settings"]
    assert (settings["sigma"], settings["population_size"], settings["total_timesteps"]) == (0.5, 4, 300)
    assert settings["policy_kwargs"] == {"net_arch": [4], "activation_fn": "relu", "num_bins": 7}
    assert settings["learning_rate"] == 0.02, "the default's, and not CartPole's preset's"


def test_a_model_from_a_file(best: Path) -> None:
    with FastES.from_config(best, seed=3, n_workers=0, sigma=0.5) as model:
        assert (model.source.name, model.settings.sigma, model.settings.population_size) == ("CartPole-v1", 0.5, 4)
        learn(model, 1)
    with FastES.from_config(best, "Acrobot-v1", n_workers=0, policy="LinearPolicy") as model:
        assert (model.source.name, model.settings.sigma, model.settings.policy_kwargs) == ("Acrobot-v1", 0.25, {})


def test_another_policy_that_sees_images_keeps_the_files_convolutions(tmp_path: Path) -> None:
    path = tmp_path / "best.toml"
    path.write_text('["fastes/Catch-v0"]\npolicy = "CnnPolicy"\npolicy_kwargs = { cnn = [[3, 3, 1]], net_arch = [4] }\n')
    for policy, given, expected in (
        ("CnnPolicy", {}, {"cnn": [[3, 3, 1]], "net_arch": [4]}),
        ("CnnLstmPolicy", {}, {"cnn": [[3, 3, 1]]}),
        ("CnnLstmPolicy", {"lstm_hidden_size": 5}, {"cnn": [[3, 3, 1]], "lstm_hidden_size": 5}),
        ("MlpPolicy", {}, {}),
    ):
        with FastES.from_config(path, n_workers=0, policy=policy, policy_kwargs=given) as model:
            assert model.settings.policy_kwargs == expected
        if not given:
            with FastES.from_config(path, n_workers=0, policy=policy) as model:
                assert model.settings.policy_kwargs == expected


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("sigma = ", {}, "is not TOML"),
        ("sigma = 0.1\n", {}, "holds no settings: expected a run's config.toml"),
        ("", {}, "holds no settings"),
        ("[CartPole-v1]\nsigam = 0.1\n", {}, "best.toml: unknown setting 'sigam'; did you mean 'sigma'"),
        ("[CartPole-v1]\nn_delta = 8\n", {}, "unknown setting 'n_delta': population_size is twice that here"),
        ("[A-v0]\n[B-v0]\n", {}, "several environments, ['A-v0', 'B-v0']: name one"),
        ("[settings]\nsigma = 0.1\n", {}, "names no environment"),
        ("[CartPole-v1]\n", {"preset": "paper"}, "settings start from one of the two"),
        ('[CartPole-v1]\nsigma = "function"\n', {}, "sigma was a function"),
        ('[CartPole-v1]\npolicy = "TorchPolicy"\n', {}, "policy was a TorchPolicy"),
        ('[run]\nenv = "CartPole-v1"\nenv_kwargs = "open(1)"\n[settings]\n', {}, "not plain values: pass them"),
    ],
)
def test_a_file_that_cannot_be_taken(
    tmp_path: Path, text: str, arguments: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "best.toml"
    path.write_text(text)
    with pytest.raises((ValueError, TypeError)) as caught:
        FastES.from_config(path, **arguments)
    assert said in str(caught.value)
    flags = [part for name, value in arguments.items() for part in (f"--{name}", value)]
    assert main(["train", "--config", str(path), "--runs", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(tmp_path / "none.toml")]) == 1
    assert "none.toml" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path), "--config", "best.toml"]) == 2
    assert "--config" in capsys.readouterr().err
