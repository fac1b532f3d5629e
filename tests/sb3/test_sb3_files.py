"""Risk: SB3's loaders cannot read what FastES writes for them, or a run that goes on tears, doubles or loses rows."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, seed_of, toy
from training import learn, train
from uneven import Uneven

from fastes import Callback, FastES
from fastes.cli.main import main
from fastes.es.perturbations import draw_eval_seeds
from fastes.reports.monitor_files import EvaluationsFile, MonitorFile
from fastes.runs.run_folder import RunFolder
from fastes.training import trainer
from fastes.training.record import Record


def monitor_rows(path: Path) -> tuple[dict[str, Any], list[tuple[float, int, float]]]:
    """A Monitor file's first line and rows, read without SB3."""
    with open(path, newline="") as file:
        first, table = file.readline(), csv.reader(file)
        assert next(table) == ["r", "l", "t"]
        rows = [(float(r), int(length), float(t)) for r, length, t in table]
    assert first.startswith("#{")
    return json.loads(first[1:]), rows


def evaluations(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def without_clock(path: Path) -> Any:
    """What a file of either kind says of episodes."""
    if path.suffix == ".npz":
        return {name: array.tolist() for name, array in evaluations(path).items()}
    return [(r, length) for r, length, _ in monitor_rows(path)[1]]


class Episodes(Callback):
    """Notes what the files should have."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, int]] = []
        self.evaluations: dict[int, tuple[int, list[float], list[int]]] = {}  # generation -> that of its theta
        self.timesteps: dict[int, int] = {}  # generation -> what its theta had been trained with

    def on_start(self, model: FastES, total_timesteps: int) -> None:
        self.timesteps[model.generation] = model.num_timesteps

    def on_generation(self, model: FastES, record: Record) -> None:
        self.rows += [(round(r, 6), length) for r, length in model.last_episodes]
        self.timesteps[record.generation] = record.timesteps
        self._note(model)

    def on_end(self, model: FastES) -> None:
        self._note(model)

    def _note(self, model: FastES) -> None:
        for of, evaluation in model.training.latest_evaluations:
            if of.generation in self.timesteps:
                told = self.timesteps[of.generation], evaluation.returns.tolist(), evaluation.lengths.tolist()
                assert self.evaluations.setdefault(of.generation, told) == told


def train_both(folder: Path, generations: int, **settings: Any) -> tuple[FastES, Episodes]:
    """A closed model with the files of so many generations in folder."""
    told = Episodes()
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3, **settings}) as model:
        model.learn(10**6, [told, MonitorFile(folder / "toy"), EvaluationsFile(folder / "evaluations"), stop_at(generations)])
    return model, told


def stop_at(generation: int) -> Any:
    return lambda _, record: record.generation < generation


def assert_files(folder: Path, told: Episodes) -> None:
    """Both files have each generation once, and no other."""
    _, rows = monitor_rows(folder / "toy.monitor.csv")
    assert [(r, length) for r, length, _ in rows] == told.rows
    assert [t for *_, t in rows] == sorted({t for *_, t in rows})
    found = evaluations(folder / "evaluations.npz")
    assert found["timesteps"].tolist() == [timesteps for timesteps, _, _ in told.evaluations.values()]
    assert found["results"].tolist() == [returns for _, returns, _ in told.evaluations.values()]
    assert found["ep_lengths"].tolist() == [lengths for _, _, lengths in told.evaluations.values()]
    assert len(told.evaluations) * 8 == len(rows)


# --- the formats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_each_candidate_and_each_evaluation_has_a_row(lag: int, tmp_path: Path) -> None:
    """Evaluations that still play when the last generation ends too."""
    model, told = train_both(tmp_path, 4, eval_lag=lag)
    assert len(told.rows) == 4 * 8
    assert_files(tmp_path, told)
    header, rows = monitor_rows(tmp_path / "toy.monitor.csv")
    assert list(header) == ["t_start", "env_id"]
    assert sum(length for _, length, _ in rows) == model.num_timesteps
    found = evaluations(tmp_path / "evaluations.npz")
    assert {name: (array.dtype.str, array.shape) for name, array in found.items()} == {
        "timesteps": ("<i8", (4,)),
        "results": ("<f8", (4, 3)),
        "ep_lengths": ("<i8", (4, 3)),
    }


def test_the_monitor_file_is_that_of_sb3_byte_for_byte_but_for_the_clock(tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    with FastES("CartPole-v1", n_workers=0, preset="default", population_size=4, seed=1) as model:
        model.learn(10, MonitorFile(tmp_path / "ours"))
        episodes = model.last_episodes
    env = monitor.Monitor(gymnasium.make("CartPole-v1"), str(tmp_path / "theirs"))
    for episode_return, length in episodes:
        env.results_writer.write_row({"r": round(episode_return, 6), "l": length, "t": 0.5})
    env.close()
    ours, theirs = ((tmp_path / f"{name}.monitor.csv").read_bytes().split(b"\n") for name in ("ours", "theirs"))
    assert [line.rpartition(b",")[0] for line in ours[1:]] == [line.rpartition(b",")[0] for line in theirs[1:]]
    assert [line.endswith(b"\r") for line in ours] == [line.endswith(b"\r") for line in theirs]
    header, their_header = json.loads(ours[0][1:]), json.loads(theirs[0][1:])
    assert ours[0] == f"#{json.dumps(header)}".encode()
    assert list(header) == list(their_header)
    assert header["env_id"] == their_header["env_id"] == "CartPole-v1"
    assert header["t_start"] == pytest.approx(their_header["t_start"], abs=60)


def test_names_are_those_that_sb3_gives(tmp_path: Path) -> None:
    names = {"a": "a.monitor.csv", "b.csv": "b.csv.monitor.csv", "c.monitor.csv": "c.monitor.csv", "": "monitor.csv"}
    assert {name: MonitorFile(tmp_path / name).path.name for name in names} == names
    names = {"evaluations": "evaluations.npz", "x.npz": "x.npz", "": "evaluations.npz"}
    assert {name: EvaluationsFile(tmp_path / name).path.name for name in names} == names


def test_sb3s_loaders_read_the_files(tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    pytest.importorskip("pandas")
    model, told = train_both(tmp_path, 4)
    frame = monitor.load_results(str(tmp_path))
    assert list(zip(frame["r"].tolist(), frame["l"].tolist(), strict=True)) == told.rows
    pytest.importorskip("matplotlib").use("Agg")
    plotter = pytest.importorskip("stable_baselines3.common.results_plotter")
    timesteps, returns = plotter.ts2xy(frame, "timesteps")
    assert timesteps[-1] == model.num_timesteps
    assert returns.tolist() == [r for r, _ in told.rows]
    plotter.plot_results([str(tmp_path)], 10**6, plotter.X_TIMESTEPS, "toy")


def test_evaluations_agree_with_those_of_sb3s_callback(tmp_path: Path) -> None:
    """The same parameters at the same timesteps: what one calls the result after n steps is not another's after more."""
    sb3 = pytest.importorskip("stable_baselines3.common.callbacks")
    timesteps: list[int] = []

    def note(model: FastES, record: Record) -> bool:
        timesteps.append(record.timesteps)
        return record.generation < 4

    theirs = sb3.EvalCallback(Toy(), n_eval_episodes=2, eval_freq=1, log_path=str(tmp_path / "sb3"), verbose=0, warn=False)
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, caught_warnings():
        model.learn(10**6, [theirs, EvaluationsFile(tmp_path), note])
    ours, theirs = evaluations(tmp_path / "evaluations.npz"), evaluations(tmp_path / "sb3" / "evaluations.npz")
    assert set(ours) == set(theirs)
    assert theirs["timesteps"].tolist() == timesteps
    assert ours["timesteps"].tolist() == [0, *timesteps[:-1]]
    for name in ours:
        assert (ours[name].dtype, ours[name].ndim) == (theirs[name].dtype, theirs[name].ndim)


def test_returns_that_are_not_finite_stay_readable(tmp_path: Path) -> None:
    monitor = pytest.importorskip("stable_baselines3.common.monitor")
    pytest.importorskip("pandas")
    told = Episodes()
    nan_seeds = (seed_of(0, 1), seed_of(1, 2))
    with FastES(toy(nan_seeds=nan_seeds), preset="default", n_workers=0, **SETTINGS) as model, caught_warnings():
        model.learn(10**6, [told, MonitorFile(tmp_path / "toy"), stop_at(3)])
    _, rows = monitor_rows(tmp_path / "toy.monitor.csv")
    assert sum(not math.isfinite(r) for r, _, _ in rows) == sum(not math.isfinite(r) for r, _ in told.rows) == 4
    frame = monitor.load_results(str(tmp_path))
    assert frame["r"].dtype == np.float64
    assert frame["l"].sum() == model.num_timesteps
    assert np.isfinite(frame["r"]).sum() == len(rows) - 4


def test_evaluations_that_are_not_finite_stay_readable(tmp_path: Path) -> None:
    nan_seed = int(draw_eval_seeds(5, 1, 3)[2])
    with (
        FastES(toy(nan_seeds=(nan_seed,)), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3}) as model,
        caught_warnings(),
    ):
        model.learn(10**6, [EvaluationsFile(tmp_path), stop_at(3)])
    results = evaluations(tmp_path / "evaluations.npz")["results"]
    assert np.argwhere(~np.isfinite(results)).tolist() == [[1, 2]]


# --- going on ---------------------------------------------------------------------------------------------------------


def test_another_learn_goes_on_with_the_files(tmp_path: Path) -> None:
    told = Episodes()
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3}) as model:
        for generation in (3, 5):
            files = [MonitorFile(tmp_path / "toy"), EvaluationsFile(tmp_path / "evaluations")]
            model.learn(10**6, [told, *files, stop_at(generation)], reset_num_timesteps=False)
    assert_files(tmp_path, told)
    assert len(told.rows) == 5 * 8


def test_a_new_training_begins_new_files(tmp_path: Path) -> None:
    told = Episodes()
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3}) as model:
        files = [MonitorFile(tmp_path / "toy"), EvaluationsFile(tmp_path / "evaluations")]
        model.learn(10**6, [*files, stop_at(3)])
        model.learn(10**6, [told, *files, stop_at(5)])
    assert len(told.rows) == 2 * 8
    assert_files(tmp_path, told)


@pytest.mark.parametrize("warm_up", [False, True])
@pytest.mark.parametrize("torn", [b"", b"1.5,2", b"\0\0\0"])
def test_rows_after_the_checkpoint_are_played_and_written_again(tmp_path: Path, torn: bytes, warm_up: bool) -> None:
    """As after a kill: the files know of generations that the checkpoint does not, and the last line may be torn."""
    whole = tmp_path / "whole"
    whole.mkdir()
    _, told = train_both(whole, 6, obs_warmup=warm_up)
    files = MonitorFile(tmp_path / "toy"), EvaluationsFile(tmp_path / "evaluations")
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3, "obs_warmup": warm_up}) as model:

        class Saves(Callback):
            def on_generation(self, model: FastES, record: Record) -> None:
                if record.generation == 3:
                    model.save(tmp_path / "m")

        model.learn(10**6, [*files, Saves(), stop_at(5)])
    with open(tmp_path / "toy.monitor.csv", "ab") as file:
        file.write(torn)
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model:
        model.learn(10**6, [*files, stop_at(6)], reset_num_timesteps=False)
    assert without_clock(tmp_path / "toy.monitor.csv") == told.rows
    if not warm_up:  # else the first theta has seen more than when training began
        assert_files(tmp_path, told)


def test_episodes_that_score_a_race_have_no_rows_after_a_kill_either(tmp_path: Path) -> None:
    told, file = list[tuple[float, int]](), MonitorFile(tmp_path / "toy")

    class Saves(Callback):
        is_saved = False

        def on_generation(self, model: FastES, record: Record) -> None:
            told.extend((round(r, 6), length) for r, length in model.last_episodes)
            if model.selection.scoring_timesteps and not self.is_saved:
                self.is_saved = True
                model.save(tmp_path / "m")

    with FastES(toy(), n_workers=0, seed=5, target_return="none") as model:
        model.learn(20_000, [file, Saves()])
        assert model.selection.is_race
        assert model.selection.scoring_timesteps
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model:
        model.learn(20_000 - model.num_timesteps, file, reset_num_timesteps=False)
    assert without_clock(file.path) == told


def test_each_evaluation_of_each_trial_has_a_row(tmp_path: Path) -> None:
    """Those of different trials are not told in the order of their timesteps. After a kill none is there twice."""
    settings = {**SETTINGS, "n_workers": 0, "population_size": 2, "eval_lag": 2, "eval_episodes": 2}
    settings |= {"trials": 3, "rungs": 2, "trials_fraction": 0.7, "seed": 8}
    whole, killed, told = tmp_path / "whole", tmp_path / "killed", dict[bytes, int]()

    class Told(Callback):
        saved = 0

        def on_generation(self, model: FastES, record: Record) -> None:
            if record.eval_generation:
                told[model.training.latest_evaluations[-1].evaluation.returns.tobytes()] = record.eval_at
            if record.generation == 3 and not self.saved:
                self.saved = model.num_timesteps
                model.save(tmp_path / "m")

    with FastES(Uneven, preset="default", **settings) as model:
        model.learn(400, [EvaluationsFile(whole), EvaluationsFile(killed), Told()])
        assert model.last_evaluation is not None
        assert evaluations(tmp_path / "whole.npz")["results"][-1].tolist() == model.last_evaluation.returns.tolist()
    found = evaluations(tmp_path / "whole.npz")
    timesteps, returns = found["timesteps"].tolist(), [row.tobytes() for row in found["results"]]
    assert timesteps == sorted(timesteps)
    assert len(set(returns)) == len(returns)
    assert {row: at for row, at in zip(returns, timesteps, strict=True) if row in told} == told
    assert list(told.values()) != sorted(told.values())
    with FastES.load(tmp_path / "m", Uneven, n_workers=0) as model:
        model.learn(400 - model.num_timesteps, EvaluationsFile(killed), reset_num_timesteps=False)
    again = evaluations(tmp_path / "killed.npz")
    assert all(again[name].tolist() == found[name].tolist() for name in found)


@pytest.mark.parametrize("lost", [1, 2, 5, 100])
def test_a_file_that_lost_its_end_goes_on_with_whole_rows(tmp_path: Path, lost: int) -> None:
    """As after a power failure; the steps of the rows that are gone are told apart from those that have rows."""
    file = MonitorFile(tmp_path / "toy")
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(10**6, [file, stop_at(2)])
        os.truncate(file.path, file.path.stat().st_size - lost)
        whole = file.path.read_bytes().count(b"\n") - 2
        model.learn(10**6, [file, stop_at(3)], reset_num_timesteps=False)
        header, rows = monitor_rows(file.path)
        assert len(rows) == whole + 8
        assert header["num_timesteps"] + sum(length for _, length, _ in rows) == model.num_timesteps


def test_a_file_that_begins_later_says_so_and_is_gone_on_with(tmp_path: Path) -> None:
    file = MonitorFile(tmp_path / "late")
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        before = model.num_timesteps
        model.learn(10**6, [file, stop_at(4)], reset_num_timesteps=False)
        model.save(tmp_path / "m")
        at_save = model.num_timesteps
        model.learn(10**6, [file, stop_at(5)], reset_num_timesteps=False)
    assert monitor_rows(file.path)[0]["num_timesteps"] == before
    with FastES.load(tmp_path / "m", toy(), n_workers=0) as model:
        assert model.num_timesteps == at_save
        model.learn(10**6, [file, stop_at(6)], reset_num_timesteps=False)
        header, rows = monitor_rows(file.path)
        assert header["num_timesteps"] == before
        assert len(rows) == 4 * 8
        assert before + sum(length for _, length, _ in rows) == model.num_timesteps


def test_a_generation_that_an_exception_hid_is_written_once(tmp_path: Path) -> None:
    """It is booked, and the callbacks after the one that raised were not told."""
    told = Episodes()

    def fail(_: FastES, record: Record) -> None:
        if record.generation == 2:
            raise RuntimeError

    for order in ("before", "after"):
        monitor, npz = MonitorFile(tmp_path / order), EvaluationsFile(tmp_path / order, seconds=0.0)
        told = Episodes()
        callbacks = [told, fail, monitor, npz] if order == "before" else [told, monitor, npz, fail]
        with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
            with pytest.raises(RuntimeError):
                model.learn(10**6, callbacks)
            assert sum(length for _, length, _ in monitor_rows(monitor.path)[1]) == model.num_timesteps
            assert [(r, length) for r, length, _ in monitor_rows(monitor.path)[1]] == told.rows
            timesteps = [0, told.timesteps[1], model.num_timesteps]
            assert evaluations(npz.path)["timesteps"].tolist() == timesteps[:1], "the second generation's plays"
            model.learn(10**6, [npz, stop_at(3)], reset_num_timesteps=False)
        assert evaluations(npz.path)["timesteps"].tolist() == timesteps


def test_an_interrupt_when_a_generation_is_booked_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer.make_record

    def interrupted(generation: Any, *arguments: Any, **named: Any) -> Record:
        if generation.perturbations.generation == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return real(generation, *arguments, **named)

    monkeypatch.setattr("fastes.training.trainer.make_record", interrupted)
    files = [MonitorFile(tmp_path / "toy"), EvaluationsFile(tmp_path / "evaluations")]
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "eval_episodes": 3}) as model:
        with pytest.raises(KeyboardInterrupt):
            model.learn(10**6, files)
        assert model.generation == 2
        monkeypatch.undo()
        (tmp_path / "whole").mkdir()
        _, told = train_both(tmp_path / "whole", 3)
        assert [(r, length) for r, length, _ in monitor_rows(files[0].path)[1]] == told.rows[:16]
        found, whole = (evaluations(folder / "evaluations.npz") for folder in (tmp_path, tmp_path / "whole"))
        assert all(found[name].tolist() == whole[name][:1].tolist() for name in whole), "the second one plays"
        model.learn(10**6, [*files, stop_at(3)], reset_num_timesteps=False)
    assert_files(tmp_path, told)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_solved_generation_is_an_evaluation_and_no_training(lag: int, tmp_path: Path) -> None:
    settings = {**SETTINGS, "target_return": -1e9, "target_episodes": 2, "eval_lag": lag}
    with FastES(toy(), preset="default", n_workers=0, **settings) as model:
        model.learn(10**6, [MonitorFile(tmp_path), EvaluationsFile(tmp_path)])
        assert model.solved
        steps = [length for _, length, _ in monitor_rows(tmp_path / "monitor.csv")[1]]
        assert len(steps) == 8 * lag
        assert sum(steps) == model.num_timesteps
    assert evaluations(tmp_path / "evaluations.npz")["timesteps"].tolist() == [0]


# --- writing ----------------------------------------------------------------------------------------------------------


def test_rows_are_there_once_a_generation_and_evaluations_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, npz = MonitorFile(tmp_path / "toy"), EvaluationsFile(tmp_path / "evaluations", seconds=3600.0)
    lines, replaced = [], []
    real = os.replace
    monkeypatch.setattr("os.replace", lambda a, b: (replaced.append(Path(b).name), real(a, b)))

    def look(_: FastES, record: Record) -> bool:
        lines.append(len(monitor_rows(monitor.path)[1]))
        return record.generation < 5

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(10**6, [monitor, npz, look])
    assert lines == [8, 16, 24, 32, 40]
    assert replaced.count("evaluations.npz") == 2, "with the first evaluation and at the end"
    assert len(evaluations(npz.path)["timesteps"]) == 5
    assert {path.name for path in tmp_path.iterdir()} == {"toy.monitor.csv", "evaluations.npz"}


@pytest.mark.parametrize("kind", [MonitorFile, EvaluationsFile])
def test_a_write_that_fails_leaves_what_was_there_and_is_made_up_for(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reference = (kind(tmp_path / name) for name in ("full", "reference"))
    content: list[bytes] = []

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fill(_: FastES, record: Record) -> None:
        if record.generation == 3:
            content.append(file.path.read_bytes())
            for name in ("append_whole", "write_bytes"):
                monkeypatch.setattr(f"fastes.reports.monitor_files.{name}", full)

    def end(_: FastES, record: Record) -> None:
        if record.generation == 3:
            raise RuntimeError("so that what plays then is not told")

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, pytest.raises(RuntimeError, match="is not told"):
        model.learn(10**6, [reference, end])
    file.seconds = 0.0
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, pytest.raises(OSError, match="No space"):
        model.learn(10**6, [fill, file])
    assert file.path.read_bytes() == content[0]
    monkeypatch.undo()
    file.flush()
    assert without_clock(file.path) == without_clock(reference.path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.monitor.csv", b"r,l,t\r\n1.0,3,0.5\r\n"),
        ("x.monitor.csv", b'#{"t_start": 1.0, "env_id": "x"}\nr,l,t,success\r\n1.0,3,0.5,1\r\n'),
        ("x.monitor.csv", b"#[]\nr,l,t\r\n"),
        ("x.monitor.csv", b'#{"t_start": "x"}\nr,l,t\r\n'),
        ("x.npz", b"torn"),
        ("x.npz", b""),
    ],
)
def test_a_file_that_is_something_else_is_refused_and_kept(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    file = MonitorFile(tmp_path / name) if name.endswith("csv") else EvaluationsFile(tmp_path / name)
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        with pytest.raises(ValueError, match="move it away or choose another path"):
            model.learn(10**6, file, reset_num_timesteps=False)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("kind", [MonitorFile, EvaluationsFile])
def test_a_new_training_replaces_whatever_was_there(kind: Any, tmp_path: Path) -> None:
    file, reference = (kind(tmp_path / name) for name in ("odd", "reference"))
    file.path.write_bytes(b"something else")
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(10**6, [file, reference, stop_at(1)])
    assert without_clock(file.path) == without_clock(reference.path)


def test_another_number_of_evaluation_episodes_is_refused(tmp_path: Path) -> None:
    model, _ = train_both(tmp_path, 2)
    model.save(tmp_path / "m")
    with (
        FastES.load(tmp_path / "m", toy(), n_workers=0, eval_episodes=4) as model,
        pytest.raises(ValueError, match=r"results of shape \(2, 3\), this training has eval_episodes = 4"),
    ):
        model.learn(10**6, EvaluationsFile(tmp_path / "evaluations"), reset_num_timesteps=False)


# --- run folders ------------------------------------------------------------------------------------------------------

COMMAND = ["CartPole-v1", "--seed", "1", "--workers", "0", "--quiet", "--preset", "default", "--population-size", "4"]


def test_the_command_line_writes_both_and_a_resumed_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, run = ["--target-return", "none"], tmp_path / "CartPole-v1" / "1"
    flags = ["--monitor-csv", "--evaluations-npz"]
    assert main(["train", *COMMAND, *target, "--runs", str(tmp_path), "--total-timesteps", "300", *flags]) == 0
    first = monitor_rows(run / "monitor.csv")
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "900"]) == 0
    header, rows = monitor_rows(run / "monitor.csv")
    assert header == first[0]
    assert rows[: len(first[1])] == first[1]
    with open(run / "progress.csv", newline="") as file:
        progress = list(csv.DictReader(file))
    timesteps = [int(row["timesteps"]) for row in progress]
    assert np.cumsum([length for _, length, _ in rows])[3::4].tolist() == timesteps
    found = evaluations(run / "evaluations.npz")
    assert found["timesteps"].tolist() == [0, *timesteps[:-1]]
    assert found["timesteps"][:-1].tolist() == [int(row["eval_at"]) for row in progress[1:]]
    assert found["results"][:-1].mean(axis=1).tolist() == [float(row["eval_return"]) for row in progress[1:]]


def test_a_setting_that_a_file_refuses_leaves_the_run_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, target = tmp_path / "CartPole-v1" / "1", ["--target-return", "none"]
    assert main(["train", *COMMAND, *target, "--runs", str(tmp_path), "--total-timesteps", "300", "--evaluations-npz"]) == 0
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    resume = ["train", "--resume", str(run), "--workers", "0", "--quiet", "--total-timesteps", "900"]
    assert main([*resume, "--eval-episodes", "5"]) == 2
    assert "this training has eval_episodes = 5" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert main(resume) == 0


def test_a_run_folder_has_neither_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *COMMAND, "--runs", str(tmp_path), "--total-timesteps", "100"]) == 0
    assert not {"monitor.csv", "evaluations.npz"} & set(os.listdir(tmp_path / "CartPole-v1" / "1"))


@pytest.mark.parametrize("lag", [0, 1])
def test_a_checkpoint_of_a_run_folder_never_knows_more_than_the_files(lag: int, tmp_path: Path) -> None:
    """Else a run that is killed loses rows for good."""
    folder = RunFolder(tmp_path, checkpoint_seconds=0.0, monitor_csv=True, evaluations_npz=True)

    def look(model: FastES, record: Record) -> bool:
        npz = tmp_path / "evaluations.npz"
        known = len(evaluations(npz)["timesteps"]) if npz.exists() else 0
        assert known == record.generation - lag
        assert [pending.generation for pending in model.training.pending] == list(range(known, record.generation))
        return record.generation < 4

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS, eval_lag=lag) as model:
        model.learn(10**6, [folder, look])


def test_a_full_disk_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path, monitor_csv=True, evaluations_npz=True)

    def disturb(model: FastES, record: Record) -> bool:
        if record.generation == 2:
            monkeypatch.setattr(
                "fastes.reports.monitor_files.append_whole", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
            )
        if record.generation == 4:
            monkeypatch.undo()
        return record.generation < 5

    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model, caught_warnings() as messages:
        model.learn(10**6, [folder, disturb])
        assert model.generation == 5
        assert sum(length for _, length, _ in monitor_rows(tmp_path / "monitor.csv")[1]) == model.num_timesteps
    assert len([message for message in messages if "monitor.csv cannot be written" in message]) == 1


def test_the_file_of_a_monitor_around_the_environment_is_written(tmp_path: Path) -> None:
    Monitor = pytest.importorskip("stable_baselines3.common.monitor").Monitor
    plain = train(toy(), 3, **SETTINGS)
    results = []
    for n_workers in (0, 2):
        env = Monitor(Toy(), str(tmp_path / "log"))
        result = train(env, 3, n_workers, **SETTINGS)
        results.append(result)
        env.close()
        _, _, *rows = (tmp_path / "log.monitor.csv").read_text().splitlines()
        assert len(rows) == 3 * SETTINGS["population_size"]
        assert sum(int(row.split(",")[1]) for row in rows) == result.state.data["trainings"][0]["counters"]["num_timesteps"]
    assert results[0].records[-1].return_mean == plain.records[-1].return_mean


def test_rows_of_one_moment_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock stands halfway between two microseconds, which may be rounded either way."""
    moments = (0.01 * call + 5e-7 * (call > 0) for call in itertools.count())
    monkeypatch.setattr("fastes.reports.monitor_files.time.time", lambda: next(moments))
    with FastES(toy(), preset="default", n_workers=0, **{**SETTINGS, "population_size": 8}) as model:
        model.learn(10**6, [MonitorFile(tmp_path / "toy"), stop_at(60)])
    _, rows = monitor_rows(tmp_path / "toy.monitor.csv")
    assert len({t for *_, t in rows}) == len(rows) == 8 * 60
