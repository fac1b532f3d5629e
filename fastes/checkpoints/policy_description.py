"""The description of a policy in a checkpoint, read back with every check that the C core relies on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeGuard

from fastes import _core
from fastes.checkpoints.field_checks import Kinds, check_record, damaged, require
from fastes.checkpoints.file_format import Checkpoint
from fastes.errors import CheckpointError, CheckpointMismatch, shorten
from fastes.policies.action_head import BOX_MAPPINGS, ActionHead
from fastes.policies.custom_policy import AnySpec, CustomPolicy, CustomSpec
from fastes.policies.images import other_values
from fastes.policies.layers import (
    DESCRIPTIONS,
    ImageConvolution,
    check_layers,
    describe_layers,
    described_layers,
    first_difference,
    in_words,
)
from fastes.policies.named_policies import CUSTOM_POLICIES, layers_like
from fastes.policies.obs_columns import ALL, COLUMN_BYTES, columns_of
from fastes.policies.policy_keywords import POLICIES, action_keywords, plain_policy_kwargs
from fastes.policies.policy_spec import PolicySpec
from fastes.system.limits import check_memory

_CASTS = ("", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64")
_MAX_DIMENSIONS = 64  # a product of thousands of numbers takes seconds


def describe_policy(spec: AnySpec) -> dict[str, Any]:
    """Return the description of a policy; for a custom one, only what shows whether another policy fits."""
    data: dict[str, Any] = {"obs_shape": list(spec.obs_shape), "flattened": spec.flattened}
    if spec.parts:
        data["parts"] = spec.parts
    if isinstance(spec, PolicySpec):
        data |= describe_layers(spec.layers)
    else:
        data |= {"kind": spec.kind, "parameters": [[name, list(shape)] for name, shape in spec.shapes.items()]}
        data |= {"untrained": dict(spec.untrained)} if spec.untrained else {}
    if spec.head is None:
        return {**data, "head": None}
    head = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(spec.head).items()}
    for bound in ("low", "high"):  # JSON has no infinity
        head[bound] = [x if math.isfinite(x) else str(x) for x in head[bound]]
    return {**data, "head": head}


def spec_from(checkpoint: Checkpoint, policy: CustomPolicy | None = None) -> AnySpec:
    """Return the policy from the file alone, without an environment. A custom policy has to be passed, and to fit."""
    stored, settings = require(checkpoint.data, "policy", dict), require(checkpoint.data, "settings", dict)
    if "kind" in stored:
        return _custom_spec(checkpoint, stored, settings, policy)
    if policy is not None:
        name = require(settings, "policy", str, within="settings.")
        raise CheckpointMismatch(
            f"policy = {policy!r} was passed for a checkpoint whose policy is the {name:.100} that it describes itself: load "
            "it without policy="
        )
    head = _head(stored.get("head"))
    obs_shape, flattened = _observations(stored)
    with _damage_is_said(place := "policy.layers" if "layers" in stored else "policy.layer_sizes"):
        described = set(stored) - {"head", "obs_shape", "flattened", "parts"}
        if described not in DESCRIPTIONS:
            raise ValueError(f"keys {sorted(described)}")
        layers = described_layers(stored)
        images = [(each.first, each.inputs) for each in layers if isinstance(each, ImageConvolution)]
        check_layers(layers, _count_others(images, settings, obs_shape) if images else 0)
        spec = PolicySpec(layers, head, obs_shape, flattened, parts=_parts(stored))
        if spec.layer_sizes[-1] != head.num_outputs:
            raise ValueError(f"{spec.layer_sizes[-1]} outputs for {head}")
        listed = ", ".join(f"layer {i} {in_words(layer)}" for i, layer in enumerate(layers))
        _check_theta(checkpoint, spec.num_params, f" ({listed})")  # before columns are made, which may be many
    with _damage_is_said(place if images else "settings.obs_columns"):
        columns = _others(images, math.prod(obs_shape)) if images else _columns(settings, obs_shape)
        if not images and (len(columns) or math.prod(obs_shape)) != spec.obs_size:
            raise ValueError(f"{len(columns) or 'all'} columns of policy.obs_shape {obs_shape} for {spec.obs_size} inputs")
        spec = replace(spec, columns=columns)
    _check_settings_made(spec, settings)
    return spec


def _check_settings_made(spec: PolicySpec, settings: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the file's settings describe the same policy: later changes build on these."""
    policy, kwargs = require(settings, "policy", str, within="settings."), settings.get("policy_kwargs", {})
    if policy not in POLICIES:
        raise damaged("settings.policy", policy)
    if not isinstance(kwargs, dict):
        raise damaged("settings.policy_kwargs", kwargs)
    with _damage_is_said("settings.policy_kwargs"):
        chosen = action_keywords(kwargs)
        mapping, num_bins = chosen.action_mapping, chosen.num_bins
        if found := first_difference(layers_like(spec, policy, kwargs), spec.layers):
            raise ValueError(f"of a {policy}, {found}")
        described = mapping, num_bins if mapping == "bins" else 0
        if spec.head.kind in BOX_MAPPINGS and described != (spec.head.kind, spec.head.num_bins):
            raise ValueError(f"action_mapping {mapping!r} with num_bins {num_bins} for {spec.head}")


def check_same_layers(checkpoint: Checkpoint, spec: PolicySpec, changes: Mapping[str, Any]) -> None:
    """Raise CheckpointMismatch for policy_kwargs among the changes that make other layers than the file's."""
    asked, policy = changes.get("policy_kwargs"), require(checkpoint.data, "settings", dict).get("policy")
    if asked is None or changes.get("policy", policy) != policy:
        return
    try:
        layers = layers_like(spec, str(policy), plain_policy_kwargs(asked))
    except ValueError:
        if "cnn" in asked:
            raise
        return  # default convolutions do not fit: the comparison of settings says what differs
    if found := first_difference(layers, spec.layers):
        raise CheckpointMismatch(
            f"policy_kwargs = {asked!r} cannot change on loading: {found}. Load it without policy_kwargs, or start a new run"
        )


def _custom_spec(
    checkpoint: Checkpoint, stored: Mapping[str, Any], settings: Mapping[str, Any], policy: CustomPolicy | None
) -> CustomSpec:
    head = None if stored.get("head") is None else _head(stored["head"])
    obs_shape, flattened = _observations(stored)
    with _damage_is_said("policy"):
        if odd := (set(stored) - {"parts", "untrained"}) ^ {"kind", "parameters", "head", "obs_shape", "flattened"}:
            raise ValueError(f"keys {sorted(odd)}")
        kind, shapes = stored["kind"], {name: tuple(shape) for name, shape in stored["parameters"]}
        if kind not in CUSTOM_POLICIES or (stored["head"] is None) != (kind == "CallablePolicy"):
            raise ValueError(f"kind {kind!r} with head {stored['head']!r}")
        if len(shapes) != len(stored["parameters"]) or not all(isinstance(name, str) for name in shapes):
            raise ValueError(f"parameters {stored['parameters']!r}")
        few = all(len(shape) <= _MAX_DIMENSIONS for shape in shapes.values())
        if not few or not all(type(n) is int and 0 <= n < 2**31 for shape in shapes.values() for n in shape):
            raise ValueError(f"parameter shapes {stored['parameters']!r}")
        _check_theta(checkpoint, sum(math.prod(shape) for shape in shapes.values()))
    with _damage_is_said("settings.obs_columns"):
        columns = _columns(settings, obs_shape)
    with _damage_is_said("policy.obs_shape"):
        _check_statistics(checkpoint, len(columns) or math.prod(obs_shape))
    if policy is None:
        raise CheckpointMismatch(
            f"the checkpoint's policy is a {kind}, of which a file holds the parameters only: load it in Python, with "
            f"FastES.load(path, policy={kind}(...)), and train, evaluate or play it there"
        )
    if policy.kind != kind:
        raise CheckpointMismatch(f"policy = {policy!r} does not fit the checkpoint: expected a {kind}")
    own = dict(policy.parameter_shapes())
    if list(own.items()) != list(shapes.items()):
        raise CheckpointMismatch(f"policy = {policy!r} does not fit the checkpoint: {_first_difference(own, shapes)}")
    spec = replace(policy.make_spec(head, obs_shape, flattened, columns), parts=_parts(stored))
    _check_untrained(policy, spec, stored.get("untrained"))
    return spec


def _check_untrained(policy: CustomPolicy, spec: CustomSpec, stored: object) -> None:
    """Raise CheckpointMismatch if values differ that are in no checkpoint, because they are not trained."""
    if stored is None:  # the file is older than they are, or there are none
        return
    if not isinstance(stored, dict) or not all(isinstance(value, str) for value in stored.values()):
        raise damaged("policy.untrained", stored)
    other = [name for name in {**stored, **spec.untrained} if stored.get(name) != spec.untrained.get(name)]
    if other:
        raise CheckpointMismatch(
            f"policy = {policy!r} does not fit the checkpoint: {', '.join(map(repr, other[:3]))} is not trained, so the file "
            "lacks its values, and they are not those that were trained with. Give the module the same ones first, by "
            "load_state_dict or by a seed"
        )


def _first_difference(own: Mapping[str, tuple[int, ...]], stored: Mapping[str, tuple[int, ...]]) -> str:
    """Return how the parameters of a policy differ from those of a checkpoint, in words."""
    for name in stored:
        if name not in own:
            return f"it has no parameter {name!r}, the checkpoint has one of shape {stored[name]}"
        if own[name] != stored[name]:
            return f"its parameter {name!r} has shape {own[name]}, the checkpoint's has {stored[name]}"
    for name in own:
        if name not in stored:
            return f"it has a parameter {name!r} of shape {own[name]}, the checkpoint has none"
    return f"its parameters come in another order, {list(own)}: the checkpoint has {list(stored)}"


@contextlib.contextmanager
def _damage_is_said(place: str) -> Iterator[None]:
    """Raise CheckpointError for any error of the block. `place` is in the JSON member."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"the checkpoint's {place!r} is damaged: {shorten(error)}") from error


def _head(stored: object) -> ActionHead:
    """Return the action head of a file; CheckpointError for one that the C core must not see."""
    values = check_record("policy.head", stored, _KINDS_OF_A_HEAD)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    for bound in ("low", "high"):
        values[bound] = tuple(float(x) for x in values[bound])
    head = ActionHead(**values)
    with _damage_is_said("policy.head"):
        if head.num_outputs != (outputs := _outputs(head)):
            raise ValueError(f"num_outputs {head.num_outputs}, expected {outputs} for {head}")
    return head


def _observations(stored: Mapping[str, Any]) -> tuple[tuple[int, ...], bool]:
    """Return the shape of an observation, and whether observations are flattened; CheckpointError for other values."""
    shape, flattened = stored.get("obs_shape"), stored.get("flattened", False)
    # types first: a product of lists and numbers is a list of any length
    if not _are_sizes(shape, _MAX_DIMENSIONS) or not 0 < math.prod(shape) < 2**31:
        raise damaged("policy.obs_shape", shape)
    if not isinstance(flattened, bool) or (flattened and len(shape) != 1):
        raise damaged("policy.flattened", flattened)
    return tuple(shape), flattened


def _parts(stored: Mapping[str, Any]) -> str:
    """Return the parts of a flattened observation, in words; "" if the file is older than they are."""
    parts = stored.get("parts", "")
    if not isinstance(parts, str):
        raise damaged("policy.parts", parts)
    return parts


def _columns(settings: Mapping[str, Any], obs_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the columns of an observation that the policy sees, as the file's settings say; all if they do not."""
    value = settings.get("obs_columns", ALL)
    if value != ALL and len(obs_shape) != 1:
        raise ValueError(f"{value!r:.1000} of observations of policy.obs_shape {obs_shape}")
    return columns_of(value, math.prod(obs_shape))


def _count_others(images: Sequence[tuple[int, int]], settings: Mapping[str, Any], obs_shape: tuple[int, ...]) -> int:
    """Return the number of values of an observation that are part of no image, and so are appended.

    Args:
        images: Index of the first value and number of values of each image, at least one.
        settings: The file's.
        obs_shape: Shape of an observation.

    Raises:
        ValueError: Images that overlap or exceed an observation, or chosen columns.
    """
    past, size = 0, math.prod(obs_shape)
    for first, count in sorted(images):
        if first < past or first + count > size:
            raise ValueError(f"an image of values {first} to {first + count} of observations {obs_shape}, behind value {past}")
        past = first + count
    if (columns := settings.get("obs_columns", ALL)) != ALL:
        raise ValueError(f"settings.obs_columns = {columns!r:.1000} with an image, which leaves none to choose")
    return size - sum(count for _, count in images)


def _others(images: Sequence[tuple[int, int]], size: int) -> tuple[int, ...]:
    """Return the indices of the values of an observation that are part of no image."""
    others = size - sum(count for _, count in images)
    check_memory({f"{size:,} columns of observations": COLUMN_BYTES * others}, "use smaller observations")
    return other_values(images, size)


def _check_theta(checkpoint: Checkpoint, num_params: int, layers: str = "") -> None:
    theta = checkpoint.arrays.get("trainings", {}).get("0.theta")
    if theta is None or theta.shape != (num_params,):
        raise ValueError(f"it has {num_params} parameters{layers:.400}, theta has {0 if theta is None else theta.size}")


def _check_statistics(checkpoint: Checkpoint, obs_size: int) -> None:
    """Check the size of a custom policy's observations, which no parameter shows, before memory for them is used."""
    mean = checkpoint.arrays.get("trainings", {}).get("0.normalizer.mean")
    if mean is not None and mean.shape != (obs_size,):
        raise ValueError(f"observations of {obs_size} values, statistics of {mean.size}")


def _outputs(head: ActionHead) -> int:
    """Return the width of the last layer that the C core will read; ValueError for a head that it must not see.

    Fields that a kind does not use have their defaults.
    """
    if math.prod(head.shape) != head.size or head.dtype not in _core.DTYPES_OF_ACTIONS[head.kind]:
        raise ValueError(f"shape {head.shape}, dtype {head.dtype!r} for size {head.size} of kind {head.kind!r}")
    in_box, chosen = head.kind in BOX_MAPPINGS, head.kind == "categorical"
    for name, value, used in (
        ("low", head.low, in_box),
        ("high", head.high, in_box),
        ("nvec", head.nvec, chosen),
        ("start", head.start, chosen),
    ):
        if len(value) != (head.size if used else 0):
            raise ValueError(f"{name} {value!r:.1000} for size {head.size} of kind {head.kind!r}")
    if not (head.num_bins >= 2 if head.kind == "bins" else head.num_bins == 0):
        raise ValueError(f"num_bins {head.num_bins} of kind {head.kind!r}")
    if head.cast and not chosen:
        raise ValueError(f"cast {head.cast!r} of kind {head.kind!r}")
    return sum(head.nvec) if chosen else head.size * max(1, head.num_bins)


def _are_sizes(value: object, most: int, least: int = 0) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= most and all(type(n) is int and least <= n < 2**31 for n in value)


def _are_bounds(value: object) -> bool:
    return isinstance(value, list) and all(
        x in ("inf", "-inf") if isinstance(x, str) else type(x) is float and math.isfinite(x) for x in value
    )


_KINDS_OF_A_HEAD: Kinds = {
    "kind": lambda value: isinstance(value, str) and value in _core.ACTION_KINDS,
    "dtype": lambda value: isinstance(value, str),
    "shape": lambda value: _are_sizes(value, 32),
    "size": lambda value: type(value) is int and 0 < value < 2**31,
    "num_outputs": lambda value: type(value) is int and 0 < value < 2**31,
    "low": _are_bounds,
    "high": _are_bounds,
    "num_bins": lambda value: type(value) is int and 0 <= value < 2**31,
    "nvec": lambda value: _are_sizes(value, 2**31, least=1),
    "start": lambda value: isinstance(value, list) and all(type(n) is int and -(2**63) <= n < 2**63 - 2**31 for n in value),
    "cast": lambda value: isinstance(value, str) and value in _CASTS,
}
