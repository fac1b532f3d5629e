"""The images in an observation: which parts of a space they are, how their channels lie, and which values remain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.policies.policy_keywords import CnnKeywords, Filters
from fastes.policies.policy_spec import DTYPES, flat_size

Space = spaces.Space[Any]
LEAST_SIDE = 20  # pixels, of an image that nobody named: as many as "a3c" needs


class Image(NamedTuple):
    """An image among the values of a flat observation.

    Attributes:
        first: Index of its first value.
        height, width, channels: Its size.
        planes: How its channels lie, see ImageConvolution.
        is_bytes: Whether its values are uint8 from 0 to 255.
    """

    first: int
    height: int
    width: int
    channels: int
    planes: int
    is_bytes: bool


class _Part(NamedTuple):
    """A leaf of a space: its keys in words, its space, and the index of its first value in a flat observation."""

    name: str
    space: Any
    first: int


def image_in(space: Space, policy: str) -> Image:
    """Return the image of a Box, or the one part of a Dict or Tuple that is one.

    Of three dimensions the channels are the smallest, the first or the last, as in SB3; if the second is the smallest, they
    are the last. A Box of two dimensions is an image of one channel, one of four a stack of images, whose channels are joined.

    Raises:
        ValueError: No image, or several; the message names `policy`.
    """
    flat_size(space)
    return _image(*_image_box(space, policy))


def images_in(space: Space, keywords: CnnKeywords) -> tuple[Image, ...]:
    """Return the images that a policy of several inputs sees, in the order of a flat observation; () for none.

    They are the parts that Stable-Baselines3 takes for images, boxes of bytes from 0 to 255 of three dimensions, and stacks of
    these, of four. Without normalize_images they may have any dtype and range, as there. Smaller ones than LEAST_SIDE are
    values, such as a grid of codes, unless `cnn` lists convolutions that fit them.
    """
    flat_size(space)
    filters = () if isinstance(keywords.cnn, str) else keywords.cnn
    found = (_image(part.space, part.first) for part in _boxes(space, (3, 4)))
    return tuple(
        image
        for image in found
        if (image.is_bytes or not keywords.normalize_images)
        and (min(image.height, image.width) >= LEAST_SIDE or (filters and _fit(filters, image)))
    )


def holds_image(space: Space) -> bool:
    """Whether a space, or one of its parts, is an image for a policy of several inputs with default keywords."""
    try:
        return bool(images_in(space, CnnKeywords()))
    except ValueError:  # a space that no policy sees
        return False


def other_values(images: Iterable[tuple[int, int]], size: int) -> tuple[int, ...]:
    """Return the indices of the values of an observation that are part of no image.

    Args:
        images: Index of the first value and number of values of each image; no two overlap.
        size: Number of values of the observation.
    """
    others, past = list[int](), 0
    for first, count in sorted(images):
        others += range(past, first)
        past = first + count
    return (*others, *range(past, size))


def values_in_words(space: Space, first: int) -> str:
    """Return the range of the values of an image, by the index of its first value, such as 'float32 from 0 to 1'."""
    part = next(part.space for part in _leaves(space) if part.first == first and isinstance(part.space, spaces.Box))
    return f"{part.dtype} from {part.low.min():g} to {part.high.max():g}"


def _image(part: spaces.Box, first: int) -> Image:
    """Return the image that a Box of two to four dimensions is."""
    shape = part.shape
    frames, one = (shape[0], shape[1:]) if len(shape) == 4 else (1, shape)
    channels_first = len(one) == 3 and int(np.argmin(one)) == 0
    height, width = one[1:] if channels_first else one[:2]
    each = 1 if len(one) == 2 else one[0 if channels_first else 2]
    channels, planes = frames * each, frames * each if channels_first else frames
    is_bytes = part.dtype == np.uint8 and bool((part.low == 0).all() and (part.high == 255).all())
    return Image(first, height, width, channels, planes, is_bytes)


def _fit(filters: Filters, image: Image) -> bool:
    """Whether each convolution fits what the one before it leaves of an image."""
    side = min(image.height, image.width)
    for _, kernel, stride in filters:
        if kernel > side:
            return False
        side = (side - kernel) // stride + 1
    return True


def _image_box(space: Space, policy: str) -> tuple[spaces.Box, int]:
    """Return the Box that is the image and the index of its first value; ValueError if there is none."""
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
    """Return the part of a Dict or Tuple that is the image, or else the space, and the index of its first value."""
    found = _boxes(space, (3,)) or _boxes(space, (4,))
    of_bytes = [part for part in found if part.space.dtype == np.uint8]
    if len(found) > 1 and len(of_bytes) != 1:
        names = ", ".join(part.name for part in found)
        raise ValueError(
            f"{policy} sees one image, the observation space {space} has {len(found)}: {names}. Use "
            f"{policy.replace('Cnn', 'MultiInput')!r}, which sees all of them, keep one "
            "(gymnasium.wrappers.FilterObservation), or join them along their channels"
        )
    chosen = of_bytes or found
    return (chosen[0].space, chosen[0].first) if chosen else (space, 0)


def _boxes(space: Space, dimensions: tuple[int, ...]) -> list[_Part]:
    """Return the leaves that are a Box of one of these numbers of dimensions."""
    return [part for part in _leaves(space) if isinstance(part.space, spaces.Box) and len(part.space.shape) in dimensions]


def _leaves(space: Space, name: str = "", first: int = 0) -> Iterator[_Part]:
    """Yield each leaf, in the order in which spaces.flatten joins them."""
    parts: list[tuple[Any, Space]] = []
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        yield _Part(name, space, first)
    for key, part in parts:
        yield from _leaves(part, f"{name}[{key!r}]", first)
        first += spaces.flatdim(part)
