"""CnnPolicy: convolutions of an image, and a dense layer of their outputs and of all other values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gymnasium import spaces

from fastes.policies.images.image import Image, image_in
from fastes.policies.layers.batch_norm import VirtualBatchNorm
from fastes.policies.layers.convolution import Append, Convolution, ImageConvolution
from fastes.policies.layers.dense import Dense
from fastes.policies.layers.layer import IDENTITY, Layer
from fastes.policies.obs_columns import ALL, ObsColumns, checked_columns
from fastes.policies.policy_keywords import BATCH_NORMS, CnnKeywords

BYTES = 255  # divisor of their values


class Front(NamedTuple):
    """The layers up to the features, and the values of a flat observation that are observed in addition to the image."""

    layers: tuple[Layer, ...]
    columns: tuple[int, ...]


def image_layers(
    policy: str,
    space: spaces.Space[Any],
    keywords: CnnKeywords,
    obs_columns: ObsColumns = ALL,
) -> Front:
    """The layers of a policy that sees an image, from the image to the features.

    Raises ValueError for a space without an image, and for one that is too small.
    """
    if checked_columns(obs_columns) != ALL:
        raise ValueError(
            f"obs_columns = {obs_columns!r:.100} chooses among the values of flat observations, not of images: leave it out"
        )
    image = image_in(space, policy)
    return Front(layers_of_image(image, f"observations {space}", keywords), image.others)


def layers_of_image(image: Image, seen: str, keywords: CnnKeywords) -> tuple[Layer, ...]:
    """The same layers for an image. seen: what it is, in words, for errors."""
    network, activation, use_bias = keywords.network, keywords.activation_fn, keywords.use_bias
    norm, layers = has_batch_norm(keywords), list[Layer]()
    for number, of in enumerate(network.filters):
        layer = _convolution(
            layers, image, of, BYTES if keywords.normalize_images and image.is_bytes else 1, activation, use_bias
        )
        _check_fits(layer, number, seen, keywords.cnn)
        layers += with_norm(layer, of[0], norm)
    if image.others:
        layers.append(Append(layers[-1].outputs, len(image.others), IDENTITY))
    features = Dense(layers[-1].outputs, network.features_dim, activation, use_bias)
    return (*layers, *with_norm(features, features.outputs, norm))


def with_norm(layer: Any, channels: int, norm: bool) -> list[Layer]:
    """A layer, or the same without bias and activation and a batch normalisation with these behind it."""
    if not norm:
        return [layer]
    bare = type(layer)(**{**vars(layer), "activation": IDENTITY, "use_bias": False})
    return [bare, VirtualBatchNorm(layer.outputs, channels, layer.activation)]


def has_batch_norm(keywords: CnnKeywords) -> bool:
    """Whether hidden layers of a policy that sees an image are followed by batch normalisation."""
    return keywords.batch_norm == BATCH_NORMS[0]


def _convolution(
    before: Sequence[Layer], image: Image, of: tuple[int, int, int], divisor: int, activation: str, use_bias: bool
) -> Convolution:
    if not before:
        size = image.height, image.width, image.channels
        return ImageConvolution(*size, *of, activation, use_bias, image.first, image.planes, divisor)
    last = next(layer for layer in reversed(before) if isinstance(layer, Convolution))
    return Convolution(last.rows, last.columns, last.filters, *of, activation, use_bias)


def _check_fits(layer: Convolution, number: int, seen: str, cnn: object) -> None:
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
