"""A policy's parameters by name, as users see and set them; for a named policy under torch's names, in its orientation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastes.number_array import Float32, number_array
from fastes.policies.custom_policy import AnySpec
from fastes.policies.layers import from_torch, to_torch
from fastes.policies.policy_spec import PolicySpec


def named_parameters(spec: AnySpec, theta: Float32) -> dict[str, Float32]:
    """Return copies of the parameters in theta (num_params,) by name."""
    if isinstance(spec, PolicySpec):
        return to_torch(spec.layers, spec.split_by_layer(theta))
    return {name: view.copy() for name, view in spec.split(theta).items()}


def theta_of(spec: AnySpec, named: Mapping[str, Float32]) -> Float32:
    """Return theta (num_params,): the inverse of `named_parameters`."""
    theta: Float32 = np.empty(spec.num_params, dtype=np.float32)
    if isinstance(spec, PolicySpec):
        for views, own in zip(spec.split_by_layer(theta), from_torch(spec.layers, named), strict=True):
            for name, view in views.items():
                view[...] = own[name]
    else:
        for name, view in spec.split(theta).items():
            view[...] = named[name]
    return theta


def theta_with(spec: AnySpec, theta: Float32, given: Mapping[str, Any], exact: bool, called: tuple[str, str]) -> Float32:
    """Return a copy of theta with parameters that are given by name.

    Args:
        spec: The policy's.
        theta: float32 (num_params,).
        given: Arrays or tensors by name.
        exact: Whether every parameter has to be given.
        called: For messages, the method, and its argument that stands for `exact`.

    Raises:
        ValueError: Names that are missing or unknown, or other shapes.
    """
    where, switch = called
    named = named_parameters(spec, theta)
    unknown = [name for name in given if name not in named]
    missing = [name for name in named if name not in given] if exact else []
    if unknown or missing:
        wrong = [f"{what}: {names}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        part = f", of which {switch}=False takes a part" if missing and not unknown else ""
        elsewhere = "; fastes.import_policy takes those of other libraries" if unknown else ""
        said = f"{'; '.join(wrong)}; expected {list(named)}{part}{elsewhere}"
        raise ValueError(f"{where} got parameters that do not match the policy's; {said}")
    for name, value in given.items():
        named[name] = parameter_like(name, value, named[name])
    return theta_of(spec, named)


def vector_of(spec: AnySpec, theta: Float32) -> Float32:
    """Return all parameters in torch's order, one behind the other, float32 (num_params,) or longer for LSTMs' two biases."""
    return np.concatenate([value.ravel() for value in named_parameters(spec, theta).values()])


def theta_of_vector(spec: AnySpec, theta: Float32, vector: Any) -> Float32:
    """Return theta: the inverse of `vector_of`, with the present theta for shapes. ValueError for another length."""
    named = named_parameters(spec, theta)
    values, size = number_array("the vector's values", vector, "numbers", np.float32), sum(map(np.size, named.values()))
    if values.shape != (size,):
        raise ValueError(
            f"the vector has shape {values.shape}: expected ({size},), all parameters in torch's order, as "
            "parameters_to_vector() gives them"
        )
    ends = np.cumsum([value.size for value in named.values()])[:-1]
    parts = zip(named.items(), np.split(values, ends), strict=True)
    return theta_of(spec, {name: part.reshape(value.shape) for (name, value), part in parts})


def parameter_like(name: str, value: Any, like: Float32) -> Float32:
    """Return a given array or tensor as a parameter; ValueError for another shape, with advice if it is transposed."""
    try:
        array: Float32 = number_array(f"parameter {name!r}'s values", value, "an array of numbers", np.float32)
    except TypeError as error:
        raise ValueError(f"parameter {name!r} is {value!r:.100}: expected an array of numbers") from error
    if array.shape != like.shape:
        turned = (
            "" if array.T.shape != like.shape else "; torch's orientation is (outputs, inputs): pass it transposed, as with .T"
        )
        raise ValueError(f"parameter {name!r} has shape {array.shape}, expected {like.shape}{turned}")
    return array
