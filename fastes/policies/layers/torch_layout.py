"""Parameters under torch's names, in torch's orientation, and back: what users see of a policy that has layers.

Theta has them as the kernels read them: a dense weight is (inputs, outputs), a map (rows, columns, filters). Torch's Linear has
(outputs, inputs), and its maps are (filters, rows, columns), also if they are flattened. A square weight shows by nothing
which of the two it is, so this file is the only border between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fastes.policies.layers.batch_norm import VirtualBatchNorm
from fastes.policies.layers.convolution import Append, Convolution
from fastes.policies.layers.layer import Float32, Layer
from fastes.policies.layers.recurrent import Cell, Gru

Parameters = Mapping[str, Float32]
_CONV, _CONV_BACK = (3, 2, 0, 1), (2, 3, 1, 0)  # (kernel, kernel, channels, filters) <-> (filters, channels, kernel, kernel)


def to_torch(layers: Sequence[Layer], parameters: Sequence[Parameters]) -> dict[str, Float32]:
    """Copies under torch's names, of each layer's parameters under its own.

    Of torch's Linear, Conv2d and BatchNorm `layers.<i>.weight` and `.bias`; of its LSTMCell and GRUCell `.weight_ih`,
    `.weight_hh`, `.bias_ih` and `.bias_hh`, of which the last is 0 where both biases are only ever added.
    """
    named = {}
    for i, (layer, own) in enumerate(zip(layers, parameters, strict=True)):
        for name, value in _given_to_torch(layer, own, _inputs_of_torch(layers, i)).items():
            named[f"layers.{i}.{name}"] = np.array(value, dtype=np.float32, order="C")
    return named


def from_torch(layers: Sequence[Layer], named: Parameters) -> list[Parameters]:
    """Each layer's parameters under its own names, of all that `to_torch` has."""
    own = []
    for i, layer in enumerate(layers):
        prefix = f"layers.{i}."
        given = {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
        own.append(_taken_from_torch(layer, given, _inputs_of_torch(layers, i)))
    return own


def _inputs_of_torch(layers: Sequence[Layer], i: int) -> npt.NDArray[np.int64] | slice:
    """Which input of layer i is torch's first, second, ...: another one behind a map that is flattened."""
    before = i - 1
    while before >= 0 and isinstance(layers[before], (Append, VirtualBatchNorm)):
        before -= 1
    if before < 0 or not isinstance(of := layers[before], Convolution):
        return slice(None)
    flat = np.arange(of.outputs).reshape(of.rows, of.columns, of.filters).transpose(2, 0, 1).ravel()
    return np.concatenate([flat, np.arange(of.outputs, layers[i].inputs)])


def _given_to_torch(layer: Layer, own: Parameters, inputs: npt.NDArray[np.int64] | slice) -> Parameters:
    if isinstance(layer, Cell):
        weight, at = own["weight"].T, layer.inputs
        return {"weight_ih": weight[:, :at][:, inputs], "weight_hh": weight[:, at:], **_biases_of_torch(layer, own["bias"])}
    if isinstance(layer, VirtualBatchNorm):
        return {"weight": own["gamma"], "bias": own["beta"]}
    if isinstance(layer, Convolution):
        return {**own, "weight": own["weight"].transpose(_CONV)}
    return {**own, "weight": own["weight"].T[:, inputs]} if own else own


def _taken_from_torch(layer: Layer, given: Parameters, inputs: npt.NDArray[np.int64] | slice) -> Parameters:
    back = inputs if isinstance(inputs, slice) else np.argsort(inputs)
    if isinstance(layer, Cell):
        weight = np.concatenate([given["weight_ih"][:, back], given["weight_hh"]], axis=1).T
        return {"weight": weight, "bias": _own_bias(layer, given["bias_ih"], given["bias_hh"])}
    if isinstance(layer, VirtualBatchNorm):
        return {"gamma": given["weight"], "beta": given["bias"]}
    if isinstance(layer, Convolution):
        return {**given, "weight": given["weight"].transpose(_CONV_BACK)}
    return {**given, "weight": given["weight"][:, back].T} if given else given


def _biases_of_torch(cell: Cell, bias: Float32) -> Parameters:
    """Torch has two of each gate; a GRU's last gate has two here as well."""
    size = cell.gates * cell.outputs
    of_memory = np.zeros(size, dtype=np.float32)
    if isinstance(cell, Gru):
        of_memory[-cell.outputs :] = bias[size:]
    return {"bias_ih": bias[:size], "bias_hh": of_memory}


def _own_bias(cell: Cell, of_inputs: Float32, of_memory: Float32) -> Float32:
    """Return the sum of both of a gate; adding 0 would turn -0 into 0."""
    together: Float32 = np.where(of_memory == 0.0, of_inputs, of_inputs + of_memory)
    if not isinstance(cell, Gru):
        return together
    return np.concatenate([together[: -cell.outputs], of_inputs[-cell.outputs :], of_memory[-cell.outputs :]])
