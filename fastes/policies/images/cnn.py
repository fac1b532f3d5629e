"""CnnPolicy: convolutions of an image, and a dense layer of what they find and of all values beside the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from fastes.errors import suggest
from fastes.policies.images.image import Image, image_in
from fastes.policies.layers.batch_norm import VirtualBatchNorm
from fastes.policies.layers.convolution import Append, Convolution, ImageConvolution
from fastes.policies.layers.dense import Dense
from fastes.policies.layers.layer import IDENTITY, MOST_VALUES, Layer
from fastes.policies.obs_columns import ALL, ObsColumns, checked_columns

Filters = tuple[tuple[int, int, int], ...]  # (filters, kernel, stride) of each convolution


class Network(NamedTuple):
    """Published convolutions, and the size of the dense layer behind them."""

    filters: Filters
    features_dim: int


# a3c: Mnih et al. 2013 and 2016, and Salimans et al. 2017 for ES. nature: Mnih et al. 2015, and Stable-Baselines3.
NETWORKS = {
    "a3c": Network(((16, 8, 4), (32, 4, 2)), 256),
    "nature": Network(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
}
BATCH_NORMS = ("virtual", "none")
CNN_KWARGS = ("cnn", "features_extractor_kwargs", "batch_norm", "normalize_images")
_OWN_FEATURES = 256  # behind convolutions that are listed
BYTES = 255  # divisor of their values


class Front(NamedTuple):
    """The layers up to the features, and which values of a flat observation are observed beside the image."""

    layers: tuple[Layer, ...]
    columns: tuple[int, ...]


def image_layers(
    policy: str,
    space: spaces.Space[Any],
    kwargs: Mapping[str, Any],
    activation: str,
    use_bias: bool,
    obs_columns: ObsColumns = ALL,
) -> Front:
    """The layers of a policy that sees an image, from the image to the features. kwargs: those of CNN_KWARGS count.

    Raises ValueError or TypeError for a space without an image, one that is too small, and for other kwargs.
    """
    if checked_columns(obs_columns) != ALL:
        raise ValueError(
            f"obs_columns = {obs_columns!r:.100} chooses among the values of flat observations, not of images: leave it out"
        )
    image = image_in(space, policy)
    return Front(layers_of_image(image, f"observations {space}", kwargs, activation, use_bias), image.others)


def layers_of_image(image: Image, seen: str, kwargs: Mapping[str, Any], activation: str, use_bias: bool) -> tuple[Layer, ...]:
    """The same layers for an image. seen: what it is, in words, for errors."""
    network, normalizes = _network(kwargs), _flag(kwargs, "normalize_images", True)
    norm, layers = has_batch_norm(kwargs), list[Layer]()
    for number, of in enumerate(network.filters):
        layer = _convolution(layers, image, of, BYTES if normalizes and image.is_bytes else 1, activation, use_bias)
        _check_fits(layer, number, seen, kwargs.get("cnn", "a3c"))
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


def has_batch_norm(kwargs: Mapping[str, Any]) -> bool:
    """Whether hidden layers of a policy that sees an image are followed by batch normalisation."""
    value = kwargs.get("batch_norm", BATCH_NORMS[0])
    if value is not None and not (isinstance(value, str) and value in BATCH_NORMS):
        raise ValueError(f"batch_norm = {value!r}: expected one of {BATCH_NORMS}, or None for none")
    return value == BATCH_NORMS[0]


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


def _network(kwargs: Mapping[str, Any]) -> Network:
    """What cnn and features_extractor_kwargs say."""
    cnn = kwargs.get("cnn", "a3c")
    if isinstance(cnn, str):
        if cnn not in NETWORKS:
            raise ValueError(f"unknown cnn {cnn!r}: expected {_EXPECTED}{suggest(cnn, NETWORKS)}")
        network = NETWORKS[cnn]
    else:
        network = Network(_listed(cnn), _OWN_FEATURES)
    extractor = kwargs.get("features_extractor_kwargs") or {}
    if not isinstance(extractor, Mapping) or not set(extractor) <= {"features_dim"}:
        raise ValueError(
            f"features_extractor_kwargs = {extractor!r}: expected {{'features_dim': n}}, the size of the dense layer behind "
            "the convolutions"
        )
    size = extractor.get("features_dim", network.features_dim)
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or not 1 <= size <= MOST_VALUES:
        raise ValueError(
            f"features_dim = {size!r}: expected the size of a layer, an int of at least 1 and at most {MOST_VALUES}"
        )
    return network._replace(features_dim=int(size))


_EXPECTED = f"one of {tuple(NETWORKS)}, or a list of (filters, kernel, stride) such as [(16, 8, 4), (32, 4, 2)]"


def _listed(cnn: object) -> Filters:
    rows = list(cnn) if isinstance(cnn, Sequence) else []
    whole = all(isinstance(row, Sequence) and len(row) == 3 and all(map(_is_size, row)) for row in rows)
    if not rows or not whole:
        raise ValueError(f"cnn = {cnn!r:.200}: expected {_EXPECTED}, all of ints of at least 1")
    return tuple((int(filters), int(kernel), int(stride)) for filters, kernel, stride in rows)


def _is_size(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def _flag(kwargs: Mapping[str, Any], name: str, default: bool) -> bool:
    value = kwargs.get(name, default)
    if not isinstance(value, bool):
        raise TypeError(f"{name} = {value!r} is a {type(value).__name__}: expected True or False")
    return value
