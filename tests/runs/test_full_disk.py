"""Risk: a disk that is full, or a folder that became read-only, ends a training or tears its files."""

from __future__ import annotations

import csv
import os
import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from envs_for_tests import Toy
from faults import caught_warnings
from processes import run_script
from training import learn, without_times
from watched_workers import Clock

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.reports.csv_log import CsvLog
from fastes.runs.run_folder import RunFolder
from fastes.training.record import Record

SETTINGS: dict[str, Any] = {"population_size": 4, "seed": 5, "target_return": "none", "policy_kwargs": {"net_arch": [4]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder that can be taken away and given back."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def _take_away(folder: Path) -> None:
    """Nothing can be written below a plain file; root may write into any folder, so permissions would not do."""
    folder.rename(folder.with_name("aside"))
    folder.write_text("in the way")


def _give_back(folder: Path) -> None:
    folder.unlink()
    folder.with_name("aside").rename(folder)


def _rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_training_goes_on_and_writes_later_what_it_could_not(folder: Path) -> None:
    run = RunFolder(folder, checkpoint_seconds=0.0)
    records: list[Record] = []

    def disturb(_: FastES, record: Record) -> bool:
        records.append(record)
        if record.generation == 3:
            _take_away(folder)
        if record.generation == 7:
            _give_back(folder)
        return record.generation < 9

    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        with caught_warnings() as messages:
            model.learn(10**6, [run, disturb])
        assert model.generation == 9
    assert [int(row["generation"]) for row in _rows(folder)] == list(range(1, 10))
    assert [float(row["theta_norm"]) for row in _rows(folder)] == [record.theta_norm for record in records]
    assert read_checkpoint(folder / "checkpoint.zip").data["trainings"][0]["generation"] == 9
    assert sum("progress.csv cannot be written" in message for message in messages) == 1
    assert sum("checkpoint.zip cannot be written" in message for message in messages) == 1
    assert len(messages) == 2
    assert not run.unwritten, "all was written in the end"


def test_a_folder_that_took_the_place_of_the_trainings_own_stays_as_it_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(_: FastES, record: Record) -> bool:
        if record.generation == 3:
            folder.rename(tmp_path / "moved")
            folder.mkdir()
            (folder / "best.zip").write_text("another's")
        return record.generation < 6

    monkeypatch.chdir(tmp_path)
    run = RunFolder(folder, checkpoint_seconds=0.0)
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model, run, caught_warnings() as messages:
        model.learn(10**6, [run, replace])
        place = run.save_somewhere(model)
        run.keep_as_best(model)
        assert not run.has_best()
    assert [path.name for path in folder.iterdir()] == ["best.zip"]
    assert (folder / "best.zip").read_text() == "another's"
    assert read_checkpoint(place).data["trainings"][0]["generation"] == 6
    assert place.parent == tmp_path
    assert read_checkpoint(tmp_path / "moved" / "checkpoint.zip").data["trainings"][0]["generation"] == 3
    assert any("another folder lies there: this training's own was moved or deleted" in message for message in messages)


def test_training_stops_where_that_is_asked_for(folder: Path) -> None:
    run = RunFolder(folder, checkpoint_seconds=0.0, on_save_error="stop")

    def disturb(_: FastES, record: Record) -> bool:
        if record.generation == 3:
            _take_away(folder)
        return record.generation < 9

    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.raises(OSError):
            model.learn(10**6, [run, disturb])
        assert model.generation == 4
        learn(model, 5)  # the model is whole
    _give_back(folder)
    assert read_checkpoint(folder / "checkpoint.zip").data["trainings"][0]["generation"] == 3


def test_a_training_that_cannot_save_at_all_does_not_begin(folder: Path) -> None:
    _take_away(folder)
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model, pytest.raises(OSError):
        model.learn(10**6, RunFolder(folder))


def test_the_end_of_a_training_is_saved_somewhere(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        run = RunFolder(folder)
        assert run.save_somewhere(model) == folder / "checkpoint.zip"
        _take_away(folder)
        with caught_warnings() as messages:
            place = run.save_somewhere(model)
        assert place.parent == tmp_path / "here"
        assert read_checkpoint(place).data["trainings"][0]["generation"] == 2
        assert str(place) in messages[0]


def test_a_place_that_is_not_there_does_not_hide_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No working directory any more, and no home."""
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # an account that the system does not know: KeyError
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        _take_away(folder)
        with caught_warnings() as messages:
            place = RunFolder(folder).save_somewhere(model)
    assert place.parent == tmp_path / "temporary"
    assert read_checkpoint(place).data["trainings"][0]["generation"] == 2
    assert str(place) in messages[0]


@pytest.mark.parametrize("limit", [700, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 1111, 2000))])
def test_a_file_size_limit_tears_nothing(limit: int, tmp_path: Path) -> None:
    """A real quota: RLIMIT_FSIZE makes write() fail in the middle of a line and of a checkpoint."""
    script = """
        import csv, resource, signal, sys, warnings
        from fastes import FastES
        from fastes.runs.run_folder import RunFolder
        from pathlib import Path
        run, limit = Path("run"), int(sys.argv[1])
        run.mkdir()
        def limited(model, record):
            if record.generation == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            if record.generation == 12:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if 2 <= record.generation < 12:
                FastES.load(run / "checkpoint.zip", n_workers=0).close()
                rows = list(csv.reader(open(run / "progress.csv")))
                assert all(len(row) == len(rows[0]) for row in rows), rows
            return record.generation < 14
        with FastES("CartPole-v1", n_workers=2, population_size=4, seed=0, target_return="none") as model:
            model.learn(10**9, [RunFolder(run, 0.0), limited])
        rows = list(csv.reader(open(run / "progress.csv")))
        assert [int(row[0]) for row in rows[1:]] == list(range(1, 15)), rows
        with FastES.load(run / "checkpoint.zip", n_workers=0) as model:
            assert model.generation == 14
    """
    result = run_script(script, tmp_path, str(limit))
    assert result.returncode == 0, result.stderr
    assert "cannot be written" in result.stderr
    assert not [name for name in os.listdir(tmp_path / "run") if name.endswith(".tmp")]


def test_statistics_that_are_owed_come_in_order(tmp_path: Path) -> None:
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        records = [record._replace(seconds=1.0) for record in learn(model, 3)]  # slow ones are written at once
    log = CsvLog(tmp_path / "progress.csv")
    log.write(records[0])
    shutil.move(tmp_path / "progress.csv", tmp_path / "aside")
    (tmp_path / "progress.csv").mkdir()
    with pytest.raises(OSError):
        log.write(records[1])
    (tmp_path / "progress.csv").rmdir()
    shutil.move(tmp_path / "aside", tmp_path / "progress.csv")
    log.write(records[2])
    rows = _rows(tmp_path)
    assert [row["generation"] for row in rows] == ["1", "2", "3"]
    assert [float(row["return_mean"]) for row in rows] == [without_times(record)["return_mean"] for record in records]


def test_statistics_of_quick_generations_wait_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("fastes.reports.csv_log.time", SimpleNamespace(monotonic=clock))
    with FastES(Toy, preset="default", n_workers=0, **SETTINGS) as model:
        records = [record._replace(seconds=0.001) for record in learn(model, 6)]
    log, seen = CsvLog(tmp_path / "progress.csv"), []
    for record, passed in zip(records, (0.0, 0.5, 0.6, 0.1, 0.1, 0.1), strict=True):
        clock.now += passed
        log.write(record if record is not records[4] else record._replace(seconds=2.0))
        seen.append(len(_rows(tmp_path)))
    assert seen == [1, 1, 3, 3, 5, 5]
    log.flush()
    assert [row["generation"] for row in _rows(tmp_path)] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("seeds", [("--seed", "1"), ("--seeds", "2", "--seed", "1")], ids=["one", "several"])
@pytest.mark.parametrize("name", ["learning_curve.png", "best.zip"])
def test_a_report_without_room_for_a_file_is_told_and_can_be_made_again(
    seeds: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = FastES.save

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def no_best(model: FastES, path: Path) -> None:
        full() if path.name == "best.zip" else save(model, path)

    command = ["train", "Toy-v0", "--preset", "default", "--population-size", "4", "--total-timesteps", "300", "--quiet"]
    command += ["--workers", "0", "--target-return", "none", "--eval-every", "1000", "--runs", str(tmp_path)]
    with monkeypatch.context() as patch:
        if name == "best.zip":
            patch.setattr(FastES, "save", no_best)
        else:
            patch.setattr("fastes.runs.run_folder.plot_curves", full)
        with pytest.warns(
            RuntimeWarning, match=rf"{name} cannot be written .*No space.*: what was there stays, and the report"
        ):
            assert main([*command, *seeds]) == 0
    said = capsys.readouterr().out
    assert f"{name} could not be written; once that is possible: fastes train --resume " in said
    assert "to play " in said
    folder = tmp_path / "Toy-v0" / "1"
    assert "finished = false" in (folder / "config.toml").read_text()
    assert main(["train", "--resume", str(folder), "--workers", "0", "--quiet"]) == 0
    assert (folder / name).exists()
    assert "finished = true" in (folder / "config.toml").read_text()


def test_a_damaged_best_file_does_not_hold_up_the_report(tmp_path: Path) -> None:
    command = ["train", "Toy-v0", "--preset", "default", "--population-size", "4", "--total-timesteps", "300", "--quiet"]
    assert main([*command, "--workers", "0", "--target-return", "none", "--runs", str(tmp_path)]) == 0
    folder = tmp_path / "Toy-v0" / "1"
    (folder / "best.zip").write_bytes((folder / "best.zip").read_bytes()[:500])
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("finished = true", "finished = false"))
    with pytest.warns(RuntimeWarning, match=r"best\.zip.*; it is kept as .*best\.zip\.damaged, and the last parameters take"):
        assert main(["train", "--resume", str(folder), "--workers", "0", "--quiet"]) == 0
    assert "finished = true" in config.read_text()
    assert read_checkpoint(folder / "best.zip").data["trainings"]


def test_the_command_line_passes_the_choice_on(tmp_path: Path) -> None:
    from fastes.cli.main import build_parser

    assert build_parser().parse_args(["train", "CartPole-v1"]).on_save_error == "continue"
    assert build_parser().parse_args(["train", "CartPole-v1", "--on-save-error", "stop"]).on_save_error == "stop"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert RunFolder(tmp_path).on_save_error == "continue"
