"""Risk: the study of frame-skip counts other frames than were played, repeats what is done, or dates a score wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.csv_records import read_records
from benchmarks.learning.studies.game_frame_skip import Point, first_reached, run, section

ENV = "ALE/Freeway-v5"


def point(skip: int, seed: int, updates: int, score: float) -> Point:
    return Point(ENV, skip, seed, updates, 100 * updates, score, 2.0 * updates)


def test_a_score_is_dated_by_its_first_evaluation_and_medians_are_over_seeds() -> None:
    curves = {0: [0.0, 5.0, 20.0, 3.0], 1: [21.0, 0.0, 21.0, 21.0], 2: [0.0, 0.0, 0.0, 1.0]}
    points = [point(4, seed, n, score) for seed, curve in curves.items() for n, score in enumerate(curve)]
    assert first_reached(points, 20.0) == points[2]
    assert first_reached(points[8:], 20.0) is None
    (line,) = [line for line in section(ENV, points, 20.0).splitlines() if line.startswith("| 4 ")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["4", "3", "4.0 (0.0 to 21.0)", "2 (inf)", "4", "6"]


def test_the_same_command_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("matplotlib")
    given = ["--frames", "40", "--updates", "1", "--seeds", "1", "--out", str(tmp_path)]
    run([*given, "--skips", "4"])
    untrained, first = read_records(tmp_path / "game_frame_skip" / "game_frame_skip.csv", Point)
    assert untrained[:5] == (ENV, 4, 0, 0, 0), "the first evaluation is of parameters that no candidate has led to"
    assert (untrained.cpu, first[:4]) == (0.0, (ENV, 4, 0, 1))
    assert first.frames == 40 * 40, "40 candidates of ten steps, of four frames each"
    assert first.cpu > 0.0
    run([*given, "--skips", "4", "2"])
    *again, _, other = read_records(tmp_path / "game_frame_skip" / "game_frame_skip.csv", Point)
    assert again == [untrained, first]
    assert other[1:4] == (2, 0, 1)
    assert other.frames == first.frames
    assert "game_frame_skip.png" in capsys.readouterr().out
    assert (tmp_path / "game_frame_skip" / "report.md").exists()
