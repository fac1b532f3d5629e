"""The setting policy_kwargs as plain values, which presets, checkpoints and config files can hold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastes.errors import shown
from fastes.policies.images.cnn import CNN_KWARGS
from fastes.policies.mlp import IMAGE_POLICIES

_FROM_CONSTRUCTOR = 8  # warnings.warn's stacklevel: the line that called FastES


def plain_policy_kwargs(value: object) -> dict[str, Any]:
    """A copy as JSON knows it, empty for None; TypeError for what is no mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"policy_kwargs = {shown(value)}: expected a dict such as {{'net_arch': [64, 64]}}")
    plain = {key: _plain(item) for key, item in value.items()}
    if isinstance(layers := plain.get("net_arch"), list) and len(layers) == 1 and isinstance(layers[0], dict):
        warnings.warn(
            f"net_arch = {layers!r} is a dict in a list, which SB3 has deprecated since it shares no layers: pass the dict "
            f"itself, net_arch = {layers[0]!r}",
            UserWarning,
            stacklevel=_FROM_CONSTRUCTOR,
        )
        plain["net_arch"] = layers[0]
    return plain


def on_top_of(kept: Mapping[str, Any], of: object, given: Mapping[str, Any], policy: object) -> dict[str, Any]:
    """policy_kwargs given for a policy, on top of those that a preset or file has for the policy `of`.

    Of the latter only what an image goes through stays for another policy, where both see images, and nothing for any other
    pair. A cnn that is given has a size of its own behind it.
    """
    if policy != of:
        both_see = policy in IMAGE_POLICIES and of in IMAGE_POLICIES
        kept = {key: value for key, value in kept.items() if both_see and key in CNN_KWARGS}
    if "cnn" in given:
        kept = {key: value for key, value in kept.items() if key != "features_extractor_kwargs"}
    return {**kept, **given}


def _plain(value: Any) -> Any:
    """Classes and functions are known by their names."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return getattr(value, "__name__", value)
