"""Risk: a file that is being written, torn, replaced or of another version shows a wrong curve, or ends the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from written_runs import progress_line as line

from fastes.training.record import Record
from fastes.watch.followed_progress import FollowedProgress

HEAD = ",".join(Record._fields)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "progress.csv"


def steps_of(followed: FollowedProgress, part: str = "generations", trial: str = "1") -> list[float]:
    found = followed.since({})["trials"]
    return [row[0] for row in found[trial][part]["rows"]] if trial in found else []


def test_rows_show_once_they_are_whole(file: Path) -> None:
    followed = FollowedProgress(file)
    shown = []
    for text in (
        HEAD[:20],
        HEAD[20:],
        "\n",
        line(1)[:9],
        line(1)[9:],
        "\n" + line(2) + "\n" + line(3),
    ):
        with open(file, "a") as out:
            out.write(text)
        followed.update()
        shown.append(len(steps_of(followed)))
    assert shown == [0, 0, 0, 0, 0, 2]


def test_a_long_file_is_read_in_parts(file: Path) -> None:
    file.write_text(HEAD + "\n" + (line(2) + "\n") * 100_000)
    at_once, in_parts, rows = FollowedProgress(file), FollowedProgress(file), list[int]()
    assert at_once.update()
    while not in_parts.update(most_seconds=0.0):
        rows.append(in_parts.trials[1].generations.rows)
    assert rows[0] < rows[1] < 100_000
    assert in_parts.trials[1].generations.rows == 100_000
    assert in_parts.since({})["trials"] == at_once.since({})["trials"]


def test_evaluations_are_where_their_parameters_were(file: Path) -> None:
    rows = [
        line(1),
        line(2, eval_generation=1, eval_at=40, eval_return=7.0),
        line(3, eval_return=8.0),
    ]
    file.write_text("\n".join([HEAD, *rows, ""]))
    followed = FollowedProgress(file)
    followed.update()
    assert followed.since({})["trials"]["1"]["evaluations"]["rows"] == [[40.0, 0.8, 0.2, 7.0], [300.0, 6.0, 0.5, 8.0]]


def test_damaged_rows_are_left_out(file: Path) -> None:
    rows = [
        line(1),
        "1,2,3",
        line(2) + ",9",
        "x" + line(3),
        "",
        "#" + line(4),
        line(5),
        "\0\xff",
        line(-1),
        line(6),
    ]
    file.write_bytes("\n".join([HEAD, *rows, ""]).encode("latin-1"))
    followed = FollowedProgress(file)
    followed.update()
    assert steps_of(followed) == [100.0, 500.0, 600.0]


def test_columns_of_another_version(file: Path) -> None:
    file.write_text("timesteps,new,generation\n50,1,1\n60,2,2\n")
    followed = FollowedProgress(file)
    followed.update()
    assert steps_of(followed) == [50.0, 60.0]
    assert followed.since({})["trials"]["1"]["generations"]["rows"][0][3] is None
    file.write_text("generation,eval_generation,eval_return\n1,1,5.0\n")
    followed = FollowedProgress(file)
    followed.update()
    assert followed.since({})["trials"]["1"]["evaluations"]["rows"] == [[0.0, 0.0, None, 5.0]]


def test_a_file_without_what_is_needed(file: Path) -> None:
    for content in ("", "\n", "nothing,known\n1,2\n"):
        file.write_text(content)
        followed = FollowedProgress(file)
        followed.update()
        assert followed.since({})["trials"] == {}


def test_a_file_that_was_replaced_is_read_from_its_start(file: Path, tmp_path: Path) -> None:
    """As when a run is resumed, which drops the rows after its checkpoint."""
    file.write_text("\n".join([HEAD, line(1), line(2), line(3), ""]))
    followed = FollowedProgress(file)
    followed.update()
    cursor = followed.since({})["cursor"]
    other = tmp_path / "other"
    other.write_text("\n".join([HEAD, line(1), line(2, timesteps=222), line(3), line(4), ""]))
    os.replace(other, file)
    followed.update()
    news = followed.since(cursor)
    assert news["cursor"]["reading"] != cursor["reading"]
    assert [row[0] for row in news["trials"]["1"]["generations"]["rows"]] == [100.0, 222.0, 300.0, 400.0]


def test_a_file_that_was_written_anew_in_its_place_is_read_from_its_start(file: Path) -> None:
    """As when a run folder was deleted and the next training got the same inode, or when a copy was copied over it."""
    file.write_text("\n".join([HEAD, *(line(n, return_mean=1.0) for n in range(1, 31)), ""]))
    followed = FollowedProgress(file)
    followed.update()
    with open(file, "r+") as out:
        out.write("\n".join([HEAD, *(line(n, return_mean=2.0) for n in range(1, 41)), ""]))
    followed.update()
    assert [row[3] for row in followed.since({})["trials"]["1"]["generations"]["rows"]] == [2.0] * 40


def test_a_cursor_of_another_server_is_none_of_this_one(file: Path) -> None:
    file.write_text("\n".join([HEAD, line(1), line(2), ""]))
    first = FollowedProgress(file)
    first.update()
    second = FollowedProgress(file)
    second.update()
    assert len(second.since(first.since({})["cursor"])["trials"]["1"]["generations"]["rows"]) == 2


def test_numbers_without_end_are_left_out(file: Path) -> None:
    file.write_text("\n".join([HEAD, line(1, seconds=1e308), line(2, seconds=1e308), ""]))
    followed = FollowedProgress(file)
    followed.update()
    assert [row[1] for row in followed.since({})["trials"]["1"]["generations"]["rows"]] == [1e308, None]


def test_each_trial_has_a_curve(file: Path) -> None:
    rows = [line(n, trial=trial, timesteps=2 * n + trial) for n in (1, 2, 3) for trial in (1, 2)]
    file.write_text("\n".join([HEAD, *rows, ""]))
    followed = FollowedProgress(file)
    followed.update()
    assert (steps_of(followed), steps_of(followed, trial="2")) == ([3.0, 5.0, 7.0], [4.0, 6.0, 8.0])


def test_what_is_no_file_is_not_opened(file: Path) -> None:
    os.mkfifo(file)  # opening it would wait
    with pytest.raises(OSError, match="is not a file"):
        FollowedProgress(file).update()


def test_an_update_of_a_long_training_costs_as_little_as_one_of_a_short_one(file: Path) -> None:
    """In bytes that are read and sent, which no other load changes."""
    sent = []
    for count in (50, 20_000):
        file.write_text("\n".join([HEAD, *map(line, range(1, count)), ""]))
        followed = FollowedProgress(file)
        followed.update()
        cursor = followed.since({})["cursor"]
        with open(file, "a") as out:
            out.write(line(count) + "\n")
        followed.update()
        sent.append(len(str(followed.since(cursor))))
    assert sent[1] < 1.5 * sent[0]


def test_time_passes_from_one_reading_to_the_next(file: Path) -> None:
    """Also where an evaluation is of parameters from before."""
    file.write_text("\n".join([HEAD, line(1), line(2), ""]))
    followed = FollowedProgress(file)
    followed.update()
    with open(file, "a") as out:
        out.write(line(3, cpu_seconds=0.9, eval_generation=3, eval_at=200, eval_return=7.0) + "\n")
    followed.update()
    curve = followed.since({})["trials"]["1"]
    assert [row[:3] for row in curve["generations"]["rows"]] == [[100.0, 2.0, 0.5], [200.0, 4.0, 0.5], [300.0, 6.0, 0.9]]
    assert curve["evaluations"]["rows"][-1] == [200.0, 4.0, 0.5, 7.0]
