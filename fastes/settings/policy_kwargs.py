"""The setting policy_kwargs as plain values, which presets, checkpoints and config files can hold."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

_FROM_CONSTRUCTOR = 8  # warnings.warn's stacklevel: the line that called FastES


def plain_policy_kwargs(value: object) -> dict[str, Any]:
    """A copy as JSON knows it, empty for None; TypeError for what is no mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"policy_kwargs = {value!r}: expected a dict such as {{'net_arch': [64, 64]}}")
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


def _plain(value: Any) -> Any:
    """Classes and functions are known by their names."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return getattr(value, "__name__", value)
