"""Policies that have names: a spec from policy_kwargs and an environment's spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from fastes.errors import suggest
from fastes.policies import recurrent
from fastes.policies.action_head import head_from
from fastes.policies.images.cnn import BYTES, CNN_KWARGS, Front, has_batch_norm, image_layers, layers_of_image, with_norm
from fastes.policies.images.image import Image
from fastes.policies.layers.convolution import ImageConvolution
from fastes.policies.layers.dense import dense_layers
from fastes.policies.layers.layer import ACTIVATIONS, Layer
from fastes.policies.obs_columns import ALL, ObsColumns, columns_in
from fastes.policies.policy_spec import PolicySpec, flat_size

IMAGE_POLICIES = ("CnnPolicy", "CnnLstmPolicy")
POLICIES = ("MlpPolicy", "LinearPolicy", "CnnPolicy", *recurrent.POLICIES)
CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")  # classes, in other files: no names
_KWARGS = ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins")
# fmt: off
_OF_NETWORKS = (
    "ortho_init", "use_sde", "log_std_init", "full_std", "use_expln", "squash_output", "features_extractor_class",
    "features_extractor_kwargs", "share_features_extractor", "normalize_images", "optimizer_class", "optimizer_kwargs",
    "n_critics", "clip_mean", "sde_net_arch",
)
# fmt: on
_ANSWERS = {  # keys of SB3's policy_kwargs
    **dict.fromkeys(_OF_NETWORKS, "it has no counterpart here: leave it out"),
    "squash_output": "it is action_mapping='squash' here",
    "optimizer_class": "optimizer is a setting here, beside policy_kwargs",
    "features_extractor_class": "put the extractor and the layers into one module, as in fastes.TorchPolicy(module)",
    "with_bias": "it is use_bias here",
    **dict.fromkeys((*CNN_KWARGS, "features_dim"), "it is of policies that see images: use 'CnnPolicy'"),
    **recurrent.ANSWERS,
}
_ANSWERS_OF_CNN = {
    **_ANSWERS,
    "features_extractor_class": "cnn says which convolutions there are: 'a3c', 'nature', or a list of (filters, kernel, "
    "stride); for any other network use fastes.TorchPolicy(module)",
}


def make_policy_spec(
    policy: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
    obs_columns: ObsColumns = ALL,
) -> PolicySpec:
    """The spec of a named policy for an environment's spaces.

    policy: 'MlpPolicy' (hidden layers 64-64, tanh), 'LinearPolicy' (one matrix, no bias) or 'CnnPolicy' (convolutions of an
        image and a dense layer, relu); 'MlpLstmPolicy' and 'CnnLstmPolicy' have a recurrent cell behind what these two see.
    policy_kwargs: net_arch (hidden sizes, those behind features and cells; in SB3's dict those of 'pi'), activation_fn
        ('tanh', 'relu' or 'elu' in any case, or a class of that name such as torch.nn.Tanh), use_bias, action_mapping ('clip',
        'squash', 'bins'), num_bins. Of a CnnPolicy also cnn ('a3c', 'nature', or a list of (filters, kernel, stride)),
        features_extractor_kwargs ({'features_dim': n}), batch_norm ('virtual' or 'none'), normalize_images (bytes are divided
        by 255). Of a recurrent policy also cell ('lstm' or 'gru'), lstm_hidden_size (32) and n_lstm_layers (1).
    obs_columns: which values of an observation it gets, as the setting of that name has them.
    """
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy = {policy!r} is a class, not a name: pass an object, as in FastES(env, fastes.{policy}(...))")
    if policy not in POLICIES:
        raise ValueError(
            f"unknown policy {policy!r}: expected one of {POLICIES}, or fastes.TorchPolicy(module) for any other "
            f"network{suggest(policy, POLICIES)}"
        )
    kwargs = dict(policy_kwargs or {})
    _check_keys(policy, kwargs)
    head = head_from(action_space, kwargs)
    full_size = flat_size(observation_space)
    if policy in IMAGE_POLICIES:
        front = image_layers(policy, observation_space, kwargs, *_dense_options(policy, kwargs), obs_columns)
        inputs = front.layers[-1].outputs
    else:
        front = Front((), columns_in(obs_columns, observation_space, full_size))
        inputs = len(front.columns) or full_size
    return PolicySpec(
        layers=(*front.layers, *_layers_behind(policy, kwargs, inputs, head.num_outputs)),
        head=head,
        obs_shape=observation_space.shape if isinstance(observation_space, spaces.Box) else (full_size,),
        flattened=not isinstance(observation_space, spaces.Box),
        columns=front.columns,
    )


def layers_like(spec: PolicySpec, policy: str, policy_kwargs: Mapping[str, Any]) -> tuple[Layer, ...]:
    """The layers that a named policy would have for the observations and outputs of a spec.

    A space is not needed. Of an image that is not divided the dtype is unknown: it stays undivided.
    Raises what `make_policy_spec` raises for policy_kwargs.
    """
    _check_keys(policy, policy_kwargs)
    if policy not in IMAGE_POLICIES or spec.image is None:
        return _layers_behind(policy, policy_kwargs, spec.layer_sizes[0], spec.layer_sizes[-1])
    image = _image_of(spec.image, spec.columns)
    seen = f"images of {image.height} x {image.width} x {image.channels}"
    front = layers_of_image(image, seen, policy_kwargs, *_dense_options(policy, policy_kwargs))
    return (*front, *_layers_behind(policy, policy_kwargs, front[-1].outputs, spec.layer_sizes[-1]))


def _image_of(layer: ImageConvolution, others: tuple[int, ...]) -> Image:
    """What a layer reads."""
    size = layer.height, layer.width, layer.channels
    return Image(layer.first, *size, layer.planes, layer.divisor == BYTES, others)


def _layers_behind(policy: str, policy_kwargs: Mapping[str, Any], inputs: int, outputs: int) -> tuple[Layer, ...]:
    """The layers of a named policy behind those that see an image: cells of a recurrent one, then dense layers.

    No batch normalisation is behind cells: a batch of observations has no memory.
    """
    cells = recurrent.cells(inputs, policy_kwargs) if policy in recurrent.POLICIES else ()
    sizes = cells[-1].outputs if cells else inputs, *_checked_layers(policy_kwargs.get("net_arch"), policy), outputs
    *hidden, last = dense_layers(sizes, *_dense_options(policy, policy_kwargs))
    norm = policy in IMAGE_POLICIES and has_batch_norm(policy_kwargs) and not cells
    return (*cells, *(part for layer in hidden for part in with_norm(layer, layer.outputs, norm)), last)


def _dense_options(policy: str, policy_kwargs: Mapping[str, Any]) -> tuple[str, bool]:
    """activation_fn's name, and use_bias."""
    use_bias = policy_kwargs.get("use_bias", policy != "LinearPolicy")
    if not isinstance(use_bias, bool):
        raise TypeError(f"use_bias = {use_bias!r} is a {type(use_bias).__name__}: expected True or False")
    return _activation_name(policy_kwargs.get("activation_fn", "relu" if policy in IMAGE_POLICIES else "tanh")), use_bias


def _check_keys(policy: str, policy_kwargs: Mapping[str, Any]) -> None:
    sees_image, remembers = policy in IMAGE_POLICIES, policy in recurrent.POLICIES
    expected = (*_KWARGS, *(CNN_KWARGS if sees_image else ()), *(recurrent.KWARGS if remembers else ()))
    answers = _ANSWERS_OF_CNN if sees_image else _ANSWERS
    for key in policy_kwargs:
        if key not in expected:
            known = f"; {answers[key]}" if key in answers else suggest(key, expected)
            if key == "features_dim" and sees_image:
                known = f"; it is features_extractor_kwargs={{'features_dim': {policy_kwargs[key]!r:.100}}} here"
            raise ValueError(f"unknown policy_kwargs key {key!r}: expected {expected}{known}")


def _checked_layers(given: Sequence[int] | Mapping[str, Any] | None, policy: str) -> tuple[int, ...]:
    net_arch = _actor_layers(given) if isinstance(given, Mapping) else given
    if policy == "LinearPolicy":
        if net_arch:
            raise ValueError(f"LinearPolicy has no hidden layers, net_arch = {net_arch!r} was given: use 'MlpPolicy'")
        return ()
    default = (64, 64) if policy == "MlpPolicy" else ()
    sizes = default if net_arch is None else net_arch
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, (str, bytes))
    if listed and any(isinstance(n, Mapping) for n in sizes):
        raise ValueError(
            f"net_arch = {given!r} shares layers with a critic, which SB3 has removed, and there is no critic here: expected "
            "a list of layer sizes, those of the dict's 'pi' behind the shared ones"
        )
    if not listed or not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in sizes):
        raise ValueError(f"net_arch = {given!r}: expected a list of positive layer sizes, such as [64, 64]")
    return tuple(int(n) for n in sizes)


def _actor_layers(net_arch: Mapping[str, Any]) -> Any:
    """Those of 'pi' in SB3's dict; the critics ('vf', 'qf') have no part in ES."""
    if "pi" not in net_arch or not set(net_arch) <= {"pi", "vf", "qf"}:
        raise ValueError(
            f"net_arch = {dict(net_arch)!r}: expected a list of layer sizes, or a dict with them under 'pi' ('vf' and 'qf' are "
            "left out: there is no critic)"
        )
    return net_arch["pi"]


def _activation_name(activation: object) -> str:
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", repr(activation))
    if name.lower() not in ACTIVATIONS:
        raise ValueError(
            f"unknown activation_fn {activation!r}: expected one of {ACTIVATIONS}, or a class of that name such as "
            f"torch.nn.Tanh; for any other network use fastes.TorchPolicy(module){suggest(name.lower(), ACTIVATIONS)}"
        )
    return name.lower()
