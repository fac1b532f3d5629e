"""Risk: a dashboard lacks figures, a resumed training begins a new run, a tracker stops or slows a training."""

from __future__ import annotations

import math
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, caught_warnings, toy
from training import learn

from fastes import FastES
from fastes.cli.main import main
from fastes.reports.logged_names import OF_REPORTERS, row_of
from fastes.reports.trackers import courier
from fastes.reports.trackers.by_name import REPORTERS, reporter_class
from fastes.reports.trackers.courier import Courier, Run
from fastes.reports.trackers.noted_run import note_run, read_noted_run
from fastes.reports.trackers.reporter import Reporter
from fastes.settings.preset_loader import tomllib
from fastes.training.record import Record

TRAINED: dict[str, Any] = {"preset": "default", "n_workers": 0, **SETTINGS}


class Memory(Reporter):
    """A tracker that keeps what it gets."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.notes: dict[str, float] = {}
        self.threads: set[int] = set()
        self.ends = 0

    def start(self, run: Run) -> None:
        self.runs.append(run)
        self.threads.add(threading.get_ident())

    def log(self, step: int, row: Mapping[str, float]) -> None:
        self.rows.append((step, dict(row)))

    def note(self, step: int, values: Mapping[str, float]) -> None:
        self.notes.update(values)

    def end(self) -> None:
        self.ends += 1


def trained(reporter: Reporter, generations: int = 5) -> list[Record]:
    """The records of a training with a reporter."""
    records: list[Record] = []

    def note(_: FastES, record: Record) -> bool:
        records.append(record)
        return record.generation < generations

    with FastES(toy(), **TRAINED) as model:
        model.learn(10**6, [note, reporter])
    return records


def record(timesteps: int, **changes: Any) -> Record:
    fields: dict[str, Any] = dict.fromkeys(Record._fields, 0)
    return Record(**{**fields, "timesteps": timesteps, "trial": 1, **changes})


# --- what is reported -------------------------------------------------------------------------------------------------


def test_every_column_but_the_step_has_a_name() -> None:
    assert sorted([*OF_REPORTERS.values(), "timesteps"]) == sorted(Record._fields)


def test_a_tracker_gets_every_generation_and_ends_once() -> None:
    memory = Memory()
    records = trained(memory)
    assert memory.rows == [(each.timesteps, row_of(each)) for each in records]
    assert (len(memory.runs), memory.ends) == (1, 1)
    assert memory.threads.isdisjoint({threading.get_ident()})
    assert memory.notes["result/solved"] == 0.0
    assert math.isfinite(memory.notes["result/best_return"])
    config = memory.runs[0].config
    assert (config["population_size"], config["seed"], config["preset"]) == (8, 5, "default")


def test_figures_that_there_are_not_are_left_out() -> None:
    row = row_of(record(10, return_mean=math.nan, return_max=math.inf, return_std=2.0))
    assert row["es/return_std"] == 2.0
    assert not {"rollout/ep_rew_mean", "es/return_max", "es/eval_return", "es/eval_rank"} & set(row)
    assert row_of(record(10, eval_generation=3, eval_return=7.0))["es/eval_return"] == 7.0


def test_a_race_reports_the_settings_that_all_recipes_have() -> None:
    memory = Memory()
    with FastES(toy(), n_workers=0, seed=0) as model:
        model.learn(500, memory)
    config = memory.runs[0].config
    assert "linear" in config["recipes"]
    assert "policy" not in config
    assert "gamma" not in config
    assert config["seed"] == 0


# --- a slow tracker, and one that fails -------------------------------------------------------------------------------


def test_fast_records_are_thinned_and_evaluations_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "AT_ONCE", 3)
    memory = Memory()
    sender = Courier(memory, Run("x", {}, None, 0))
    for step in range(1, 21):
        sender.send(record(step, eval_generation=4 if step == 5 else 0, eval_return=9.0))
    assert sender.end(10.0)
    assert [step for step, _ in memory.rows] == [1, 2, 3, 20]
    assert memory.rows[-1][1]["es/eval_return"] == 9.0
    assert memory.rows[-1][1]["es/eval_generation"] == 4


def test_a_tracker_that_waits_keeps_memory_bounded() -> None:
    go = threading.Event()

    class Waiting(Memory):
        def start(self, run: Run) -> None:
            go.wait(30.0)

    memory = Waiting()
    sender = Courier(memory, Run("x", {}, None, 0))
    for step in range(1, 5001):
        sender.send(record(step, eval_generation=step if step == 8 else 0))
    go.set()
    assert sender.end(10.0)
    steps = [step for step, _ in memory.rows]
    assert 100 < len(steps) <= 1001
    assert steps == sorted(steps)
    assert steps[-1] == 5000
    assert [row["es/eval_generation"] for _, row in memory.rows if "es/eval_generation" in row] == [8]


def test_a_slow_tracker_does_not_slow_the_generations() -> None:
    goes_on = threading.Event()

    class Slow(Memory):
        def log(self, step: int, row: Mapping[str, float]) -> None:
            goes_on.wait(1.0)
            super().log(step, row)

    slow = Slow()
    slow.ends_with_training = False
    with FastES(toy(), **TRAINED) as model:
        began = time.monotonic()
        learn_with(model, slow, 40)
        assert time.monotonic() - began < 20.0, "40 rows of a second each would take longer"
    goes_on.set()
    slow.finish({"result/mean": 2.0})
    slow.wait(10.0)
    assert (len(slow.rows), slow.notes["result/mean"], slow.ends) == (40, 2.0, 1)


def learn_with(model: FastES, reporter: Reporter, generations: int) -> None:
    model.learn(10**6, [lambda _, record: record.generation < generations, reporter])


@pytest.mark.parametrize("method", ["start", "log", "note", "end"])
def test_a_tracker_that_fails_is_told_of_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    memory = Memory()
    monkeypatch.setattr(memory, method, fail)
    with caught_warnings() as messages:
        records = trained(memory, 30)
    assert len(records) == 30
    told = [message for message in messages if message.startswith("memory")]
    assert len(told) == 1
    assert told[0].startswith("memory has failed, and gets nothing more: ")
    assert "No space left on device" in told[0]


def test_a_tracker_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.reports.trackers.reporter.END_SECONDS", 0.2)
    go, memory = threading.Event(), Memory()
    monkeypatch.setattr(memory, "end", lambda: go.wait(30.0))
    with pytest.warns(RuntimeWarning, match="memory has not ended in 0 s: what it has not sent yet may be lost"):
        trained(memory)
    go.set()


# --- by name ----------------------------------------------------------------------------------------------------------


def test_each_name_is_an_extra_and_a_short_module() -> None:
    root = Path(__file__).parents[3]
    declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(REPORTERS) <= set(declared)
    for name, (module, _) in REPORTERS.items():
        assert reporter_class(name).name == name
        assert len((root / "fastes" / "reports" / "trackers" / f"{module}.py").read_text().splitlines()) < 80


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_missing_package_is_named_with_its_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.chdir(tmp_path)
    with FastES(toy(), **TRAINED) as model, pytest.raises(ImportError, match=rf"pip install .*\[{name}\]"):
        model.learn(100, name)
    assert main(["train", "CartPole-v1", "--report", name]) == 1
    assert f"reports to {name} need the package {name}: pip install" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "before anything is made"


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B leaves a folder `wandb`, from which an import makes a package without content."""
    (tmp_path / "folder_of_runs").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    class Folder(Reporter):
        name, package = "my_tracker", "folder_of_runs"

    with pytest.raises(ImportError, match=r"reports to my_tracker .*folder_of_runs: pip install folder_of_runs"):
        Folder()


def test_a_subclass_needs_no_constructor_of_its_bases() -> None:
    class Short(Reporter):
        name = "short"

        def __init__(self) -> None:
            self.rows: list[int] = []

        def log(self, step: int, row: Mapping[str, float]) -> None:
            self.rows.append(step)

    reporter = Short()
    assert len(trained(reporter)) == len(reporter.rows) == 5


def test_an_unknown_name_is_refused_with_what_there_is() -> None:
    with FastES(toy(), **TRAINED) as model, pytest.raises(ValueError, match=r"there are tensorboard, wandb, trackio.*wandb"):
        model.learn(100, ["wandbb"])


# --- a run's name -----------------------------------------------------------------------------------------------------


def test_a_run_folder_keeps_the_name_of_its_run(tmp_path: Path) -> None:
    with FastES("CartPole-v1", **TRAINED) as model:
        name = note_run(tmp_path, "wandb", model)
        assert name.startswith("CartPole-v1-seed5-")
        assert note_run(tmp_path, "trackio", model) == name
        assert read_noted_run(tmp_path) == (name, ("wandb", "trackio"))
        (tmp_path / "reports.json").write_text('{"name": "../x", "reporters": []}')
        assert read_noted_run(tmp_path) == ("", ())
        (tmp_path / "reports.json").write_text("{")
        assert note_run(tmp_path, "wandb", model) != name


def test_an_object_goes_on_with_its_run_where_the_model_goes_on() -> None:
    memory = Memory()
    with FastES(toy(), **TRAINED) as model:
        learn_with(model, memory, 2)
        model.learn(1000, [lambda _, record: record.generation < 4, memory], reset_num_timesteps=False)
        learn_with(model, memory, 5)
    first, second, third = memory.runs
    assert first.name == second.name != third.name
    assert (first.resumed_at, second.resumed_at, third.resumed_at) == (0, memory.rows[1][0], 0)


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    memory = Memory()
    memory.run_folder = tmp_path / "gone"
    with pytest.warns(RuntimeWarning, match="reports.json cannot be written"):
        trained(memory)
    assert len(memory.rows) == 5


def test_results_are_the_same_with_a_reporter() -> None:
    with FastES(toy(), **TRAINED) as model, FastES(toy(), **TRAINED) as other, warnings.catch_warnings():
        learn_with(model, Memory(), 4)
        learn(other, 4)
        assert model.theta.tobytes() == other.theta.tobytes()
