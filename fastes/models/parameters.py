"""A policy's parameters by name: what is given is put into theta, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.policies.choose_policy import AnySpec

Float32 = npt.NDArray[np.float32]


def theta_with(spec: AnySpec, theta: Float32, given: Mapping[str, Any], exact: bool, called: tuple[str, str]) -> Float32:
    """A copy of theta (num_params,) with parameters that are given by name, as arrays or tensors.

    exact: whether each has to be there.
    called: the method, and its argument that says so.

    ValueError for names that are missing or unknown, and for other shapes.
    """
    where, switch = called
    shapes = spec.parameter_shapes()
    unknown = [name for name in given if name not in shapes]
    missing = [name for name in shapes if name not in given] if exact else []
    if unknown or missing:
        wrong = [f"{what}: {names}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        part = f", of which {switch}=False takes a part" if missing and not unknown else ""
        raise ValueError(
            f"{where} got parameters that do not match the policy's; {'; '.join(wrong)}; expected {list(shapes)}{part}"
        )
    new: Float32 = theta.copy()
    views = spec.split(new)
    for name, value in given.items():
        array = _array(name, value)
        if array.shape != views[name].shape:
            raise ValueError(f"parameter {name!r} has shape {array.shape}, expected {views[name].shape}")
        views[name][...] = array
    return new


def _array(name: str, value: Any) -> Float32:
    """A tensor of torch may want a gradient."""
    try:
        array: Float32 = np.asarray(value.detach() if hasattr(value, "detach") else value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"parameter {name!r} is {value!r:.100}: expected an array of numbers") from error
    return array
