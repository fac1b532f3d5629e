"""Risk: a list of runs ends at a damaged file, reads gigabytes, or disturbs a training; what it shows is not the run's."""

from __future__ import annotations

import builtins
import fcntl
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from processes import environment, fastes_command, wait_until
from written_runs import progress_line, write_progress, write_run

from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.reports.progress_rows import Clock, read_last_rows, read_progress
from fastes.runs import folder_lock
from fastes.runs.folder_lock import FolderLock
from fastes.runs.overview import Overview, read_overview
from fastes.runs.run_config import Result
from fastes.settings.preset_loader import tomllib
from fastes.training.record import Record

SMALL = ["--preset", "default", "--population-size", "4", "--net-arch", "4", "--target-return", "none", "--workers", "0"]
TRAIN = ["train", "CartPole-v1", *SMALL, "--quiet", "--seed", "3"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    assert main([*TRAIN, "--total-timesteps", "2000", "--runs", str(root)]) == 0
    return root / "CartPole-v1" / "1"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be spoiled."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in finished.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def _config(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


def _lengthened(run: Path, times: int) -> None:
    """Repeat the rows of progress.csv, so that it is the file of a long run."""
    header, *rows = (run / "progress.csv").read_text().splitlines(keepends=True)
    (run / "progress.csv").write_text("".join([header, *(rows * times)]))


def test_a_finished_run_is_told_as_its_files_have_it(run: Path) -> None:
    seen, columns, config = read_overview(run), read_progress(run / "progress.csv"), _config(run)
    assert seen == Overview(
        path=run,
        env="CartPole-v1",
        seed=3,
        status="finished",
        reason="",
        generations=int(columns["generation"][-1]),
        timesteps=int(columns["timesteps"][-1]),
        budget=2000,
        best=max(*(value for value in columns["eval_return"] if value == value), config["run"]["last_evaluation"]["mean"]),
        result=Result(**config["run"]["result"]),
        solved=False,
        seconds=seen.seconds,
        cpu_seconds=columns["cpu_seconds"][-1],
        updated=(run / "progress.csv").stat().st_mtime,
        env_kwargs="{}",
        settings=config["settings"],
        recipe="",
        preset=config["run"]["preset"],
        ended="",
        word="finished",
        given=None,
    )
    assert seen.seconds == pytest.approx(sum(columns["seconds"]))


def test_a_long_run_is_read_at_its_ends_alone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, amount = read_overview(run), 0
    _lengthened(run, 2000)
    size = (run / "progress.csv").stat().st_size
    opened = builtins.open

    class Counted:
        def __init__(self, file: Any) -> None:
            self.file = file

        def read(self, *most: int) -> bytes:
            nonlocal amount
            content: bytes = self.file.read(*most)
            amount += len(content)
            return content

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    def counting(path: Any, *rest: Any, **more: Any) -> Any:
        file = opened(path, *rest, **more)
        return Counted(file) if str(path).endswith("progress.csv") else file

    monkeypatch.setattr(builtins, "open", counting)
    seen = read_overview(run)
    assert 0 < amount < 20_000 < size
    assert seen._replace(updated=before.updated) == before, "the best evaluation is that of the checkpoint"


def test_a_long_run_that_was_killed_knows_its_time_and_its_best_evaluation(run: Path) -> None:
    config, best = _config(run), read_overview(run).best
    for name in ("seconds", "last_evaluation", "result"):
        del config["run"][name]
    config["run"] |= {"at_seconds": 100.0, "started": "2026-01-01 12:00:00+0100", "finished": False}
    (run / "config.toml").write_text(tomli_w.dumps(config))
    _lengthened(run, 100)
    began = 1767265200.0  # that time, in seconds since 1970
    os.utime(run / "progress.csv", (began + 50.0, began + 50.0))
    seen = read_overview(run)
    assert (seen.status, seen.result) == ("stopped", None)
    assert (seen.seconds, seen.best) == (150.0, best)
    del config["run"]["at_seconds"]
    (run / "config.toml").write_text(tomli_w.dumps(config))
    assert read_overview(run).seconds is None


def test_the_time_of_a_run_that_goes_on_is_that_of_all_its_sessions(run: Path) -> None:
    first = read_overview(run).seconds
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "4000"]) == 0
    noted, rows = _config(run)["run"], read_progress(run / "progress.csv")
    assert noted["at_seconds"] == pytest.approx(first)
    assert noted["seconds"] == pytest.approx(sum(rows["seconds"]))
    assert noted["seconds"] > noted["at_seconds"] > 0.0


def test_trials_train_at_the_same_time() -> None:
    columns = {
        "seconds": [1.0, 2.0, math.nan, 4.0],
        "trial": [1.0, 2.0, 1.0, 1.0],
        "timesteps": [1.0, 2.0, 3.0, 4.0],
        "cpu_seconds": [1.0, 2.0, 3.0, 4.0],
    }
    clock = Clock()
    clock.add({name: np.array(values) for name, values in columns.items()})
    assert clock.rows[:, 1].tolist() == [0.0, 1.0, 2.0, 2.0, 5.0]


def test_a_run_is_running_while_a_process_has_its_lock(tmp_path: Path) -> None:
    command = [*fastes_command(), *TRAIN, "--total-timesteps", "1000000000"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    run = tmp_path / "runs" / "CartPole-v1" / "1"
    try:
        wait_until(lambda: read_overview(run).generations > 0, "the first generations")
        if sys.platform == "linux":
            assert read_overview(run).status == "running"
        wait_until(lambda: (run / "progress.csv").stat().st_size > 100_000, "more rows than are read")
        seen = read_overview(run)
        assert 0.0 < (seen.seconds or 0.0) < 600.0
        assert (seen.env, seen.seed) == ("CartPole-v1", 3)
    finally:
        process.kill()
        process.wait()
    seen = read_overview(run)
    assert (seen.status, seen.reason, seen.result) == ("stopped", "", None)
    saved = read_checkpoint(run / "checkpoint.zip").data["trainings"][0]["counters"]
    assert seen.best is not None
    assert seen.best >= (saved["best_eval_return"] or 0.0)


def test_a_look_takes_no_lock(run: Path) -> None:
    mine, another = FolderLock(run), FolderLock(run)
    mine.take()
    read_overview(run)
    mine.release()
    another.take()
    assert another.held
    another.release()
    assert read_overview(run).status == "finished"


@pytest.fixture
def _no_list_of_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "holders", dict)


@pytest.mark.usefixtures("_no_list_of_locks")
def test_a_training_is_seen_by_its_lock_if_the_system_does_not_list_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "1", noted={"finished": False})
    lock = FolderLock(run)
    assert read_overview(run).status == "stopped"
    lock.take()
    assert [read_overview(run).status for _ in range(2)] == ["running", "running"]
    lock.release()
    assert read_overview(run).status == "stopped"


def test_a_lock_on_the_same_inode_of_another_file_system_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "1")
    monkeypatch.setattr(folder_lock, "holders", lambda: {run.stat().st_ino: 1})
    assert read_overview(run).status == "finished"


def test_a_training_may_begin_while_somebody_looks(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = os.open(run, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert folder_lock.is_locked(run) is False
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looking))
    lock = FolderLock(run)
    lock.take()
    assert lock.held
    lock.release()


def test_a_row_that_is_being_written_does_not_count(run: Path) -> None:
    content = (run / "progress.csv").read_bytes()
    whole = read_overview(run)
    cut = content.rindex(b"\n", 0, -1) + 1
    for end in (cut + 1, cut + 30, len(content) - 2, len(content) - 1):
        (run / "progress.csv").write_bytes(content[:end])
        assert read_overview(run).generations == whole.generations - 1, f"cut at {end} of {len(content)}"


@pytest.mark.parametrize("most", [1, 200, 1000])
def test_the_last_rows_are_those_of_the_whole_file(most: int, run: Path) -> None:
    columns = read_progress(run / "progress.csv")
    size = (run / "progress.csv").stat().st_size
    rows = read_last_rows(run / "progress.csv", Record._fields, most)
    count = len(rows.columns["generation"])
    assert not rows.are_all
    assert count < most / 100
    assert rows.columns["timesteps"].tolist() == (columns["timesteps"][-count:].tolist() if count else [])
    everything = read_last_rows(run / "progress.csv", Record._fields, size)
    assert everything.are_all
    for name in Record._fields:
        assert everything.columns[name].tobytes() == columns[name].tobytes(), name


def _spoil(path: Path, how: str) -> None:
    content = path.read_bytes() if path.is_file() else b""
    path.unlink(missing_ok=True)
    match how:
        case "missing":
            pass
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link to nothing":
            path.symlink_to("nowhere")
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "noise":
            path.write_bytes(bytes(range(256)) * 200)
        case "zeros":
            path.write_bytes(bytes(100_000))
        case "no line end":
            path.write_bytes(b"generation," * 20_000)


@pytest.mark.parametrize(
    "how", ["missing", "empty", "folder", "pipe", "link to nothing", "half", "noise", "zeros", "no line end"]
)
@pytest.mark.parametrize("name", ["config.toml", "progress.csv", "checkpoint.zip"])
def test_a_spoiled_file_leaves_what_the_others_tell(name: str, how: str, run: Path) -> None:
    whole = read_overview(run)
    _spoil(run / name, how)
    seen = read_overview(run)
    assert (seen.env, seen.seed, seen.budget) == ("CartPole-v1", 3, 2000), "config.toml, or else the checkpoint"
    if name != "progress.csv":
        assert (seen.timesteps, seen.best) == (whole.timesteps, whole.best)
    if name != "config.toml":
        assert (seen.status, seen.result) == ("finished", whole.result)
    elif how != "missing":
        assert seen.reason == "config.toml is damaged"


def test_a_name_that_is_no_text_is_shown_as_its_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / os.fsdecode(b"a\xff\n") / "1")
    assert main(["runs", str(tmp_path)]) == 0
    assert r"/a\xff\n/1 " in capsys.readouterr().out


def test_a_folder_without_a_run_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "empty", tmp_path / "file", tmp_path / "missing", Path("a\0b"), Path("x" * 5000)):
        seen = read_overview(path)
        assert seen.status == "unreadable"
        assert seen.reason
        assert (seen.generations, seen.seconds, seen.updated, seen.settings) == (0, None, None, {})
    assert "neither config.toml nor progress.csv nor a checkpoint" in read_overview(tmp_path / "empty").reason


@pytest.mark.parametrize("odd", ["text", 5, -1.5, float("nan"), float("inf"), True, [1], {"a": 1}, 10**400, "9" * 5000])
def test_no_value_of_a_configuration_breaks_it(odd: Any, run: Path) -> None:
    config = _config(run)
    for table in ("run", "settings"):
        for name in config[table]:
            config[table][name] = odd
    (run / "config.toml").write_text(tomli_w.dumps(config))
    seen = read_overview(run)
    assert isinstance(seen.env, str)
    assert seen.result is None
    assert seen.timesteps > 0
    config["run"] |= {"result": dict.fromkeys(Result._fields, odd), "last_evaluation": {"mean": odd}}
    (run / "config.toml").write_text(tomli_w.dumps(config))
    f"{read_overview(run).best:.1f} {read_overview(run).result}"


def test_a_thousand_runs_are_read_in_seconds(run: Path) -> None:
    """Each of them a long one. The limit leaves room for a machine that is busy with other things."""
    _lengthened(run, 2000)
    began = time.process_time()
    for _ in range(20):
        read_overview(run)
    assert (time.process_time() - began) / 20 < 0.02


def test_the_best_of_a_running_run_is_that_of_all_its_rows(tmp_path: Path) -> None:
    """Also of those between the last checkpoint and the last rows."""
    assert main([*TRAIN, "--total-timesteps", "2000", "--runs", str(tmp_path)]) == 0
    run = tmp_path / "CartPole-v1" / "1"
    _, *rows = (run / "progress.csv").read_text().splitlines()
    count, steps = len(rows), int(read_overview(run).timesteps)
    told = {"eval_generation": count, "eval_at": steps, "eval_return": 1.0}
    later = [progress_line(count + n, timesteps=steps + n, **told) for n in range(1, 2001)]
    later[9] = progress_line(count + 10, timesteps=steps + 10, **{**told, "eval_return": 12345.0})
    write_progress(run, [*rows, *later])
    seen = read_overview(run)
    assert (seen.best, seen.generations, type(seen.best)) == (12345.0, count + 2000, float)
