"""Risk: the report of Humanoid counts other core-hours than were used, or says that a score was reached which was not."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

from benchmarks.csv_records import read_records
from benchmarks.learning import humanoid
from benchmarks.learning.runs.run_folder import read_ended
from fastes.cli.main import main as fastes
from fastes.reports.csv_log import read_progress

SMALL = "--preset default --policy LinearPolicy --population-size 4 --eval-episodes 1 --target-return none --quiet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training in this process that went on with two workers."""
    given = ["train", "CartPole-v1", *SMALL.split(), "--workers", "0", "--total-timesteps", "400", "--seed", "7"]
    assert fastes([*given, "--runs", str(tmp_path)]) == 0
    (folder,) = (tmp_path / "CartPole-v1").iterdir()
    assert fastes(["train", "--resume", str(folder), "--total-timesteps", "1200", "--workers", "2", "--quiet"]) == 0
    return folder


def test_core_hours_are_of_the_workers_that_played(run: Path) -> None:
    columns, ended = read_progress(run / "progress.csv"), read_ended(run)
    alone = [seconds for seconds, steps in zip(columns["seconds"], columns["timesteps"], strict=True) if steps < 500]
    assert 0 < len(alone) < len(columns["seconds"])
    of_two = columns["seconds"][len(alone) :]
    assert ended.core_hours == pytest.approx((sum(alone) + 2 * sum(of_two)) / 3600)
    assert list(ended.hours) == sorted(ended.hours)
    assert ended.hours[0] < ended.hours[-1] <= ended.core_hours


def test_a_score_is_reached_by_the_running_median_alone(run: Path) -> None:
    ended = read_ended(run)
    assert humanoid.hours_to(ended, ended.median.max() + 1) == math.inf
    first = int((ended.median >= ended.median.max()).argmax())
    assert humanoid.hours_to(ended, ended.median.max()) == ended.hours[first]


def test_the_command_writes_table_and_picture(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["humanoid", str(run), "--out", str(out)])
    with pytest.raises(SystemExit, match="run folders of Humanoid-v5, got one of CartPole-v1"):
        humanoid.main()
    config = run / "config.toml"
    config.write_text(re.sub(r'env = "CartPole-v1"', f'env = "{humanoid.ENV}"', config.read_text()))
    for _ in range(2):
        humanoid.main()
        points = read_records(out / "curves.csv", humanoid.Point)
        assert [point.steps for point in points] == sorted({point.steps for point in points})
    (line,) = [line for line in (out / "humanoid.md").read_text().splitlines() if line.startswith("| 7")]
    assert [cell.strip() for cell in line.split("|")][-5:-1] == ["never"] * 4
    assert (out / "humanoid.png").stat().st_size > 5_000
