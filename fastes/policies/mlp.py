"""Policies that have names: a spec from policy_kwargs and an environment's spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from fastes.errors import suggest
from fastes.policies.action_head import make_action_head
from fastes.policies.images.cnn import BYTES, Front, has_batch_norm, image_layers, layers_of_image, with_norm
from fastes.policies.images.image import Image
from fastes.policies.layers.convolution import ImageConvolution
from fastes.policies.layers.dense import dense_layers
from fastes.policies.layers.layer import IDENTITY, Layer
from fastes.policies.layers.recurrent import CELLS, Cell
from fastes.policies.obs_columns import ALL, ObsColumns, columns_in
from fastes.policies.policy_keywords import POLICIES, CellKeywords, CnnKeywords, LinearKeywords, MlpKeywords, keywords_for
from fastes.policies.policy_spec import PolicySpec, flat_size

CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")  # classes, in other files: no names


def make_policy_spec(
    policy: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
    obs_columns: ObsColumns = ALL,
) -> PolicySpec:
    """The spec of a named policy for an environment's spaces.

    Args:
        policy: One of POLICIES. 'MlpPolicy' has dense layers, 'LinearPolicy' one matrix, 'CnnPolicy' convolutions of an image
            and a dense layer; 'MlpLstmPolicy' and 'CnnLstmPolicy' have recurrent cells behind what these two see.
        observation_space: The environment's.
        action_space: The environment's.
        policy_kwargs: Keywords of the policy's family, see `fastes.policies.policy_keywords`.
        obs_columns: The values of an observation that it gets, as the setting of that name has them.

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
    full_size = flat_size(observation_space)
    if isinstance(keywords, CnnKeywords):
        front = image_layers(policy, observation_space, keywords, obs_columns)
        inputs = front.layers[-1].outputs
    else:
        front = Front((), columns_in(obs_columns, observation_space, full_size))
        inputs = len(front.columns) or full_size
    return PolicySpec(
        layers=(*front.layers, *_layers_behind(keywords, inputs, head.num_outputs)),
        head=head,
        obs_shape=observation_space.shape if isinstance(observation_space, spaces.Box) else (full_size,),
        flattened=not isinstance(observation_space, spaces.Box),
        columns=front.columns,
    )


def layers_like(spec: PolicySpec, policy: str, policy_kwargs: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the layers that a named policy would have for the observations and outputs of a spec.

    A space is not needed. The dtype of an image that is not divided is unknown: it stays undivided.

    Raises:
        TypeError, ValueError: As `make_policy_spec` for policy_kwargs.
    """
    keywords = keywords_for(policy, policy_kwargs)
    if not isinstance(keywords, CnnKeywords) or spec.image is None:
        return _layers_behind(keywords, spec.layer_sizes[0], spec.layer_sizes[-1])
    image = _image_of(spec.image, spec.columns)
    seen = f"images of {image.height} x {image.width} x {image.channels}"
    front = layers_of_image(image, seen, keywords)
    return (*front, *_layers_behind(keywords, front[-1].outputs, spec.layer_sizes[-1]))


def _image_of(layer: ImageConvolution, others: tuple[int, ...]) -> Image:
    """Return the image that a layer reads."""
    size = layer.height, layer.width, layer.channels
    return Image(layer.first, *size, layer.planes, layer.divisor == BYTES, others)


def _layers_behind(keywords: LinearKeywords, inputs: int, outputs: int) -> tuple[Layer, ...]:
    """The layers of a named policy behind those that see an image: cells of a recurrent one, then dense layers.

    No batch normalisation is behind cells: a batch of observations has no memory.
    """
    cells = _cells(keywords, inputs) if isinstance(keywords, CellKeywords) else ()
    hidden, activation = (keywords.net_arch, keywords.activation_fn) if isinstance(keywords, MlpKeywords) else ((), IDENTITY)
    sizes = cells[-1].outputs if cells else inputs, *hidden, outputs
    *layers, last = dense_layers(sizes, activation, keywords.use_bias)
    norm = isinstance(keywords, CnnKeywords) and has_batch_norm(keywords) and not cells
    return (*cells, *(part for layer in layers for part in with_norm(layer, layer.outputs, norm)), last)


def _cells(keywords: CellKeywords, inputs: int) -> tuple[Cell, ...]:
    """The cells of a recurrent policy, one behind the other; the first reads inputs values."""
    kind, size = CELLS[keywords.cell], keywords.lstm_hidden_size
    return tuple(kind(inputs if i == 0 else size, size) for i in range(keywords.n_lstm_layers))
