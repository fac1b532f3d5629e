"""Risk: the report of Humanoid counts other core-hours than were used, or says that a score was reached which was not,
or loses an earlier seed."""

from __future__ import annotations

import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning import humanoid
from benchmarks.learning.reports.ended_trainings import read_trainings
from benchmarks.learning.runs.run_folder import read_ended
from fastes.cli.main import main as fastes
from fastes.errors import FastESError
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


@pytest.mark.parametrize("workers", [0, 2], ids=["first part", "last part"])
def test_core_hours_of_a_cluster_are_not_made_up(run: Path, workers: int) -> None:
    config = run / "config.toml"
    before = config.read_text()
    config.write_text(before.replace(f"n_workers = {workers}\n", f'n_workers = {workers}\ncluster = "auto"\n'))
    assert config.read_text() != before
    with pytest.raises(FastESError, match="trained on a Ray cluster"):
        read_ended(run)


def test_a_score_is_reached_where_the_running_median_is_first_there(run: Path) -> None:
    hours, median = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([10.0, 1000.0, 900.0, 1200.0, 1100.0])
    ended = read_ended(run)._replace(hours=hours, median=median)
    assert [humanoid.hours_to(ended, score) for score in (5, 1000, 1001, 1201)] == [0.1, 0.2, 0.4, math.inf]


@pytest.fixture
def humanoid_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The training under Humanoid's name."""
    config = run / "config.toml"
    config.write_text(re.sub(r'env = "CartPole-v1"', f'env = "{humanoid.ENV}"', config.read_text()))
    monkeypatch.setattr(humanoid, "EPISODES", 7)
    return run


def test_a_score_is_what_fastes_eval_says(humanoid_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(humanoid_run / "best.zip.bak", humanoid_run / "best.zip")  # other parameters than the last
    training = humanoid.training_of(read_ended(humanoid_run))
    assert fastes(["eval", str(humanoid_run), "--episodes", "7"]) == 0
    said = {name: float(value) for name, value in re.findall(r"(mean length|mean|std|min) ([\d.]+)", capsys.readouterr().out)}
    assert (training.score, training.std, training.worst, training.length) == pytest.approx(tuple(said.values()), abs=0.051)


def test_the_median_and_the_worst_seed_are_told(humanoid_run: Path) -> None:
    one = humanoid.training_of(read_ended(humanoid_run))._replace(settings="ab")
    trainings = [one._replace(seed=k, score=score, to_6000=to) for k, score, to in ((1, 50, 2.5), (2, 7, math.inf), (3, 80, 1))]
    former = one._replace(seed=0, score=-5, settings="cd")
    assert humanoid.of_all([former, *trainings]) == (
        "2 of 3 seeds with settings ab reach 6000, after 2.50 core-hours by the median; the median of their scores is 50, the "
        "worst 7."
    )
    assert humanoid.of_all(trainings[:2]) == (
        "1 of 2 seeds with settings ab reach 6000; the median of their scores is 28, the worst 7."
    )
    assert not humanoid.of_all([former, trainings[0]])


def test_seeds_of_earlier_reports_stay(humanoid_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    ended = read_ended(humanoid_run)
    training, points = humanoid.training_of(ended), humanoid.points_of(ended)
    others = [training._replace(seed=3, machine="another"), training._replace(seed=10)]
    for record in [*others, training._replace(score=-99.0)]:
        append_record(tmp_path / "runs.csv", record)
    for record in [points[0]._replace(seed=3), points[0]._replace(score=-99.0)]:
        append_record(tmp_path / "curves.csv", record)
    monkeypatch.setattr(sys, "argv", ["humanoid", str(humanoid_run), "--out", str(tmp_path)])
    humanoid.main()
    assert read_records(tmp_path / "runs.csv", humanoid.Training) == [others[0], training, others[1]]
    assert read_records(tmp_path / "curves.csv", humanoid.Point) == [points[0]._replace(seed=3), *points]
    told = (tmp_path / "humanoid.md").read_text()
    assert [line.split()[1] for line in told.splitlines() if re.match(r"\| \d", line)] == ["3", "7", "10"]
    assert "- another\n" in told


def test_the_command_writes_table_and_picture(humanoid_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["humanoid", str(humanoid_run), "--out", str(out)])
    humanoid.main()
    points = read_records(out / "curves.csv", humanoid.Point)
    assert [point.steps for point in points] == sorted({point.steps for point in points})
    (line,) = [line for line in (out / "humanoid.md").read_text().splitlines() if line.startswith("| 7")]
    assert [cell.strip() for cell in line.split("|")][-5:-1] == ["never"] * 4
    assert (out / "humanoid.png").stat().st_size > 5_000


def test_runs_of_another_environment_are_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["humanoid", str(run), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="run folders of Humanoid-v5, got one of CartPole-v1"):
        humanoid.main()


def test_runs_in_an_environment_with_arguments_are_refused(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace('env_kwargs = "{}"', "env_kwargs = \"{'frame_skip': 2}\""))
    with pytest.raises(SystemExit, match=r"trained with env_kwargs = \{'frame_skip': 2\}"):
        read_trainings([run])
