"""Risk: the report of games counts other frames or hours than were played, tells of a training that has not ended, or loses an
earlier one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.csv_records import append_record, read_records
from benchmarks.learning.games import Game, Point, game_of, main
from benchmarks.learning.reports.ended_trainings import read_trainings
from benchmarks.learning.runs.run_folder import read_ended
from fastes.cli.main import main as fastes

SMALL = "--preset default --policy LinearPolicy --population-size 4 --eval-episodes 1 --target-return none --workers 0 --quiet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A training of another task under a game's name."""
    given = ["train", "fastes/Catch-v0", *SMALL.split(), "--total-timesteps", "720", "--seed", "7", "--runs", str(tmp_path)]
    assert fastes(given) == 0
    (folder,) = (tmp_path / "fastes-Catch-v0").iterdir()
    config = folder / "config.toml"
    config.write_text(re.sub(r'env = "fastes/Catch-v0"', 'env = "ALE/Pong-v5"', config.read_text()))
    return folder


def test_a_run_folder_becomes_a_row_and_a_curve(run: Path) -> None:
    game, points = game_of(read_ended(run))
    assert game[:2] == ("Pong", 7)
    assert game.frames == 4 * (720 + 9 * 19), "steps of four frames: 20 generations, and the last evaluation is told later"
    assert 0 <= game.core_hours < 0.1
    assert game.episodes == 20
    assert -1.0 <= game.worst <= game.score <= 1.0
    assert points[-1].frames == 4 * (720 - 4 * 9), "of the parameters that the last generation began with"
    assert [point.frames for point in points] == sorted({point.frames for point in points})


def test_the_command_writes_table_and_picture(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["games", str(run), "--out", str(out)])
    for _ in range(2):
        main()
        (game,) = read_records(out / "games.csv", Game)
        assert {point.game for point in read_records(out / "curves.csv", Point)} == {"Pong"}
    (line,) = [line for line in (out / "games.md").read_text().splitlines() if line.startswith("| Pong")]
    assert [cell.strip() for cell in line.split("|")][1:4] == ["Pong", "7", f"{game.frames / 1e6:.1f}M"]
    assert line.rstrip("| ").endswith(" 21"), "the paper's"
    assert (out / "games.png").stat().st_size > 5_000


def test_games_and_seeds_of_earlier_reports_stay(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    game, points = game_of(read_ended(run))
    others = [game._replace(game="Boxing"), game._replace(seed=8, machine="another")]
    for record in [*others, game._replace(score=-99.0)]:
        append_record(tmp_path / "games.csv", record)
    for record in [points[0]._replace(game="Boxing"), points[0]._replace(score=-99.0)]:
        append_record(tmp_path / "curves.csv", record)
    monkeypatch.setattr(sys, "argv", ["games", str(run), "--out", str(tmp_path)])
    main()
    assert read_records(tmp_path / "games.csv", Game) == [others[0], game, others[1]]
    assert read_records(tmp_path / "curves.csv", Point) == [points[0]._replace(game="Boxing"), *points]
    assert "- another\n" in (tmp_path / "games.md").read_text()


def test_a_training_that_has_not_ended_is_refused(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().partition("[run.result]")[0])
    with pytest.raises(SystemExit, match="no training that ended"):
        read_trainings([run])


def test_two_runs_of_a_seed_are_refused(run: Path) -> None:
    with pytest.raises(SystemExit, match=r"are both ALE/Pong-v5, seed 7: expected one run"):
        read_trainings([run, run])


def test_runs_of_another_environment_are_refused(run: Path) -> None:
    with pytest.raises(SystemExit, match="run folders of ALE/<Game>-v5, got one of ALE/Pong-ram-v5"):
        game_of(read_ended(run)._replace(env="ALE/Pong-ram-v5"))


def test_a_file_of_older_columns_is_told_of(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "games.csv").write_text("game,seed,versions\nPong,0,python 3.11\n")
    monkeypatch.setattr(sys, "argv", ["games", str(run), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="has the columns game, seed, versions; expected game, seed, frames"):
        main()
