"""Risk: the report of games counts other frames or hours than were played, or tells of a training that has not ended."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.csv_records import read_records
from benchmarks.learning.games import Game, Point, main, read_game
from fastes.cli.main import main as fastes
from fastes.errors import FastESError

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
    game, points = read_game(run)
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


def test_a_training_that_has_not_ended_is_refused(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().partition("[run.result]")[0])
    with pytest.raises(FastESError, match="no training that ended"):
        read_game(run)
