"""Risk: what is told of a run is another's, one damaged file hides all others, or a file that is looked at runs code."""

from __future__ import annotations

import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from edited_checkpoints import edited
from envs_for_tests import Toy
from processes import environment, fastes_command
from terminals import shown
from written_runs import write_run

from fastes import CallablePolicy, FastES
from fastes.checkpoints.reader import read_description
from fastes.cli.main import main
from fastes.errors import WorkerError
from fastes.runs.run_folder import RunFolder
from fastes.runs.run_info import read_run_info
from fastes.settings.preset_loader import tomllib
from fastes.system.interrupts import Terminated

TRAIN = ["train", "CartPole-v1", "--workers", "0", "--quiet", "--target-return", "none"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    flags = ["--seed", "3", "--total-timesteps", "1500", "--sigma", "0.25", "--runs", str(root)]
    assert main([*TRAIN, *flags]) == 0
    return root / "CartPole-v1" / "1"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be spoiled."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def _told(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The rows that are printed, by their names."""
    assert main(["info", str(path)]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == str(path)
    return {row[2:16].strip(): row[16:] for row in rows if not row.startswith("problem: ")}


def test_a_run_is_told_as_it_was_made(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told, config = _told(run, capsys), tomllib.loads((run / "config.toml").read_text())
    result = config["run"]["result"]
    assert told["environment"] == "CartPole-v1, seed 3"
    assert (told["observations"], told["actions"]) == ("shape (4,)", "2 choices")
    assert told["policy"] == "LinearPolicy 4-2, 8 parameters"
    assert told["training"].startswith("finished, ")
    assert " of 1,500 steps, " in told["training"]
    assert told["return"].startswith(
        f"{result['mean']:.1f} +- {result['std']:.1f}, worst {result['worst']:.1f} over 100 episodes"
    )
    assert told["settings"] == "preset CartPole-v1, but sigma=0.25 total_timesteps=1500 target_return=none"
    assert "sigma=0.25" in told["not default"]
    assert "policy=LinearPolicy" in told["not default"]
    assert told["trained in"] == "one process"
    assert f"fastes {config['versions']['fastes']}" in told["written by"]
    assert f"progress.csv ({(run / 'progress.csv').stat().st_size:,} B)" in told["files"]


def test_a_checkpoint_alone_tells_what_it_holds(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = read_run_info(run)
    told = _told(run / "checkpoint.zip", capsys)
    assert (
        told["training"]
        == f"{whole.timesteps:,} of 1,500 steps, {whole.generations:,} generations, {whole.episodes:,} episodes"
    )
    assert told["settings"].startswith(
        "no file says what they began with; compared with the environment's preset CartPole-v1, but "
    )
    assert "files" not in told
    assert read_run_info(run / "best").checkpoint == run / "best.zip"


def test_json_has_all_of_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == {
        "recipe": "",
        "name": "LinearPolicy",
        "layer_sizes": [4, 2],
        "num_params": 8,
        "obs_shape": [4],
        "flattened": False,
        "actions": "2 choices",
    }
    assert told["base"] == {
        "kind": "preset",
        "name": "CartPole-v1",
        "changed": {"sigma": 0.25, "total_timesteps": 1500, "target_return": "none"},
    }
    assert told["result"]["episodes"] == 100


def test_a_resumed_run_began_with_its_first_preset(run: Path) -> None:
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "2500"]) == 0
    base = read_run_info(run).base
    assert base is not None
    assert (base.kind, base.name) == ("preset", "CartPole-v1")
    assert base.changed is not None
    assert base.changed["total_timesteps"] == 2500


def test_the_winner_of_a_race_is_told_with_its_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--workers", "0", "--quiet", "--seed", "0", "--runs", str(tmp_path), "--env-kwargs", "sutton_barto_reward=true"]
    budget = ["--total-timesteps", "4000", "--population-size", "4", "--target-return", "none"]
    assert main(["train", "CartPole-v0", *flags, *budget]) == 0
    capsys.readouterr()
    run = tmp_path / "CartPole-v0" / "1"
    recipe = tomllib.loads((run / "config.toml").read_text())["run"]["recipe"]
    told = _told(run, capsys)
    assert told["settings"].startswith(f"recipe {recipe}, but population_size=4")
    assert told["environment"] == "CartPole-v0, {'sutton_barto_reward': True}, seed 0"
    of_file = read_run_info(run / "checkpoint.zip").base
    assert of_file is not None
    assert (of_file.kind, of_file.name) == ("recipe", recipe)


@pytest.mark.parametrize(
    ("error", "status", "ended", "word"),
    [
        (WorkerError("OwnError: my words\nTraceback", generation=12), 1, "failed: OwnError: my words", "failed"),
        (RuntimeError("first\nsecond"), 1, "failed: RuntimeError: first", "failed"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C", "stopped"),
        (Terminated(signal.SIGTERM), 143, "stopped by SIGTERM", "stopped"),
    ],
)
@pytest.mark.parametrize("seeds", [1, 2])
def test_what_ended_a_training_is_told_until_it_is_resumed(
    seeds: int,
    error: BaseException,
    status: int,
    ended: str,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = FastES.learn_async

    async def fail(model: FastES, *arguments: Any, **more: Any) -> FastES:
        await whole(model, 100, *arguments[1:], **more)
        raise error

    flags = ["--total-timesteps", "1000", "--seed", "1", "--runs", str(tmp_path), *(["--seeds", "2"] if seeds > 1 else [])]
    with monkeypatch.context() as patched:
        patched.setattr(FastES, "learn_async", fail)
        if isinstance(error, RuntimeError):
            with pytest.raises(RuntimeError):
                main([*TRAIN, *flags])
        else:
            assert main([*TRAIN, *flags]) == status
    capsys.readouterr()
    runs = [tmp_path / "CartPole-v1" / str(number + 1) for number in range(seeds)]
    told = [_told(run, capsys) for run in runs]
    assert [its["training"].partition(",")[0] for its in told] == ["stopped"] * seeds
    assert ended in [its["ended"] for its in told]
    assert {its["ended"] for its in told} <= {ended, "stopped when another seed failed"}
    assert main(["runs", str(tmp_path)]) == 0
    assert f" {word} " in capsys.readouterr().out
    assert main(["train", "--resume", str(runs[0]), "--workers", "0", "--quiet"]) == 0
    capsys.readouterr()
    assert "ended" not in _told(runs[0], capsys)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize(
    ("flags", "status", "ended", "word"),
    [
        (["--target-return", "5"], "finished", "solved, target 5", "solved"),
        (["--max-minutes", "1e-9"], "stopped", "out of time: --max-minutes ended it before its budget", "out of time"),
        ([], "stopped", "stopped by Ctrl-C", "stopped"),
    ],
    ids=["solved", "out of time", "Ctrl-C"],
)
def test_an_end_before_the_budget_is_told(
    flags: list[str],
    status: str,
    ended: str,
    word: str,
    seeds: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not flags:
        monkeypatch.setattr(RunFolder, "on_generation", lambda *_: signal.raise_signal(signal.SIGINT))
    more = ["--total-timesteps", "1000000", "--seed", "1", "--runs", str(tmp_path), "--target-episodes", "2"]
    more += ["--seeds", "2"] if seeds > 1 else []
    assert main([*TRAIN, *more, *flags]) == (0 if flags else 130)
    capsys.readouterr()
    run = tmp_path / "CartPole-v1" / "1"
    told = _told(run, capsys)
    assert told["training"].startswith(f"{status}, ")
    assert told["ended"] == ended
    assert main(["runs", str(tmp_path)]) == 0
    assert f"  {word}  " in capsys.readouterr().out
    seen = read_run_info(run)
    assert (seen.status, seen.ended) == (status, ended)


def test_a_run_that_a_stop_finds_solved_is_not_told_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation that still played when Ctrl-C came has reached the target."""
    monkeypatch.setattr(RunFolder, "on_generation", lambda *_: signal.raise_signal(signal.SIGINT))
    more = ["--seed", "1", "--runs", str(tmp_path), "--target-episodes", "2", "--target-return", "5"]
    assert main([*TRAIN, *more]) == 130
    assert "stopped by Ctrl-C; the target is reached; for the report: fastes train --resume " in capsys.readouterr().out
    monkeypatch.undo()
    run = tmp_path / "CartPole-v1" / "1"
    assert _told(run, capsys)["ended"] == "solved, target 5"
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet"]) == 0
    assert read_run_info(run).result is not None


def test_a_run_that_its_budget_has_ended_tells_no_other_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ended" not in _told(run, capsys)


def test_no_recipe_leads_a_race_without_an_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FastES(Toy, n_workers=0, seed=0, rungs=2, sigma=0.3) as model, RunFolder(tmp_path) as folder:
        folder.write_config(model, {})
        folder.save(model)
    assert _told(tmp_path, capsys)["return"] == "no evaluation yet"
    assert _told(tmp_path, capsys)["race"].endswith("; no recipe has been evaluated yet")


def test_an_interrupted_race_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "race"
    run.mkdir()
    with FastES(Toy, n_workers=0, seed=0, rungs=2, sigma=0.3) as model, RunFolder(run, checkpoint_seconds=0.0) as writer:
        writer.write_config(model, {})
        model.learn(10**6, [writer, lambda model, _: (model.selection.present.recipe, model.generation) != ("network", 2)])
    trials = read_description(run / "checkpoint.zip")["selection"]["trials"]
    leader = max(trials, key=lambda trial: (trial["eval_return"] or -math.inf, trial["recent_return"]))["recipe"]
    told = _told(run, capsys)
    assert told["race"] == (
        f"4 recipes (linear, unbiased, network, memory); {leader} leads, whose evaluations are the best; no rung has ended"
    )
    assert told["settings"] == "each recipe has its own"
    assert told["not default"] == "rungs=2 sigma=0.3"
    assert told["policy"].startswith("MlpPolicy ")
    assert told["policy"].endswith(" (of recipe network)")
    race = read_run_info(run).race
    assert race is not None
    assert (race.winner, race.leader, race.rungs) == ("", leader, ())
    assert _told(run / "checkpoint.zip", capsys)["race"] == told["race"]


def test_the_scores_that_decided_a_race_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noted = {
        "given": {"rungs": 2},
        "racing": {"1": "linear", "2": "unbiased", "3": "network"},
        "rungs": [
            {
                "at_timesteps": 5000,
                "kept": 2,
                "scores": {"2": 3.0, "1": 2.0, "3": "not finite"},
                "recipes": {"2": "unbiased", "1": "linear", "3": "network"},
            }
        ],
    }
    run = write_run(tmp_path / "race", noted=noted)
    first = "3 recipes (linear, unbiased, network); scores after 5,000 steps: unbiased 3.0, linear 2.0, network nan; "
    assert _told(run, capsys)["race"] == f"{first}unbiased leads"
    last = {"at_timesteps": 9000, "kept": 1, "scores": {"1": 4.0, "2": 3.5}, "recipes": {"1": "linear", "2": "unbiased"}}
    earlier = tomllib.loads((run / "config.toml").read_text())
    resumed = {"env": "CartPole-v1", "seed": 0, "given": {}, "at_timesteps": 6000, "rungs": [last], "recipe": "linear"}
    (run / "config.toml").write_text(
        tomli_w.dumps({"run": resumed, "settings": earlier["settings"], "versions": {}, "earlier": [earlier]})
    )
    assert _told(run, capsys)["race"] == f"{first}scores after 9,000 steps: linear 4.0, unbiased 3.5; linear has won"
    assert main(["info", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["race"]
    assert told["recipes"] == noted["racing"]
    assert [rung["scores"] for rung in told["rungs"]] == [[3.0, 2.0, "nan"], [4.0, 3.5]]
    assert (told["winner"], told["leader"]) == ("linear", "linear")


def test_a_policy_in_python_is_told_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = CallablePolicy(lambda theta, obs: np.tanh(theta[:1] * obs[:1]), 3)
    with FastES(Toy, policy, preset="default", n_workers=0, population_size=4) as model:
        model.learn(100)
        model.save(tmp_path / "m.zip")
    told = _told(tmp_path / "m.zip", capsys)
    assert told["policy"] == "CallablePolicy, 3 parameters"
    assert told["actions"] == "those of a policy in Python"


@pytest.mark.parametrize("name", ["config.toml", "progress.csv", "checkpoint.zip", "best.zip"])
@pytest.mark.parametrize("content", [None, b"", b"[[[", bytes(3000)])
def test_a_damaged_file_hides_no_other(name: str, content: bytes | None, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink()
    if content is not None:
        (run / name).write_bytes(content)
    told = _told(run, capsys)
    assert told["environment"] == "CartPole-v1, seed 3"
    assert told["policy"] == "LinearPolicy 4-2, 8 parameters"
    assert " of 1,500 steps" in told["training"]
    assert main(["info", str(run)]) == 0
    said = capsys.readouterr().out
    assert ("problem: " in said) == (content is not None and name in ("config.toml", "checkpoint.zip"))


def test_no_value_of_a_configuration_breaks_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for odd in ("text", 10**400, -1.5, float("nan"), True, [1], {"a": {"b": [1]}}):
        config: dict[str, Any] = tomllib.loads((run / "config.toml").read_text())
        for table in ("run", "settings", "versions"):
            config[table] = dict.fromkeys([*config[table], "cluster", "recipe", "preset"], odd)
        (run / "config.toml").write_text(tomli_w.dumps(config | {"earlier": [{"run": odd}]}))
        for more in ([], ["--json"]):
            assert main(["info", str(run), *more]) == 0
        (run / "config.toml").write_text(tomli_w.dumps(tomllib.loads((run / "config.toml").read_text()) | {"earlier": []}))
    capsys.readouterr()


def test_looking_builds_nothing_and_runs_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hostile.py").write_text("import os\nos.mkdir('exploded')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = {"id": "hostile:Explode-v0", "kwargs": {"entry_point": "hostile:explode"}}
    path = edited(
        run / "checkpoint.zip", run / "checkpoint.zip", lambda data: data.update(env=env, env_name="hostile:Explode-v0")
    )
    text = (run / "config.toml").read_text()
    text = text.replace('env = "CartPole-v1"', 'env = "hostile:Explode-v0"')
    (run / "config.toml").write_text(text.replace('env_kwargs = "{}"', "env_kwargs = \"__import__('hostile')\""))
    monkeypatch.setattr("gymnasium.make", lambda *_, **__: pytest.fail("an environment was built"))
    assert read_run_info(run).env == read_run_info(path).env == "hostile:Explode-v0"
    assert not (tmp_path / "exploded").exists()


def test_what_is_no_run_says_what_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run.parent)]) == 1
    assert "name one of its runs" in capsys.readouterr().err
    assert main(["info", str(run / "config.toml")]) == 1
    assert "it is not a zip file" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [40, 80])
def test_rows_fit_a_terminal(columns: int, run: Path) -> None:
    lines = shown([*fastes_command(), "info", "run"], columns, run.parent, environment(), lambda _: None)
    rows = [line for line in lines[1:] if not line.startswith(" " * 16)]
    assert [row.split()[0] for row in rows][:3] == ["environment", "observations", "actions"]
    assert all(line.startswith("  ") for line in lines[1:]), "a long row goes on below its text"
