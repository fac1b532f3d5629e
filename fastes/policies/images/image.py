"""The place of the image in an observation, as its space says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.policies.policy_spec import DTYPES, flat_size

Space = spaces.Space[Any]


class Image(NamedTuple):
    """An image among the values of a flat observation.

    first: the number of its first value.
    height, width, channels: its size; planes: how its channels lie, see ImageConvolution.
    is_bytes: whether its values are all of 0 to 255.
    others: the other values.
    """

    first: int
    height: int
    width: int
    channels: int
    planes: int
    is_bytes: bool
    others: tuple[int, ...]


def image_in(space: Space, policy: str) -> Image:
    """The image of a Box, or the one part of a Dict or Tuple that is one. ValueError if there is none, or are several.

    The smallest of three dimensions is that of the channels, as in SB3, the first or the last; if it is the second,
    the last is taken. A Box of two is an image of one channel, a Box of four a stack of images, whose channels are joined.
    """
    size = flat_size(space)
    part, first = _image_box(space, policy)
    shape = part.shape
    frames, one = (shape[0], shape[1:]) if len(shape) == 4 else (1, shape)
    channels_first = len(one) == 3 and int(np.argmin(one)) == 0
    height, width = one[1:] if channels_first else one[:2]
    each = 1 if len(one) == 2 else one[0 if channels_first else 2]
    channels, planes = frames * each, frames * each if channels_first else frames
    is_bytes = part.dtype == np.uint8 and bool((part.low == 0).all() and (part.high == 255).all())
    past = first + height * width * channels
    return Image(first, height, width, channels, planes, is_bytes, (*range(first), *range(past, size)))


def values_in_words(space: Space, policy: str) -> str:
    """The values of the image of a space, as in 'float32 from 0 to 1'. Raises what `image_in` raises."""
    part, _ = _image_box(space, policy)
    return f"{part.dtype} from {part.low.min():g} to {part.high.max():g}"


def _image_box(space: Space, policy: str) -> tuple[spaces.Box, int]:
    """The Box that is the image, and the number of its first value; ValueError if there is none."""
    part, first = (space, 0) if isinstance(space, spaces.Box) else _image_part(space, policy)
    shape = part.shape or ()
    if not isinstance(part, spaces.Box) or len(shape) not in (2, 3, 4):
        raise ValueError(
            f"{policy} needs images, the observation space is {space}: expected a Box of {DTYPES}, of shape (height, width, "
            "channels), (channels, height, width) or (height, width), a stack of these, or a Dict or Tuple with one such part "
            f"of three dimensions or four. Use {policy.replace('Cnn', 'Mlp')!r} for observations without an image"
        )
    return part, first


def _image_part(space: Space, policy: str) -> tuple[Space, int]:
    """The part that is an image, and the number of its first value in the flat observation."""
    found = _boxes(space, 3) or _boxes(space, 4)
    of_bytes = [each for each in found if each[1].dtype == np.uint8]
    if len(found) > 1 and len(of_bytes) != 1:
        names = ", ".join(name for name, *_ in found)
        raise ValueError(
            f"{policy} sees one image, the observation space {space} has {len(found)}: {names}. Keep one of them "
            "(gymnasium.wrappers.FilterObservation), or join them along their channels"
        )
    chosen = of_bytes or found
    return (chosen[0][1], chosen[0][2]) if chosen else (space, 0)


def _boxes(space: Space, dimensions: int) -> list[tuple[str, spaces.Box, int]]:
    """Return the leaves that are a Box of that many dimensions."""
    return [
        (name, part, first)
        for name, part, first in _leaves(space)
        if isinstance(part, spaces.Box) and len(part.shape) == dimensions
    ]


def _leaves(space: Space, name: str = "", first: int = 0) -> Iterator[tuple[str, Space, int]]:
    """Each part with its name and the number of its first value, in the order in which spaces.flatten joins them."""
    parts: list[tuple[Any, Space]] = []
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        yield name, space, first
    for key, part in parts:
        yield from _leaves(part, f"{name}[{key!r}]", first)
        first += spaces.flatdim(part)
