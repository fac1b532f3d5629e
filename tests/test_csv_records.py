"""Risk: a file of records that cannot be made anew loses some when others are merged into it."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # last: the checkout's fastes may have no compiled core

from benchmarks.csv_records import append_record, merge_records, read_records


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


def merge(path: Path, *new: Score) -> list[Score]:
    return merge_records(path, Score, new, key=lambda score: score[:2])


def test_new_records_replace_those_of_their_key(file: Path) -> None:
    new = Score("a", 2, 1.0), Score("a", 10, 3.0)
    expected = [OLD[0], *new, OLD[2]]
    assert merge(file, *new) == expected
    assert read_records(file, Score) == expected


def test_a_file_that_is_not_there_begins(tmp_path: Path) -> None:
    assert merge(tmp_path / "new.csv", *OLD) == OLD
    assert merge(tmp_path / "new.csv") == OLD


def test_merging_nothing_changes_no_byte(file: Path) -> None:
    before = file.read_bytes()
    merge(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:-2], "ends within one"),
        (lambda text: text.replace("7288.125", "much"), "3 lines, of which 2 are whole"),
        (lambda text: text.replace("a,1,inf", "a,1"), "3 lines, of which 2 are whole"),
        (lambda text: text.replace("score", "result"), "has the columns name, seed, result; expected name, seed, score"),
    ],
    ids=["torn", "no number", "too few", "other columns"],
)
def test_a_file_that_would_lose_a_line_is_left_as_it_is(file: Path, change: object, said: str) -> None:
    assert callable(change)
    file.write_text(change(file.read_text()))
    before = file.read_bytes()
    with pytest.raises(ValueError, match=said):
        merge(file, Score("z", 0, 0.0))
    assert file.read_bytes() == before


def test_a_file_with_other_columns_is_told_of(file: Path) -> None:
    file.write_text(file.read_text().replace("score", "result"))
    with pytest.raises(ValueError, match="has the columns name, seed, result; expected name, seed, score"):
        read_records(file, Score)


def test_a_crash_while_merging_leaves_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        merge(file, Score("z", 0, 0.0))
    assert file.read_bytes() == before
