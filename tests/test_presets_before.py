"""Risk: the table of presets before and after compares runs of other settings, steps or seeds than it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.csv_records import append_record
from benchmarks.learning.before import done_after, done_before, fingerprint_before, main, settings_before, table
from benchmarks.learning.courses import COURSES, reported_timesteps
from benchmarks.learning.preset_run import Result
from benchmarks.learning.runs.contestant import preset_fingerprint
from fastes.settings.preset_loader import DEFAULT, choose_settings

ENV = "Pendulum-v1"


def result(preset: str, seed: int, score: float, settings: str, timesteps: int = reported_timesteps(ENV)) -> Result:
    return Result(ENV, preset, seed, timesteps, score, 10.0 * seed, score, 0.0, 0.0, 1.0, 1.0, "", -200.0, settings)


@pytest.mark.parametrize("env", settings_before())
def test_settings_before_are_settings_and_others_than_todays(env: str) -> None:
    same = {"total_timesteps": 1_000_000}
    assert choose_settings(env, DEFAULT, settings_before()[env] | same) != choose_settings(env, None, same)
    assert env in COURSES


def test_only_runs_of_equal_seeds_and_steps_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    then, today = fingerprint_before(ENV), preset_fingerprint(ENV, ENV)
    for row in (
        *(result(DEFAULT, seed, score, then) for seed, score in enumerate((-300.0, -200.0, -250.0))),
        result(DEFAULT, 3, -1.0, then, timesteps=5),
        result(DEFAULT, 3, -2.0, "other"),
    ):
        append_record(before, row)
    for row in (
        *(result(ENV, seed, score, today) for seed, score in ((1, -160.0), (2, -150.0), (3, -3.0))),
        result(ENV, 0, -4.0, "other"),
    ):
        append_record(after, row)
    assert set(done_before(before, ENV)) == {0, 1, 2}
    assert set(done_after(after, ENV)) == {1, 2, 3}
    line = table(before, after, [ENV], range(5)).splitlines()[-1]
    cells = ["Pendulum-v1", "1M", "1, 2", "-225 (-250), 20", "-155 (-160), 20"]
    assert [cell.strip() for cell in line.strip("|").split("|")] == cells
    main(["--env", ENV, "--report-only", "--out", str(before), "--after", str(after)])
    assert line in capsys.readouterr().out
