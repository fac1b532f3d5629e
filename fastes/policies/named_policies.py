"""The named policies, such as MlpPolicy: from their keywords and an environment's spaces to layers and an action head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gymnasium import spaces

from fastes.errors import suggest, warn_user
from fastes.policies.action_head import make_action_head
from fastes.policies.images import Image, image_in, images_in, other_values
from fastes.policies.layers import (
    CELLS,
    IDENTITY,
    Append,
    Convolution,
    Dense,
    ImageConvolution,
    Join,
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
    MultiInputKeywords,
    keywords_for,
)
from fastes.policies.policy_spec import PolicySpec, obs_shape_of, parts_of

Space = spaces.Space[Any]
CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")  # classes, in other files: no names
BYTES = 255  # divisor of the values of an image of bytes


def _shortened(policy: str) -> str:
    """Return a policy's name as users shorten it: mlp for MlpPolicy."""
    return policy.lower().removesuffix("policy")


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
            and a dense layer, 'MultiInputPolicy' these for each image and dense layers behind them; 'MlpLstmPolicy',
            'CnnLstmPolicy' and 'MultiInputLstmPolicy' have recurrent cells in addition.
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
            f"network{suggest(policy, POLICIES) or suggest(policy, POLICIES, _shortened)}"
        )
    keywords = keywords_for(policy, policy_kwargs)
    head = make_action_head(action_space, keywords.action_mapping, keywords.num_bins)
    obs_shape, flattened = obs_shape_of(observation_space)
    images, size = _images_seen(observation_space, policy, keywords, policy_kwargs), math.prod(obs_shape)
    if images and isinstance(keywords, CnnKeywords):
        if checked_columns(obs_columns) != ALL:
            raise ValueError(
                f"obs_columns = {obs_columns!r:.100} chooses among the values of flat observations, not of images: leave it out"
            )
        columns = other_values(((each.first, each.height * each.width * each.channels) for each in images), size)
        layers = _seeing_layers(images, len(columns), f"observations {observation_space}", keywords, head.num_outputs)
    else:
        columns = columns_in(obs_columns, observation_space, size)
        layers = _layers_behind(keywords, len(columns) or size, head.num_outputs)
    return PolicySpec(
        layers=layers,
        head=head,
        obs_shape=obs_shape,
        flattened=flattened,
        columns=columns,
        parts=parts_of(observation_space),
    )


def layers_like(spec: PolicySpec, policy: str, policy_kwargs: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the layers that a named policy would have for the observations and outputs of a spec, without a space.

    The dtype of an image that is not divided is unknown: it stays undivided.

    Raises:
        TypeError, ValueError: As `make_policy_spec` for policy_kwargs.
    """
    keywords = keywords_for(policy, policy_kwargs)
    if not isinstance(keywords, CnnKeywords) or not spec.images:
        return _layers_behind(keywords, spec.layer_sizes[0], spec.layer_sizes[-1])
    images = [
        Image(each.first, each.height, each.width, each.channels, each.planes, each.divisor == BYTES) for each in spec.images
    ]
    seen = " and ".join(f"{each.height} x {each.width} x {each.channels}" for each in images)
    return _seeing_layers(images, len(spec.columns), f"images of {seen}", keywords, spec.layer_sizes[-1])


def _layers_behind(keywords: LinearKeywords, inputs: int, outputs: int, norm: bool = False) -> tuple[Layer, ...]:
    """Return the layers behind those that see an image, or all layers: cells of a recurrent policy, then dense layers.

    Args:
        keywords: Those of the policy.
        inputs, outputs: Number of values that they read and give.
        norm: Whether batch normalisation follows hidden layers. None follows cells: a batch of observations has no memory.
    """
    cells: tuple[Layer, ...] = ()
    if isinstance(keywords, CellKeywords):
        kind, size = CELLS[keywords.cell], keywords.lstm_hidden_size
        cells = tuple(kind(inputs if i == 0 else size, size) for i in range(keywords.n_lstm_layers))
    hidden, activation = (keywords.net_arch, keywords.activation_fn) if isinstance(keywords, MlpKeywords) else ((), IDENTITY)
    sizes = cells[-1].outputs if cells else inputs, *hidden, outputs
    *layers, last = dense_layers(sizes, activation, keywords.use_bias)
    return (*cells, *(part for layer in layers for part in _with_norm(layer, layer.outputs, norm and not cells)), last)


# --- layers that see images ------------------------------------------------------------------------------------------


def _images_seen(space: Space, policy: str, keywords: LinearKeywords, given: Mapping[str, Any] | None) -> Sequence[Image]:
    """Return the images that a policy sees by convolutions; ValueError if it needs one and there is none."""
    if isinstance(keywords, MultiInputKeywords):
        images = images_in(space, keywords)
        if not images and "cnn" in (given or {}):
            warn_user(
                f"{policy} does not use cnn, as {space} has no image: a Box (height, width, channels) of uint8 from 0 to 255; "
                "policy_kwargs={'normalize_images': False} takes boxes of any values for images",
                UserWarning,
            )
        return images
    return (image_in(space, policy),) if isinstance(keywords, CnnKeywords) else ()


def _seeing_layers(images: Sequence[Image], others: int, seen: str, keywords: CnnKeywords, outputs: int) -> tuple[Layer, ...]:
    """Return all layers of a policy that sees images.

    With several inputs each image has features of its own, and the other values join these; else the values join the map of
    the one image in front of its features.

    Args:
        images: The images, at least one.
        others: Number of values that are part of no image.
        seen: The observation in words, for errors.
        keywords: Those of the policy.
        outputs: Number of values that the last layer gives.

    Raises:
        ValueError: An image that is too small.
    """
    front, joined = list[Layer](), 0
    for image in images:
        front += _convolutions(image, seen, keywords)
        if not isinstance(keywords, MultiInputKeywords):
            front += _appended(front[-1].outputs, others)
        front += _features(front[-1].outputs, keywords)
        if len(images) > 1:
            front.append(Join(front[-1].outputs, joined, IDENTITY))
            joined = front[-1].outputs
    if isinstance(keywords, MultiInputKeywords):
        front += _appended(front[-1].outputs, others)
    return (*front, *_layers_behind(keywords, front[-1].outputs, outputs, _has_batch_norm(keywords)))


def _convolutions(image: Image, seen: str, keywords: CnnKeywords) -> list[Layer]:
    """Return the convolutions of an image; ValueError if it is too small."""
    activation, use_bias = keywords.image_activation, keywords.use_bias
    divisor = BYTES if keywords.normalize_images and image.is_bytes else 1
    norm, layers, size = _has_batch_norm(keywords), list[Layer](), (image.height, image.width, image.channels)
    for number, filters in enumerate(keywords.network.filters):
        layer: Convolution
        if number == 0:
            layer = ImageConvolution(*size, *filters, activation, use_bias, image.first, image.planes, divisor)
        else:
            layer = Convolution(*size, *filters, activation, use_bias)
        _check_fits(layer, number, seen, keywords.cnn)
        size = layer.rows, layer.columns, layer.filters
        layers += _with_norm(layer, layer.filters, norm)
    return layers


def _features(inputs: int, keywords: CnnKeywords) -> list[Layer]:
    """Return the dense layer behind convolutions."""
    layer = Dense(inputs, keywords.network.features_dim, keywords.image_activation, keywords.use_bias)
    return _with_norm(layer, layer.outputs, _has_batch_norm(keywords))


def _appended(inputs: int, others: int) -> list[Layer]:
    """Return the layer that appends values that are part of no image; none if there are no such values."""
    return [Append(inputs, others, IDENTITY)] if others else []


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
