"""The named policies, such as MlpPolicy: from their keywords and an environment's spaces to layers and an action head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.errors import suggest
from fastes.policies.action_head import make_action_head
from fastes.policies.layers import (
    CELLS,
    IDENTITY,
    Append,
    Convolution,
    Dense,
    ImageConvolution,
    Layer,
    VirtualBatchNorm,
    dense_layers,
)
from fastes.policies.obs_columns import ALL, ObsColumns, checked_columns, columns_in
from fastes.policies.policy_keywords import (
    BATCH_NORMS,
    POLICIES,
    CellKeywords,
    CnnKeywords,
    LinearKeywords,
    MlpKeywords,
    keywords_for,
)
from fastes.policies.policy_spec import DTYPES, PolicySpec, flat_size, obs_shape_of

Space = spaces.Space[Any]
CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")  # classes, in other files: no names
BYTES = 255  # divisor of the values of an image of bytes


def make_policy_spec(
    policy: str,
    observation_space: Space,
    action_space: Space,
    policy_kwargs: Mapping[str, Any] | None = None,
    obs_columns: ObsColumns = ALL,
) -> PolicySpec:
    """Return the spec of a named policy for an environment's spaces.

    Args:
        policy: One of POLICIES. 'MlpPolicy' has dense layers, 'LinearPolicy' one matrix, 'CnnPolicy' convolutions of an image
            and a dense layer; 'MlpLstmPolicy' and 'CnnLstmPolicy' have recurrent cells in addition.
        observation_space, action_space: The environment's.
        policy_kwargs: Keywords of the policy's family, see `fastes.policies.policy_keywords`.
        obs_columns: The values of an observation that the policy sees, as the setting obs_columns takes them.

    Raises:
        ValueError: An unknown policy, keyword or value, or spaces that the policy cannot work with.
        TypeError: A keyword of another type.
    """
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy = {policy!r} is a class, not a name: pass an object, as in FastES(env, fastes.{policy}(...))")
    if policy not in POLICIES:
        raise ValueError(
            f"unknown policy {policy!r}: expected one of {POLICIES}, or fastes.TorchPolicy(module) for any other "
            f"network{suggest(policy, POLICIES)}"
        )
    keywords = keywords_for(policy, policy_kwargs)
    head = make_action_head(action_space, keywords.action_mapping, keywords.num_bins)
    obs_shape, flattened = obs_shape_of(observation_space)
    if isinstance(keywords, CnnKeywords):
        if checked_columns(obs_columns) != ALL:
            raise ValueError(
                f"obs_columns = {obs_columns!r:.100} chooses among the values of flat observations, not of images: leave it out"
            )
        image = image_in(observation_space, policy)
        front, columns = _image_layers(image, f"observations {observation_space}", keywords), image.others
        inputs = front[-1].outputs
    else:
        front, columns = (), columns_in(obs_columns, observation_space, math.prod(obs_shape))
        inputs = len(columns) or math.prod(obs_shape)
    return PolicySpec(
        layers=(*front, *_layers_behind(keywords, inputs, head.num_outputs)),
        head=head,
        obs_shape=obs_shape,
        flattened=flattened,
        columns=columns,
    )


def layers_like(spec: PolicySpec, policy: str, policy_kwargs: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the layers that a named policy would have for the observations and outputs of a spec, without a space.

    The dtype of an image that is not divided is unknown: it stays undivided.

    Raises:
        TypeError, ValueError: As `make_policy_spec` for policy_kwargs.
    """
    keywords = keywords_for(policy, policy_kwargs)
    if not isinstance(keywords, CnnKeywords) or spec.image is None:
        return _layers_behind(keywords, spec.layer_sizes[0], spec.layer_sizes[-1])
    layer = spec.image
    size = layer.height, layer.width, layer.channels
    image = Image(layer.first, *size, layer.planes, layer.divisor == BYTES, spec.columns)
    front = _image_layers(image, "images of {} x {} x {}".format(*size), keywords)
    return (*front, *_layers_behind(keywords, front[-1].outputs, spec.layer_sizes[-1]))


def _layers_behind(keywords: LinearKeywords, inputs: int, outputs: int) -> tuple[Layer, ...]:
    """Return the layers behind those that see an image, or all layers: cells of a recurrent policy, then dense layers.

    No batch normalisation follows cells: a batch of observations has no memory.
    """
    cells: tuple[Layer, ...] = ()
    if isinstance(keywords, CellKeywords):
        kind, size = CELLS[keywords.cell], keywords.lstm_hidden_size
        cells = tuple(kind(inputs if i == 0 else size, size) for i in range(keywords.n_lstm_layers))
    hidden, activation = (keywords.net_arch, keywords.activation_fn) if isinstance(keywords, MlpKeywords) else ((), IDENTITY)
    sizes = cells[-1].outputs if cells else inputs, *hidden, outputs
    *layers, last = dense_layers(sizes, activation, keywords.use_bias)
    norm = isinstance(keywords, CnnKeywords) and _has_batch_norm(keywords) and not cells
    return (*cells, *(part for layer in layers for part in _with_norm(layer, layer.outputs, norm)), last)


# --- layers that see an image ----------------------------------------------------------------------------------------


def _image_layers(image: Image, seen: str, keywords: CnnKeywords) -> tuple[Layer, ...]:
    """Return the layers from an image to the features.

    Args:
        image: The image.
        seen: Its description in words, for errors.
        keywords: Those of the policy.

    Raises:
        ValueError: An image that is too small.
    """
    network, activation, use_bias = keywords.network, keywords.activation_fn, keywords.use_bias
    divisor = BYTES if keywords.normalize_images and image.is_bytes else 1
    norm, layers, size = _has_batch_norm(keywords), list[Layer](), (image.height, image.width, image.channels)
    for number, filters in enumerate(network.filters):
        layer: Convolution
        if number == 0:
            layer = ImageConvolution(*size, *filters, activation, use_bias, image.first, image.planes, divisor)
        else:
            layer = Convolution(*size, *filters, activation, use_bias)
        _check_fits(layer, number, seen, keywords.cnn)
        size = layer.rows, layer.columns, layer.filters
        layers += _with_norm(layer, layer.filters, norm)
    if image.others:
        layers.append(Append(layers[-1].outputs, len(image.others), IDENTITY))
    features = Dense(layers[-1].outputs, network.features_dim, activation, use_bias)
    return (*layers, *_with_norm(features, features.outputs, norm))


def _has_batch_norm(keywords: CnnKeywords) -> bool:
    return keywords.batch_norm == BATCH_NORMS[0]


def _with_norm(layer: Dense | Convolution, channels: int, norm: bool) -> list[Layer]:
    """Return the layer, followed by batch normalisation if `norm`, which then has its activation and makes biases useless."""
    if not norm:
        return [layer]
    return [replace(layer, activation=IDENTITY, use_bias=False), VirtualBatchNorm(layer.outputs, channels, layer.activation)]


def _check_fits(layer: Convolution, number: int, seen: str, cnn: object) -> None:
    """Raise ValueError if a convolution does not fit the image, or what the ones before it leave of the image."""
    if layer.kernel <= min(layer.height, layer.width):
        try:
            layer.check()
        except ValueError as error:
            raise ValueError(f"cnn = {cnn!r:.200} does not fit {seen}: its convolution {number + 1}: {error}") from error
        return
    where = "the image" if number == 0 else f"what convolution {number} leaves of the image"
    raise ValueError(
        f"cnn = {cnn!r} does not fit {seen}: its convolution {number + 1} has a kernel of {layer.kernel} x "
        f"{layer.kernel}, and {where} is {layer.height} x {layer.width}. Expected smaller kernels, such as "
        "policy_kwargs={'cnn': [(16, 3, 2), (32, 3, 1)]}, lists of (filters, kernel, stride), or larger images"
    )


# --- the image in an observation -------------------------------------------------------------------------------------


class Image(NamedTuple):
    """An image among the values of a flat observation.

    Attributes:
        first: Index of its first value.
        height, width, channels: Its size.
        planes: How its channels lie, see ImageConvolution.
        is_bytes: Whether its values are uint8 from 0 to 255.
        others: Indices of the values that are not part of it.
    """

    first: int
    height: int
    width: int
    channels: int
    planes: int
    is_bytes: bool
    others: tuple[int, ...]


def image_in(space: Space, policy: str) -> Image:
    """Return the image of a Box, or the one part of a Dict or Tuple that is one.

    Of three dimensions the channels are the smallest, the first or the last, as in SB3; if the second is the smallest, they
    are the last. A Box of two dimensions is an image of one channel, one of four a stack of images, whose channels are joined.

    Raises:
        ValueError: No image, or several; the message names `policy`.
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
    """Return the range of an image's values in words, such as 'float32 from 0 to 1'; raises as `image_in` does."""
    part, _ = _image_box(space, policy)
    return f"{part.dtype} from {part.low.min():g} to {part.high.max():g}"


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
    """Return name, space and index of the first value of each leaf that is a Box of that many dimensions."""
    return [
        (name, part, first)
        for name, part, first in _leaves(space)
        if isinstance(part, spaces.Box) and len(part.shape) == dimensions
    ]


def _leaves(space: Space, name: str = "", first: int = 0) -> Iterator[tuple[str, Space, int]]:
    """Yield name, space and index of the first value of each leaf, in the order in which spaces.flatten joins them."""
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
