"""Lists of layers, and how a checkpoint describes them (docs/reference/checkpoint-format.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from fastes import _core
from fastes.policies.layers.batch_norm import VirtualBatchNorm
from fastes.policies.layers.convolution import Append, Convolution, ImageConvolution
from fastes.policies.layers.dense import Dense, dense_layers
from fastes.policies.layers.layer import ACTIVATIONS, MOST_VALUES, Layer
from fastes.policies.layers.recurrent import Gru, Lstm

KINDS: dict[str, Callable[..., Layer]] = {
    kind.kind: kind for kind in (Dense, Convolution, ImageConvolution, Append, VirtualBatchNorm, Lstm, Gru)
}
DESCRIPTIONS = {"layers"}, {"layer_sizes", "activation", "use_bias"}  # keys of the two ways to describe layers
_MAX_LAYERS = 10_000  # each costs memory, and a file can list millions
_FITS: dict[str, Callable[[Any], bool]] = {  # a field's type -> whether a file's value may be one
    "int": lambda value: type(value) is int and 0 <= value <= MOST_VALUES,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str) and value in _core.ACTIVATIONS,
}


def layer_sizes(layers: Sequence[Layer]) -> tuple[int, ...]:
    """How many values there are before, between and after the layers."""
    return (layers[0].inputs, *(layer.outputs for layer in layers))


def in_words(layer: Layer | None, fields: Sequence[str] = ()) -> str:
    """Return a layer in words, for errors, with these further fields."""
    if layer is None:
        return "none"
    told = ", ".join(f"{name} {getattr(layer, name)!r}" for name in fields)
    return f"{layer.kind} {layer.inputs} -> {layer.outputs}{told and f' ({told})'}"


def first_difference(asked: Sequence[Layer], stored: Sequence[Layer]) -> str:
    """The first layer that is not the one of a checkpoint, in words; empty where all are."""
    for i, (one, other) in enumerate(zip_longest(asked, stored)):
        if one != other:
            differ = _fields_that_differ(one, other)
            return f"layer {i} would be {in_words(one, differ)}, the checkpoint's is {in_words(other, differ)}"
    return ""


def _fields_that_differ(one: Any, other: Any) -> list[str]:
    """Return the fields in which two layers of a kind differ, without those that their words always have."""
    fields = dataclasses.fields(one) if type(one) is type(other) else ()
    return [f.name for f in fields if f.name not in ("inputs", "outputs") and getattr(one, f.name) != getattr(other, f.name)]


def describe_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the layers as a checkpoint has them: the sizes of dense ones that are all alike, each one of any others."""
    sizes, first = layer_sizes(layers), layers[0]
    if isinstance(first, Dense):
        activation = first.activation if len(layers) > 1 else ACTIVATIONS[0]  # any: nothing follows
        if activation in ACTIVATIONS and dense_layers(sizes, activation, first.use_bias) == tuple(layers):
            return {"layer_sizes": list(sizes), "activation": activation, "use_bias": first.use_bias}
    return {"layers": [{"kind": layer.kind, **dataclasses.asdict(layer)} for layer in layers]}  # type: ignore[call-overload]


def described_layers(stored: Mapping[str, Any]) -> tuple[Layer, ...]:
    """The layers that a checkpoint describes, for `check_layers`; KeyError or ValueError for what describes none."""
    return _listed(stored["layers"]) if "layers" in stored else _alike(stored)


def _alike(stored: Mapping[str, Any]) -> tuple[Layer, ...]:
    sizes, activation, use_bias = stored["layer_sizes"], stored["activation"], stored["use_bias"]
    listed = isinstance(sizes, list) and 2 <= len(sizes) <= _MAX_LAYERS
    if not listed or not all(type(n) is int and n > 0 for n in sizes):
        raise ValueError(f"layer sizes {sizes!r:.1000}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r}")
    if not isinstance(use_bias, bool):
        raise ValueError(f"use_bias {use_bias!r}")
    return dense_layers(sizes, activation, use_bias)


def _listed(stored: Any) -> tuple[Layer, ...]:
    if not isinstance(stored, list) or not 1 <= len(stored) <= _MAX_LAYERS:
        raise ValueError(f"layers {stored!r:.1000}")
    return tuple(_layer(each) for each in stored)


def _layer(stored: Any) -> Layer:
    kind = stored.get("kind") if isinstance(stored, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"layer {stored!r:.1000}")
    values = {key: value for key, value in stored.items() if key != "kind"}
    types = {field.name: str(field.type) for field in dataclasses.fields(KINDS[kind])}  # type: ignore[arg-type]
    if set(values) != set(types) or not all(_FITS[types[name]](value) for name, value in values.items()):
        raise ValueError(f"layer {stored!r:.1000}")
    return KINDS[kind](**values)


def check_layers(layers: Sequence[Layer], observed: int) -> None:
    """ValueError for layers that the core must not see, or of which one does not read what the one before it writes.

    observed: values that the policy chooses among those of an observation.
    """
    appended = [layer.appended for layer in layers if isinstance(layer, Append)]
    expected = [observed] if layers[0].reads_image and observed else []
    if appended != expected:
        raise ValueError(f"layers append {appended} observed values to an image's, expected {expected}")
    for i, layer in enumerate(layers):
        layer.check()
        if i and layer.reads_image:
            raise ValueError(f"layer {i} reads an image: only the first one can")
        if i and layer.inputs != layers[i - 1].outputs:
            raise ValueError(f"layer {i}'s input has {layer.inputs} values, expected {layers[i - 1].outputs}")
    _check_cells(layers)


def _check_cells(layers: Sequence[Layer]) -> None:
    """ValueError for cells that are not alike, or in front of batch normalisation: a batch of observations has no memory."""
    cells = [i for i, layer in enumerate(layers) if layer.state_size]
    found = {f"{layers[i].kind} of {layers[i].outputs} values" for i in cells}
    if len(found) > 1:
        raise ValueError(f"recurrent layers differ: {', '.join(sorted(found))}; expected all of one kind and size")
    for i in range(cells[0] if cells else len(layers), len(layers)):
        if isinstance(layers[i], VirtualBatchNorm):
            raise ValueError(
                f"layer {i} normalises by a batch of observations behind a recurrent one: expected it before these"
            )
