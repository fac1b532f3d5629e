"""Captions on frames: a few short lines in a corner, in a font of its own, so that no library has to be there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Frame = npt.NDArray[np.uint8]

_CHARACTERS = "0123456789.-+", "ABDEFILMNPRSTUWY"
_DRAWN = (
    """
.###....#....###...###.....#..#####...##..#####..###...###...................
#...#..##...#...#.#...#...##..#......#........#.#...#.#...#...............#..
#..##...#.......#.....#..#.#..####..#........#..#...#.#...#...............#..
#.#.#...#......#....##..#..#......#.####....#....###...####.......#####.#####
##..#...#.....#.......#.#####.....#.#...#..#....#...#.....#...............#..
#...#...#....#....#...#....#..#...#.#...#..#....#...#....#...##...........#..
.###...###..#####..###.....#...###...###...#.....###...##....##..............
""",
    """
.###..####..####..#####.#####..###..#.....#...#.#...#.####..####...####.#####.#...#.#...#.#...#
#...#.#...#.#...#.#.....#.......#...#.....##.##.##..#.#...#.#...#.#.......#...#...#.#...#.#...#
#...#.#...#.#...#.#.....#.......#...#.....#.#.#.#.#.#.#...#.#...#.#.......#...#...#.#...#..#.#.
#####.####..#...#.####..####....#...#.....#.#.#.#..##.####..####...###....#...#...#.#.#.#...#..
#...#.#...#.#...#.#.....#.......#...#.....#...#.#...#.#.....#.#.......#...#...#...#.#.#.#...#..
#...#.#...#.#...#.#.....#.......#...#.....#...#.#...#.#.....#..#......#...#...#...#.##.##...#..
#...#.####..####..#####.#......###..#####.#...#.#...#.#.....#...#.####....#....###..#...#...#..
""",
)
_WIDTH, _HEIGHT = 5, 7  # of a character
_LEAST_SIDE = 320  # pixels, about: smaller frames are enlarged, else a caption would hide the score of a game
_MOST_SIDE = 1280  # pixels that a longer side is enlarged to, at most
_PIXELS_PER_DOT = 180  # of a frame's shorter side: on larger frames a dot of the font is larger
_MARGIN = 2  # dots
_DIMMED = (0.3 * np.arange(256)).astype(np.uint8)  # light under the text, of each light, so that white is seen on white
_LONGEST_FIXED = 1e6  # returns from here on have an exponent


def _glyphs() -> dict[str, npt.NDArray[np.bool_]]:
    """Return the font, bool (_HEIGHT, _WIDTH + 1) by character: the last column is the gap before the next one."""
    glyphs = {" ": np.zeros((_HEIGHT, _WIDTH + 1), bool)}
    for characters, drawn in zip(_CHARACTERS, _DRAWN, strict=True):
        dots = np.array([list(row) for row in drawn.split()]) == "#"
        for number, character in enumerate(characters):
            glyphs[character] = np.pad(dots[:, number * (_WIDTH + 1) :][:, :_WIDTH], ((0, 0), (0, 1)))
    return glyphs


_FONT = _glyphs()


def enlarged(frame: Frame) -> Frame:
    """Return a small frame a whole number of times as large, so that its shorter side has about 320 pixels; others as they are.

    Args:
        frame: uint8 (height, width, 3).
    """
    shorter, longer = sorted(frame.shape[:2])
    times = min(round(_LEAST_SIDE / max(1, shorter)), _MOST_SIDE // max(1, longer))
    return frame.repeat(times, axis=0).repeat(times, axis=1) if times > 1 else frame


def captioned(frame: Frame, episode_return: float, step: int, label: str = "") -> Frame:
    """Return a copy of a frame that tells a label, the return so far and the step in its upper left corner.

    A frame that is too narrow for the words has their first letters.

    Args:
        frame: uint8 (height, width, 3).
        episode_return: The sum of rewards so far.
        step: Steps so far.
        label: Letters that the font has; '' for no such line.
    """
    height, width = frame.shape[:2]
    scale = max(1, min(height, width) // _PIXELS_PER_DOT)
    room = (width // scale - 2 * _MARGIN + 1) // (_WIDTH + 1)  # characters
    named = [("return", _in_digits(episode_return)), ("step", str(step))]
    lines = [f"{name} {value}" if len(name) + 1 + len(value) <= room else f"{name[0]} {value}" for name, value in named]
    dots = _text([label, *lines] if label else lines).repeat(scale, axis=0).repeat(scale, axis=1)[:height, :width]
    new: Frame = frame.copy()
    corner = new[: dots.shape[0], : dots.shape[1]]
    corner[...] = _DIMMED[corner]
    corner[dots] = 255
    return new


def _in_digits(episode_return: float) -> str:
    if math.isfinite(episode_return) and abs(episode_return) < _LONGEST_FIXED:
        return f"{round(episode_return, 1) + 0.0:.1f}"  # no -0.0
    return f"{episode_return:.2e}"


def _text(lines: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return lines of text as dots with a margin, bool (height, width)."""
    row, column = _HEIGHT + _MARGIN, _WIDTH + 1
    dots = np.zeros((_MARGIN + row * len(lines), 2 * _MARGIN - 1 + column * max(map(len, lines))), bool)
    for top, line in enumerate(lines):
        for left, character in enumerate(line.upper()):
            dots[_MARGIN + row * top :, _MARGIN + column * left :][:_HEIGHT, :column] = _FONT[character]
    return dots
