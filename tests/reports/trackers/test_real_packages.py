"""Risk: a package of a tracker changes, and what arrives there is not what progress.csv has. Nothing here needs a network."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import run_script

from fastes.reports.logged_names import OF_REPORTERS
from fastes.reports.progress_rows import read_progress
from fastes.reports.trackers.noted_run import read_noted_run
from fastes.runs.run_config import read_config

# a run that is resumed; in a process of its own, since the packages start threads and services, and read their variables once
_SCRIPT = """
    import os, sys
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", TRACKIO_DIR=os.path.abspath("trackio"), HF_HUB_OFFLINE="1")
    from fastes.cli.main import main

    short = ["--quiet", "--workers", "0", "--preset", "default", "--population-size", "8", "--target-return", "none"]
    assert main(["train", "CartPole-v1", "--seed", "3", "--total-timesteps", "1000", "--report", sys.argv[1], *short]) == 0
    again = ["--quiet", "--workers", "0", "--total-timesteps", "2000"]
    assert main(["train", "--resume", "runs/CartPole-v1/1", *again]) == 0
"""


def run_of(name: str, folder: Path) -> tuple[dict[str, list[float]], str, float]:
    """Train with a reporter, and resume. Returns the columns of progress.csv, the run's name and its result."""
    pytest.importorskip(name)
    result = run_script(_SCRIPT, folder, name)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    run = folder / "runs" / "CartPole-v1" / "1"
    noted, config = read_noted_run(run), read_config(run / "config.toml")
    assert noted.reporters == (name,)
    assert config is not None
    return read_progress(run / "progress.csv"), noted.name, config["run"]["result"]["mean"]


def expected(columns: dict[str, list[float]], key: str) -> dict[int, float]:
    """Step -> value of a key, from progress.csv."""
    values = zip(columns["timesteps"], columns[OF_REPORTERS[key]], columns["eval_generation"], strict=True)
    is_eval = key.startswith("es/eval_")
    return {int(step): value for step, value, has_eval in values if math.isfinite(value) and (has_eval or not is_eval)}


def assert_as_in_the_file(columns: dict[str, list[float]], found: dict[str, dict[int, float]], rel: float = 0.0) -> None:
    assert len(columns["timesteps"]) > 4
    for key in OF_REPORTERS:
        wanted = expected(columns, key)
        assert found[key].keys() == wanted.keys(), key
        assert list(found[key].values()) == pytest.approx(list(wanted.values()), rel=rel or 1e-12), key


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    columns, _, result = run_of("tensorboard", tmp_path)
    run = accumulator.EventAccumulator(str(tmp_path / "runs" / "CartPole-v1" / "1"), size_guidance={"scalars": 0})
    run.Reload()
    found = {key: {event.step: event.value for event in run.Scalars(key)} for key in run.Tags()["scalars"]}
    assert_as_in_the_file(columns, found, rel=1e-6)
    assert list(found["result/mean"].values())[-1] == pytest.approx(result)
    content = b"".join(path.read_bytes() for path in (tmp_path / "runs" / "CartPole-v1" / "1").glob("events.*"))
    assert b"population_size" in content, "as hyper-parameters"


def test_tensorboard_forgets_what_a_resumed_run_plays_again(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from fastes.reports.trackers.courier import Run
    from fastes.reports.trackers.tensorboard import TensorBoard

    for resumed_at, steps in ((0, (10, 20, 30)), (20, (25, 40))):
        reporter = TensorBoard()
        reporter.start(Run("x", {"seed": 1}, tmp_path, resumed_at))
        for step in steps:
            reporter.log(step, {"es/sigma": float(step)})
        reporter.end()
    run = accumulator.EventAccumulator(str(tmp_path))
    run.Reload()
    assert [event.step for event in run.Scalars("es/sigma")] == [10, 20, 25, 40]


def test_wandb(tmp_path: Path) -> None:
    columns, name, result = run_of("wandb", tmp_path)
    records = [each for path in sorted(tmp_path.glob(f"wandb/offline-run-*/run-{name}.wandb")) for each in wandb_records(path)]
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2, "each session writes its own file, under one id"
    found: dict[str, dict[int, float]] = {}
    summary: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for each in records:
        kind = each.WhichOneof("record_type")
        if kind == "history":
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in each.history.item}
            step = int(row.pop("_step"))
            for key, value in row.items():
                found.setdefault(key, {})[step] = value
        elif kind == "summary":
            summary.update({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in each.summary.update})
        elif kind == "run":
            assert each.run.run_id == name
            config.update({item.key: json.loads(item.value_json) for item in each.run.config.update})
    assert_as_in_the_file(columns, found)
    assert summary["result/mean"] == result
    assert (config["population_size"], config["env"], config["seed"]) == (8, "CartPole-v1", 3)


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a header of 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, parts = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at < len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(parts)
            parts = b""


def test_wandb_without_a_key_asks_nothing(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = """
        import os, warnings
        for name in ("WANDB_API_KEY", "WANDB_MODE"):
            os.environ.pop(name, None)
        os.environ["HOME"] = os.environ["WANDB_CONFIG_DIR"] = os.getcwd()  # no netrc
        from fastes import FastES

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            FastES("CartPole-v1", n_workers=0, seed=0, preset="default").learn(1000, "wandb")
        (message,) = [str(each.message) for each in caught if "wandb" in str(each.message)]
        print(message)
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "no API key: 'wandb login' sets one, and WANDB_MODE=offline needs none" in result.stdout


def test_wandb_logs_to_the_run_that_a_script_has_begun(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = """
        import wandb
        from fastes import FastES

        run = wandb.init(mode="offline", project="own", id="own-id", config={"tried": 1})
        FastES("CartPole-v1", n_workers=0, seed=0, preset="default", target_return="none").learn(1000, "wandb")
        assert run.summary["result/solved"] == 0.0
        assert run.config["seed"] == 0
        run.log({"mine": 1.0})  # it is still open
        run.finish()
    """
    result = run_script(script, tmp_path)
    assert result.returncode == 0, result.stderr
    (path,) = tmp_path.glob("wandb/offline-run-*/run-own-id.wandb")
    keys = {item.key or "/".join(item.nested_key) for each in wandb_records(path) for item in each.history.item}
    assert {"es/sigma", "rollout/ep_rew_mean", "mine"} <= keys


def test_trackio(tmp_path: Path) -> None:
    columns, name, result = run_of("trackio", tmp_path)
    script = """
        import json, os, sys
        os.environ["TRACKIO_DIR"] = os.path.abspath("trackio")
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        (run,) = trackio.Api().runs("fastes")
        json.dump([run.name, run.config, SQLiteStorage.get_logs("fastes", run.name)], open("found.json", "w"))
    """
    assert run_script(script, tmp_path).returncode == 0
    run_name, config, rows = json.loads((tmp_path / "found.json").read_text())
    assert run_name == name
    assert (config["population_size"], config["env"], config["seed"]) == (8, "CartPole-v1", 3)
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        for key, value in row.items():
            found.setdefault(key, {})[row["step"]] = value
    assert_as_in_the_file(columns, found)
    assert list(found["result/mean"].values())[-1] == result
