"""Risk: a caption cannot be read on a light or dark picture, does not fit a small one, or spoils the rest of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastes.runs.captions import captioned, enlarged

WHITE = 255


def _frame(height: int, width: int, value: int) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def _text_of(frame: np.ndarray) -> np.ndarray:
    """The dots of the text, bool (height, width)."""
    return (frame == WHITE).all(axis=2)


def test_dots_are_those_of_the_characters() -> None:
    """'1' and the 7 beside it, drawn once more by hand."""
    dots = _text_of(captioned(_frame(100, 100, 0), 17.0, 0))
    start = 2 + 6 * len("RETURN ")
    shown = ["".join(".#"[int(dot)] for dot in row) for row in dots[2:9, start : start + 11]]
    assert shown == [
        "..#...#####",
        ".##.......#",
        "..#......#.",
        "..#.....#..",
        "..#....#...",
        "..#....#...",
        ".###...#...",
    ]


@pytest.mark.parametrize("size", [(64, 64), (65, 67), (210, 160), (401, 601), (480, 480), (1080, 1920)])
@pytest.mark.parametrize("value", [0, 128, WHITE])
def test_text_is_seen_on_any_picture_of_any_size(size: tuple[int, int], value: int) -> None:
    frame = _frame(*size, value)
    new = captioned(frame, -12345.67, 99999, "untrained")
    assert new.shape == frame.shape
    assert new.dtype == np.uint8
    assert (frame == value).all(), "the caller's frame stays"
    rows, columns = np.nonzero((new != frame).any(axis=2))
    corner = new[: rows.max() + 1, : columns.max() + 1]
    assert rows.max() < size[0] / 2
    assert columns.max() < size[1] - 1, "no character is cut off"
    text = _text_of(corner)
    assert 0.1 < text.mean() < 0.5
    assert corner[~text].max() < 0.4 * WHITE, "around white dots it is dark"
    assert (new[rows.max() + 1 :] == value).all()
    assert (new[:, columns.max() + 1 :] == value).all()


@pytest.mark.parametrize(
    ("size", "times"),
    [
        ((20, 60), 16),
        ((64, 64), 5),
        ((64, 96), 5),
        ((84, 84), 4),
        ((210, 160), 2),
        ((250, 300), 1),
        ((400, 600), 1),
        ((1, 1000), 1),
        ((20, 200), 6),
    ],
)
def test_a_small_frame_is_enlarged_dot_by_dot(size: tuple[int, int], times: int) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    large = enlarged(frame)
    assert large.shape == (size[0] * times, size[1] * times, 3)
    for row in range(times):
        assert (large[row::times, times - 1 :: times] == frame).all()


@pytest.mark.parametrize("size", [(20, 60), (64, 64), (64, 96)])
def test_a_caption_leaves_most_of_a_small_picture(size: tuple[int, int]) -> None:
    large = enlarged(_frame(*size, 128))
    new = captioned(large, -12345.67, 99999, "untrained")
    assert (new != large).any(axis=2).mean() < 0.15


def test_a_large_frame_has_large_letters() -> None:
    heights = [np.nonzero(_text_of(captioned(_frame(side, side, 0), 1.0, 1)))[0].max() for side in (100, 400, 1000)]
    assert heights[0] < heights[1] < heights[2]


def test_a_narrow_frame_has_first_letters() -> None:
    narrow, wide = (_text_of(captioned(_frame(64, width, 0), -12345.6, 1)) for width in (64, 200))
    assert not (narrow == wide[:, :64]).all()
    step = slice(11, 18)
    assert (narrow[step] == wide[step, :64]).all(), "the step's line has room for its word"


@pytest.mark.parametrize(
    ("episode_return", "same_as"), [(-0.04, 0.0), (0.04, 0.0), (12.34, 12.3), (1.234e8, 1.23e8), (-5e-9, 0.0)]
)
def test_returns_are_rounded(episode_return: float, same_as: float) -> None:
    assert (captioned(_frame(80, 120, 0), episode_return, 3) == captioned(_frame(80, 120, 0), same_as, 3)).all()


@pytest.mark.parametrize("episode_return", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_odd_returns_are_shown(episode_return: float) -> None:
    shown = captioned(_frame(64, 64, 0), episode_return, 3)
    assert _text_of(shown).any()
    assert not (shown == captioned(_frame(64, 64, 0), 0.0, 3)).all()
