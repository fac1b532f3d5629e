"""Risk: a training that a time limit ended is not the beginning of the longer one, or ends without its last judging."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS, toy
from training import TIMES, Result, assert_same_records, assert_same_state

from fastes import FastES, train_seeds
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.cli.train_report import Session, report
from fastes.reports.callbacks import Callback
from fastes.reports.progress_bar import ProgressBar
from fastes.runs.run_config import read_config
from fastes.runs.run_folder import RunFolder
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record
from fastes.training.selection import Rung

TOTAL = 900  # about eight generations
NO_TIME = 1e-9  # minutes: enough for the one generation that there always is
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "late evaluations": {"eval_lag": 2, "eval_episodes": 2, "learning_rate": 0.5},
    "schedules": {"sigma": "lin_0.2_0.05", "generation_timesteps": 300, "max_population_size": 16},
    "trials": {"trials": 3, "trials_fraction": 0.6, "archive_size": 3},
    "rungs": {"trials": 4, "trials_fraction": 0.8, "rungs": 2, "obs_warmup": True},
    "trials alone": {"trials": 2, "trials_fraction": 1.0, "archive_size": 2, "eval_lag": 2},
    "archive": {"archive_size": 3, "eval_every": 2},
}


class Watch(Callback):
    """Keeps the records of a training, its rungs, and whether it was told of each final selection when theta had won it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.selected: list[bool] = []
        self.rungs: list[Rung] = []

    def on_generation(self, model: FastES, record: Record) -> None:
        self.records.append(record)

    def on_rung(self, model: FastES, rung: Rung) -> None:
        self.rungs.append(rung)

    def on_final_selection(self, model: FastES, result: FinalSelection) -> None:
        self.selected.append(np.array_equal(model.theta, result.winner.snapshot.theta))


def new_model(n_workers: int = 0, **settings: Any) -> FastES:
    return FastES(toy(), n_workers=n_workers, preset="default", **{**SETTINGS, "total_timesteps": TOTAL, **settings})


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_in_many_short_times_is_the_whole_one(kind: str, tmp_path: Path) -> None:
    whole, parts = Watch(), Watch()
    with new_model(**KINDS[kind]) as model:
        model.learn(callback=whole)
        assert not model.out_of_time
        expected = Result(model.snapshot(), whole.records)
        selections = len(whole.selected)
    model, ended = new_model(**KINDS[kind]), 0
    while model.num_timesteps < TOTAL:
        with model:
            model.learn(TOTAL - model.num_timesteps, parts, reset_num_timesteps=False, max_minutes=NO_TIME)
            ended += model.out_of_time
            model.save(tmp_path / "model")
        if model.num_timesteps < TOTAL and ended % 2:  # in this process, and out of a file
            model = FastES.load(tmp_path / "model", toy(), 0)
    assert_same_state(model.snapshot(), expected.state)
    if {"eval_lag", "trials"} & {*KINDS[kind]}:  # each end tells evaluations that are due later: their steps count earlier
        counted = [[record._replace(eval_timesteps=0) for record in records] for records in (parts.records, whole.records)]
        assert_same_records(*counted)
    else:
        assert_same_records(parts.records, expected.records)
    trials = KINDS[kind].get("trials", 1)  # each has a generation more at each end
    assert ended >= (3 if trials == 1 else 2)
    assert ended == len(parts.records) - 1 if trials == 1 else ended < len(parts.records) <= trials * (ended + 1)
    assert parts.rungs == whole.rungs, "what is judged aside decides nothing"
    assert len(whole.rungs) == KINDS[kind].get("rungs", "trials" in KINDS[kind])
    assert all(parts.selected)
    assert (len(parts.selected) > selections) == ("archive_size" in KINDS[kind])


@pytest.mark.parametrize("n_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_end_of_the_time_judges_as_the_end_of_the_budget_does(n_workers: int) -> None:
    settings = {**KINDS["trials"], "eval_episodes": 3}
    with new_model(n_workers, **settings) as ended, new_model(n_workers, **settings) as timed:
        for minutes in (NO_TIME, NO_TIME, NO_TIME):
            timed.learn(TOTAL - timed.num_timesteps, reset_num_timesteps=False, max_minutes=minutes)
        left, left_training = timed.theta, timed.training
        done = timed.num_timesteps
        ended.learn(TOTAL, lambda model, record: model.num_timesteps < done)
        ended.learn(0, reset_num_timesteps=False)  # its budget ends here
        with timed.as_judged():
            assert timed.training.archive.had_final_selection(timed.generation)
            assert timed.theta.tobytes() == ended.theta.tobytes()
            assert timed.evaluate(3).mean == ended.evaluate(3).mean
        assert timed.theta is left
        assert timed.training is left_training
        assert not timed.training.archive.had_final_selection(timed.generation)
        timed.set_random_seed(3)
        with timed.as_judged():
            assert timed.seed == 3, "what was judged is of another training"


def test_what_ends_a_training_first_is_why_it_ended() -> None:
    endings: tuple[tuple[dict[str, Any], Callable[..., Any] | None, dict[str, Any], bool], ...] = (
        ({"max_minutes": NO_TIME}, None, {}, True),
        ({"max_minutes": NO_TIME}, lambda *_: False, {}, False),
        ({"max_minutes": NO_TIME, "total_timesteps": 1}, None, {}, False),
        ({"max_minutes": NO_TIME}, None, {"target_return": -1e6, "eval_lag": 0}, False),
        ({"max_minutes": 1e9}, None, {}, False),
        ({"max_minutes": math.inf}, None, {}, False),
        ({"max_minutes": None}, None, {}, False),
    )
    for limits, callback, settings, by_time in endings:
        with new_model(**settings) as model:
            assert not model.out_of_time
            model.learn(callback=callback, **limits)
            assert model.out_of_time == by_time, limits


def test_several_seeds_end_together_and_go_on_alone() -> None:
    named = {name: value for name, value in SETTINGS.items() if name != "seed"}
    common = {"preset": "default", "n_workers": 0, **named, **KINDS["archive"]}
    whole = train_seeds(toy(), 2, total_timesteps=TOTAL, **common)
    parts = train_seeds(toy(), 2, total_timesteps=TOTAL, max_minutes=NO_TIME, **common)
    for one, other in zip(whole, parts, strict=True):
        assert other.out_of_time
        assert other.generation == 1
        with one, other:
            other.learn(TOTAL - other.num_timesteps, reset_num_timesteps=False)
            assert other.theta.tobytes() == one.theta.tobytes()


@pytest.mark.parametrize(
    ("minutes", "error"), [(0, ValueError), (-1, ValueError), (math.nan, ValueError), ("5", ValueError), (True, TypeError)]
)
def test_minutes_that_mean_nothing(minutes: Any, error: type[Exception], no_process: None) -> None:
    with new_model(2) as model, pytest.raises(error, match=r"max_minutes = .*expected "):
        model.learn(max_minutes=minutes)


# --- the command -----------------------------------------------------------------------------------------------------

COMMAND = ["--preset", "default", "--workers", "0", "--population-size", "4", "--net-arch", "4", "--target-return", "none"]
BUDGET = ["--total-timesteps", "500", "--seed", "3", "--target-episodes", "2", "--archive-size", "2"]


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "progress.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]


def test_a_run_that_its_time_has_ended_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "CartPole-v1", *COMMAND, *BUDGET]
    assert main([*train, "--runs", str(tmp_path / "whole")]) == 0
    assert "--max-minutes" not in capsys.readouterr().out
    assert main([*train, "--runs", str(tmp_path / "parts"), "--max-minutes", "1e-9"]) == 0
    said, run = capsys.readouterr().out, tmp_path / "parts" / "CartPole-v1" / "1"
    assert f"ended by --max-minutes, before its budget; to continue: fastes train --resume {run}" in said
    assert "winner of the final selection: return" in said
    assert "best.zip holds it, checkpoint.zip the last parameters\n" in said
    assert len(rows(run)) == 1
    config = read_config(run / "config.toml")
    assert config is not None
    assert config["run"]["finished"] is False
    assert config["run"]["result"]["episodes"] == 2
    assert main(["train", "--resume", str(run), "--workers", "0", "--quiet"]) == 0
    whole = tmp_path / "whole" / "CartPole-v1" / "1"
    assert rows(run) == rows(whole)
    theta = [read_checkpoint(folder / "checkpoint.zip").arrays["trainings"]["0.theta"].tobytes() for folder in (run, whole)]
    assert theta[0] == theta[1]


def test_a_better_trial_is_not_called_the_last_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new_model(trials=3, trials_fraction=0.9, target_episodes=2, seed=1) as model, RunFolder(tmp_path) as folder:
        while model.num_timesteps < TOTAL:
            model.learn(TOTAL - model.num_timesteps, folder, reset_num_timesteps=False, max_minutes=NO_TIME)
            with model.as_judged():
                judged = model.theta
            if not np.array_equal(judged, model.theta):
                break
        assert model.out_of_time
        folder.save(model)
        report(model, folder, Session(0, 0, 0.0), False, ProgressBar())
    said = capsys.readouterr().out
    assert re.search(
        r"^best trial: return .*^best.zip holds .*, checkpoint.zip the last parameters", said, re.MULTILINE | re.DOTALL
    )


def test_seeds_that_their_time_has_ended_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "CartPole-v1", *COMMAND, *BUDGET, "--seeds", "2", "--quiet", "--runs", str(tmp_path)]
    assert main([*train, "--max-minutes", "1e-9"]) == 0
    said = capsys.readouterr().out
    assert "2 seeds ended by --max-minutes, before the budget; to continue:\n  seed 3: fastes train --resume" in said
    assert "median return" in said
    for number in (1, 2):
        config = read_config(tmp_path / "CartPole-v1" / str(number) / "config.toml")
        assert config is not None
        assert config["run"]["finished"] is False


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_the_command_refuses_minutes_that_mean_nothing(
    minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "CartPole-v1", "--runs", str(tmp_path), "--max-minutes", minutes]) == 2
    assert "--max-minutes = " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
