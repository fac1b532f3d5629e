"""MlpPolicy and LinearPolicy: a spec from policy_kwargs and an environment's spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from fastes.errors import suggest
from fastes.policies.action_head import head_from
from fastes.policies.layers.dense import dense_layers
from fastes.policies.layers.layer import ACTIVATIONS
from fastes.policies.obs_columns import ALL, ObsColumns, columns_in
from fastes.policies.policy_spec import PolicySpec, flat_size

POLICIES = ("MlpPolicy", "LinearPolicy")
CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")  # classes, in other files: no names
_KWARGS = ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins")
# fmt: off
_OF_NETWORKS = (
    "ortho_init", "use_sde", "log_std_init", "full_std", "use_expln", "squash_output", "features_extractor_class",
    "features_extractor_kwargs", "share_features_extractor", "normalize_images", "optimizer_class", "optimizer_kwargs",
    "n_critics", "clip_mean", "sde_net_arch", "n_lstm_layers", "lstm_hidden_size", "enable_critic_lstm", "shared_lstm",
)
# fmt: on
_IMAGES = (
    ". It gets images as their space has them, as float32 with an axis in front: put permute(0, 3, 1, 2) before convolutions "
    "of images (height, width, channels), and normalize_obs=False with a division by 255 spares their statistics"
)
_ANSWERS = {  # keys of SB3's policy_kwargs
    **dict.fromkeys(_OF_NETWORKS, "it has no counterpart here: leave it out"),
    "squash_output": "it is action_mapping='squash' here",
    "optimizer_class": "optimizer is a setting here, beside policy_kwargs",
    "features_extractor_class": "put the extractor and the layers into one module, as in fastes.TorchPolicy(module)",
    "features_extractor_kwargs": "put the extractor and the layers into one module, as in fastes.TorchPolicy(module)",
    "with_bias": "it is use_bias here",
}


def make_policy_spec(
    policy: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
    obs_columns: ObsColumns = ALL,
) -> PolicySpec:
    """The spec of a named policy for an environment's spaces.

    policy: 'MlpPolicy' (hidden layers 64-64, tanh, biases) or 'LinearPolicy' (one matrix, no bias).
    policy_kwargs: net_arch (hidden sizes; in SB3's dict those of 'pi'), activation_fn ('tanh', 'relu' or 'elu' in any
    case, or a class of that name such as torch.nn.Tanh), use_bias, action_mapping ('clip', 'squash', 'bins'), num_bins.
    obs_columns: which values of an observation it gets, as the setting of that name has them.
    """
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy = {policy!r} is a class, not a name: pass an object, as in FastES(env, fastes.{policy}(...))")
    if policy not in POLICIES:
        raise ValueError(
            f"unknown policy {policy!r}: expected one of {POLICIES}, or fastes.TorchPolicy(module) for any other "
            f"network{'' if policy == 'CnnPolicy' else suggest(policy, POLICIES)}{_IMAGES if policy == 'CnnPolicy' else ''}"
        )
    kwargs = dict(policy_kwargs or {})
    for key in kwargs:
        if key not in _KWARGS:
            known = f"; {_ANSWERS[key]}" if key in _ANSWERS else suggest(key, _KWARGS)
            raise ValueError(f"unknown policy_kwargs key {key!r}: expected {_KWARGS}{known}")
    linear = policy == "LinearPolicy"
    hidden = _checked_layers(kwargs.get("net_arch"), linear)
    head = head_from(action_space, kwargs)
    full_size = flat_size(observation_space)
    columns = columns_in(obs_columns, observation_space, full_size)
    use_bias = kwargs.get("use_bias", not linear)
    if not isinstance(use_bias, bool):
        raise TypeError(f"use_bias = {use_bias!r} is a {type(use_bias).__name__}: expected True or False")
    activation = _activation_name(kwargs.get("activation_fn", "tanh"))
    return PolicySpec(
        layers=dense_layers((len(columns) or full_size, *hidden, head.num_outputs), activation, use_bias),
        head=head,
        obs_shape=observation_space.shape if isinstance(observation_space, spaces.Box) else (full_size,),
        flattened=not isinstance(observation_space, spaces.Box),
        columns=columns,
    )


def _checked_layers(given: Sequence[int] | Mapping[str, Any] | None, linear: bool) -> tuple[int, ...]:
    net_arch = _actor_layers(given) if isinstance(given, Mapping) else given
    if linear:
        if net_arch:
            raise ValueError(f"LinearPolicy has no hidden layers, net_arch = {net_arch!r} was given: use 'MlpPolicy'")
        return ()
    sizes = (64, 64) if net_arch is None else net_arch
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, (str, bytes))
    if listed and any(isinstance(n, Mapping) for n in sizes):
        raise ValueError(
            f"net_arch = {given!r} shares layers with a critic, which SB3 has removed, and there is no critic here: expected "
            "a list of layer sizes, those of the dict's 'pi' behind the shared ones"
        )
    if not listed or not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
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
