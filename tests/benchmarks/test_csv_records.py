"""Risk: a file of records that took hours to make loses some when one is added."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import append_record, read_records


class Score(NamedTuple):
    name: str
    seed: int
    score: float


OLD = [Score("a", 1, float("inf")), Score("a", 10, 7288.125), Score("b, c", 2, 250.0)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    for record in OLD:
        append_record(path, record)
    return path


def test_a_file_with_other_columns_is_told_of(file: Path) -> None:
    file.write_text(file.read_text().replace("score", "result"))
    with pytest.raises(ValueError, match="has the columns name, seed, result; expected name, seed, score"):
        read_records(file, Score)


def test_a_line_that_cannot_be_written_whole_leaves_the_file(file: Path) -> None:
    before = file.read_bytes()
    with file.open("ab") as torn:
        torn.write(b'a,3,"1')
    append_record(file, Score("z", 0, 0.0))
    assert file.read_bytes() == before + b"z,0,0.0\n"
    assert read_records(file, Score) == [*OLD, Score("z", 0, 0.0)]
