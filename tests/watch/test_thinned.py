"""Risk: a long training's curve on the page is not the one in its file, or memory grows with it."""

from __future__ import annotations

import numpy as np
import pytest

from fastes.watch.thinned import MOST_BUCKETS, Cursor, Thinned


def table_of(rows: np.ndarray, pieces: int = 1) -> Thinned:
    table = Thinned(1, rows.shape[1] - 1)
    for piece in np.array_split(rows, pieces):
        table.add(piece)
    return table


def test_rows_that_fit_are_kept_as_they_are() -> None:
    rows = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, -2.0]])
    assert table_of(rows).since(Cursor()) == (0, [[1.0, 5.0], [2.0, None], [3.0, -2.0]])


@pytest.mark.parametrize("count", [MOST_BUCKETS, MOST_BUCKETS + 1, 5_000, 100_003])
@pytest.mark.parametrize("pieces", [1, 7, 500])
def test_buckets_have_the_mean_of_their_rows(count: int, pieces: int) -> None:
    generator = np.random.default_rng(count)
    rows = np.column_stack([np.arange(1.0, count + 1), generator.normal(size=count)])
    rows[generator.random(count) < 0.3, 1] = np.nan
    table = table_of(rows, pieces)
    first, found = table.since(Cursor())
    assert first == 0
    assert MOST_BUCKETS / 2 <= len(found) <= MOST_BUCKETS
    for number, (position, mean) in enumerate(found):
        own = rows[number * table.width : (number + 1) * table.width]
        known = own[np.isfinite(own[:, 1]), 1]
        assert position == own[-1, 0]
        assert mean == (pytest.approx(known.mean(), rel=1e-5) if len(known) else None)


def test_a_reader_gets_what_it_lacks_and_all_of_it_when_buckets_get_wider() -> None:
    rows = np.column_stack([np.arange(1.0, 3_000), np.arange(1.0, 3_000)])
    table, mirror, cursor = Thinned(1, 1), list[list[float | None]](), Cursor()
    for piece in np.array_split(rows, 40):
        table.add(piece)
        first, news = table.since(cursor)
        assert first + len(news) == table.buckets
        mirror[first:] = news
        cursor = table.cursor
        assert mirror == table.since(Cursor())[1]
    assert table.width > 1
    assert len(table.since(cursor)[1]) == 1  # the last one alone, which may still grow
