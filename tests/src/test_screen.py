"""Risk: a screen is made small in another way than by the twin, or than by the OpenCV that other wrappers use. Bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from twins import numpy_kernels
from twins.same_bits import assert_same_bits

from fastes import _core

SCREENS = [(height, 160) for height in (210, 214, 220, 230, 250)]  # of all games
SIZES = [
    (84, 84),
    (42, 42),
    (64, 96),
    (83, 79),
    (105, 80),
    (70, 80),
    (125, 32),
    (42, 40),
    (1, 1),
    (2, 7),
    (209, 159),
    (84, 160),
]


def frames(shape: tuple[int, int], seed: int) -> list[np.ndarray]:
    """Two of noise, of few levels, or of areas of one colour: where values repeat, more means are halves."""
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]
    if seed % 3 == 1:
        return [rng.integers(0, 8, shape, dtype=np.uint8) * np.uint8(36) for _ in range(2)]
    areas = rng.integers(0, 256, (2, shape[0] // 5 + 1, shape[1] // 7 + 1), dtype=np.uint8)
    return [np.ascontiguousarray(each.repeat(5, 0).repeat(7, 1)[: shape[0], : shape[1]]) for each in areas]


def resized(resize: Any, earlier: np.ndarray, latest: np.ndarray) -> np.ndarray:
    """What a resize writes into a row of a stack, and nothing beside it."""
    stack = np.full((3, *resize.out_shape), 77, dtype=np.uint8)
    resize.brighter(earlier, latest, stack[1])
    assert (stack[::2] == 77).all(), "written beside its row"
    return stack[1]


def some_sizes(count: int, seed: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    shapes = [tuple(map(int, rng.integers(1, 200, 2))) for _ in range(count)]
    return [(shape, tuple(int(rng.integers(1, side + 1)) for side in shape)) for shape in shapes]


def test_resize(variant: str) -> None:
    larger = [((21, 16), (30, 50)), ((21, 16), (5, 40)), ((21, 16), (42, 8)), ((3, 1), (999, 999)), ((7, 9), (1000, 1000))]
    for number, (shape, out_shape) in enumerate([*((SCREENS[0], size) for size in SIZES), *some_sizes(25, 1), *larger]):
        kernel, twin = _core.AreaResize(shape, out_shape), numpy_kernels.AreaResize(shape, out_shape)
        for seed in (number, number + 1):
            earlier, latest = frames(shape, seed)
            before = earlier.copy(), latest.copy()
            name = f"{variant}, {shape} to {out_shape}"
            assert_same_bits(name, resized(kernel, earlier, latest), resized(twin, earlier, latest))
            assert_same_bits("frames", np.stack([earlier, latest]), np.stack(before))


def test_resize_is_that_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    cases = [(screen, size) for screen in SCREENS for size in [*SIZES, screen]] + some_sizes(40, 2)
    for number, (shape, out_shape) in enumerate(cases):
        resize = _core.AreaResize(shape, out_shape)
        for seed in range(number, number + 3):
            earlier, latest = frames(shape, seed)
            expected = cv2.resize(np.maximum(earlier, latest), out_shape[::-1], interpolation=cv2.INTER_AREA)
            assert_same_bits(f"{shape} to {out_shape}", resized(resize, earlier, latest), expected)


def test_halves_are_rounded_as_opencv_rounds_them() -> None:
    """Golden, as OpenCV need not be there: 29 % of these means are halves, and floats round four of them to odd numbers."""
    numbers = np.arange(210 * 160).reshape(210, 160)
    earlier, latest = ((numbers * step % 251 % 3 * 50).astype(np.uint8) for step in (7, 11))
    out = resized(_core.AreaResize((210, 160), (84, 84)), earlier, latest)
    assert int((out.ravel().astype(np.int64) * np.arange(1, out.size + 1)).sum()) == 1785742722


def test_frames_larger_than_before_are_means_over_areas(variant: str) -> None:
    """Where OpenCV would interpolate."""
    frame = np.array([[0, 100, 200]], dtype=np.uint8)
    out = resized(_core.AreaResize((1, 3), (2, 4)), frame, frame)
    assert out.tolist() == [[0, 67, 133, 200]] * 2
    assert resized(_core.AreaResize((1, 3), (1, 6)), frame, frame).tolist() == [[0, 0, 100, 100, 200, 200]]


def test_greys(variant: str) -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, 256, dtype=np.uint8)
    for shape in ((1, 1), (3, 5), (1, 8), (21, 16), (5, 0)):
        kernel, twin = _core.Greys(), numpy_kernels.Greys()
        for colours in (np.zeros(shape, np.uint8), rng.integers(0, 256, shape, dtype=np.uint8), frames(shape, 2)[0]):
            made, expected = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
            assert kernel.look_up(colours, made) == twin.look_up(colours, expected)
            for each in (kernel, twin):
                each.learn(colours, table[colours])
            assert kernel.look_up(colours, made)
            assert twin.look_up(colours, expected)
            assert_same_bits(f"{variant}, {shape}", made, expected)
            assert_same_bits(f"{variant}, {shape}", made, table[colours])


def test_a_grey_that_is_unknown_is_noticed_at_every_place(variant: str) -> None:
    greys = _core.Greys()
    greys.learn(np.array([4], np.uint8), np.array([255], np.uint8))
    for place in range(21):
        colours = np.full((1, 21), 4, np.uint8)
        colours[0, place] = 6
        assert not greys.look_up(colours, np.zeros_like(colours)), place
    assert greys.look_up(np.full((1, 21), 4, np.uint8), colours)
    assert (colours == 255).all()


def test_frames_that_do_not_fit_are_refused() -> None:
    resize, frame, out = _core.AreaResize((6, 4), (3, 2)), np.zeros((6, 4), np.uint8), np.zeros((3, 2), np.uint8)
    for arguments, words in (
        ((frame[:5], frame, out), r"earlier has shape \(5, 4\), expected \(6, 4\)"),
        ((frame, frame.reshape(4, 6), out), r"latest has shape \(4, 6\), expected \(6, 4\)"),
        ((frame, frame, frame), r"out has shape \(6, 4\), expected \(3, 2\)"),
        ((frame, frame.astype(np.int16), out), "dtype mismatch"),
    ):
        with pytest.raises(ValueError, match=words):
            resize.brighter(*arguments)
    for shape, out_shape, words in (
        ((0, 4), (3, 2), r"shape = \(0, 4\): expected height and width, 1 to 1000"),
        ((6, 4), (3, 1001), r"out_shape = \(3, 1001\)"),
        ((6, 4), (3, 2, 1), r"out_shape = \(3, 2, 1\)"),
        ((258, 4), (5, 2), r"258 x 2 parts of pixels, expected at most 257 rows"),
        ((257, 256), (5, 5), r"257 x 256 parts"),
    ):
        with pytest.raises(ValueError, match=words):
            _core.AreaResize(shape, out_shape)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"grey has shape \(3, 2\), expected that of colours, \(6, 4\)"):
        _core.Greys().look_up(frame, out)
    with pytest.raises(ValueError, match="expected uint8 of one shape"):
        _core.Greys().learn(frame, out)
