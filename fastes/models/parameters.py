"""A policy's parameters by name, as users see them: what is given is put into theta, and what does not fit is named.

Those of a named policy are under torch's names and in torch's orientation (fastes.policies.layers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.number_array import number_array
from fastes.policies.custom_policy import AnySpec
from fastes.policies.layers import from_torch, to_torch
from fastes.policies.policy_spec import PolicySpec

Float32 = npt.NDArray[np.float32]


def named_parameters(spec: AnySpec, theta: Float32) -> dict[str, Float32]:
    """Copies of the parameters in theta (num_params,) by name."""
    if isinstance(spec, PolicySpec):
        return to_torch(spec.layers, spec.split_by_layer(theta))
    return {name: view.copy() for name, view in spec.split(theta).items()}


def theta_of(spec: AnySpec, named: Mapping[str, Float32]) -> Float32:
    """Theta (num_params,) of all that `named_parameters` has."""
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
    """A copy of theta (num_params,) with parameters that are given by name, as arrays or tensors.

    exact: whether each has to be there.
    called: the method, and its argument that says so.

    ValueError for names that are missing or unknown, and for other shapes.
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
    """All parameters in torch's order, one behind the other."""
    return np.concatenate([value.ravel() for value in named_parameters(spec, theta).values()])


def theta_of_vector(spec: AnySpec, theta: Float32, vector: Any) -> Float32:
    """Theta of what `vector_of` gives; ValueError for another length. theta: the present one, for shapes."""
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
    """A parameter that was given as an array or a tensor; ValueError that says which way round it is to be for other shapes."""
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
