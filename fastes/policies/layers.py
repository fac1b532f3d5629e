"""The layers of a policy: sizes, first parameters, torch's names for these, and how a checkpoint describes a list of them.

The arithmetic is in src/layer_kernels.inc and src/cell_kernels.inc. A new layer is a class here, with an entry in KINDS.

Parameters lie in theta as the kernels read them: a dense weight is (inputs, outputs), a map (rows, columns, filters). Users see
them under torch's names and in torch's orientation: a Linear weight is (outputs, inputs), a map (filters, rows, columns), also
once it is flattened. A square weight does not show which of the two it is, so `to_torch` and `from_torch` are the only border.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.number_array import Float32

Parameters = Mapping[str, Float32]
Order = npt.NDArray[np.int64] | slice  # for each input of torch's layer, the number of the input here
IDENTITY = "identity"  # unchanged outputs: those of the last layer, and those that the next layer turns into activations
ACTIVATIONS = tuple(name for name in _core.ACTIVATIONS if name != IDENTITY)
MOST_VALUES = 2**31 - 1  # the most that a layer reads or writes: the core counts them as int32
REFERENCE_SIZE = 128  # observations of a reference batch (Salimans et al. 2017; released code of Such et al. 2017)
_CONV, _CONV_BACK = (3, 2, 0, 1), (2, 3, 1, 0)  # (kernel, kernel, channels, filters) <-> (filters, channels, kernel, kernel)


class Layer(Protocol):
    """A frozen dataclass whose fields are ints, bools and strings: they are its description in a checkpoint.

    Attributes:
        kind: Its name, in `_core.LAYER_KINDS` and in checkpoints.
        inputs, outputs: Number of values that it reads and writes.
        activation: Activation of the outputs, one of `_core.ACTIVATIONS`.
        state_size: Number of values that it remembers within an episode: `begin_episode` sets them to 0.
        reads_image: Whether it reads an image in the observation itself instead of the outputs of the layer before it.
        keeps_order: Whether its outputs begin with its inputs, or with one for each, in the same order.
        scratch_size: Number of intermediate values that it needs room for, if more than inputs and outputs, else 0.
    """

    kind: ClassVar[str]
    reads_image: ClassVar[bool]
    keeps_order: ClassVar[bool]

    @property
    def inputs(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def activation(self) -> str: ...

    @property
    def state_size(self) -> int: ...

    @property
    def scratch_size(self) -> int: ...

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the parameters in the order in which they lie in theta."""

    def scale_normals(self, parameters: Parameters, gain: float) -> None:
        """Turn standard normals into first parameters, in place; `gain` scales the weights."""

    def to_torch(self, own: Parameters, order: Order) -> Parameters:
        """Return the parameters under torch's names and in torch's orientation, copies or views."""

    def from_torch(self, given: Parameters, order: Order) -> Parameters:
        """Return the parameters under the names here: the inverse of `to_torch`."""

    def check(self) -> None:
        """Raise ValueError for sizes that the core must not see."""


def check_sizes(layer: Any, *names: str) -> None:
    """Raise ValueError unless these attributes are ints from 1 to MOST_VALUES."""
    for name in names:
        value = getattr(layer, name)
        if type(value) is not int or not 1 <= value <= MOST_VALUES:
            raise ValueError(f"{name} = {value!r:.100} of a {layer.kind} layer is out of range: expected 1 to {MOST_VALUES}")


def _inverse(order: Order) -> Order:
    return order if isinstance(order, slice) else np.argsort(order)


# --- feed-forward layers ----------------------------------------------------------------------------------------------


class _Feedforward:
    """Base of layers that remember nothing and read the outputs of the layer before them; without parameters by default."""

    reads_image: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    state_size: ClassVar[int] = 0
    scratch_size: ClassVar[int] = 0

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def scale_normals(self, parameters: Parameters, gain: float) -> None:
        pass

    def to_torch(self, own: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return own

    def from_torch(self, given: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return given


class _Weighted(_Feedforward):
    """Base of layers with weights, whose last dimension is the outputs, and biases unless use_bias is False."""

    use_bias: bool

    @property
    def weight_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {"weight": self.weight_shape}
        return {**shapes, "bias": self.weight_shape[-1:]} if self.use_bias else shapes

    def scale_normals(self, parameters: Parameters, gain: float) -> None:
        """Make weights N(0, gain^2 / fan_in) and biases zero."""
        weight = parameters["weight"]
        weight *= np.float32(gain * (1.0 / math.sqrt(math.prod(self.weight_shape[:-1]))))
        if self.use_bias:
            parameters["bias"][:] = 0.0


@dataclass(frozen=True)
class Dense(_Weighted):
    """outputs = activation(inputs . weight (inputs, outputs) + bias (outputs,))."""

    kind: ClassVar[str] = "dense"
    inputs: int
    outputs: int
    activation: str
    use_bias: bool

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.inputs, self.outputs

    def to_torch(self, own: Parameters, order: Order) -> Parameters:
        return {**own, "weight": own["weight"].T[:, order]}

    def from_torch(self, given: Parameters, order: Order) -> Parameters:
        return {**given, "weight": given["weight"][:, _inverse(order)].T}

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")


def dense_layers(sizes: Sequence[int], activation: str, use_bias: bool) -> tuple[Dense, ...]:
    """Return dense layers between inputs, hidden sizes and outputs; the last one has no activation."""
    pairs = list(pairwise(sizes))
    activations = [activation] * (len(pairs) - 1) + [IDENTITY]
    return tuple(Dense(*pair, of_pair, use_bias) for pair, of_pair in zip(pairs, activations, strict=True))


@dataclass(frozen=True)
class Convolution(_Weighted):
    """A map (height, width, channels) -> (rows, columns, filters), by square kernels, without padding."""

    kind: ClassVar[str] = "convolution"
    height: int
    width: int
    channels: int
    filters: int
    kernel: int
    stride: int
    activation: str
    use_bias: bool

    @property
    def inputs(self) -> int:
        return self.height * self.width * self.channels

    @property
    def rows(self) -> int:
        return (self.height - self.kernel) // self.stride + 1

    @property
    def columns(self) -> int:
        return (self.width - self.kernel) // self.stride + 1

    @property
    def outputs(self) -> int:
        return self.rows * self.columns * self.filters

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.kernel, self.kernel, self.channels, self.filters

    def to_torch(self, own: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return {**own, "weight": own["weight"].transpose(_CONV)}

    def from_torch(self, given: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return {**given, "weight": given["weight"].transpose(_CONV_BACK)}

    def check(self) -> None:
        check_sizes(self, "height", "width", "channels", "filters", "kernel", "stride")
        if self.kernel > min(self.height, self.width):
            raise ValueError(f"a kernel of {self.kernel} x {self.kernel} does not fit a map of {self.height} x {self.width}")
        check_sizes(self, "inputs", "outputs")
        if math.prod(self.weight_shape) > MOST_VALUES:
            raise ValueError(f"{self} has more than {MOST_VALUES} weights")


@dataclass(frozen=True)
class ImageConvolution(Convolution):
    """A convolution of an image that lies in an observation of any dtype.

    Attributes:
        first: Index of the image's first value in the flat observation.
        planes: The image lies there as (planes, height, width, channels / planes): 1 if the channels are the last dimension,
            the number of channels if they are the first, the number of images for a stack of images with channels last.
        divisor: Divisor of its values, 255 for bytes that become 0 to 1.
    """

    kind: ClassVar[str] = "image_convolution"
    reads_image: ClassVar[bool] = True
    first: int
    planes: int
    divisor: int

    @property
    def strip_rows(self) -> int:
        """Number of output rows that are computed at a time, from a strip of the image that is held as floats."""
        most = (_core.STRIP_VALUES // (self.width * self.channels) - self.kernel) // self.stride + 1
        return min(max(most, 1), self.rows)

    @property
    def strip_size(self) -> int:
        """Number of values of that strip."""
        return self.width * self.channels * ((self.strip_rows - 1) * self.stride + self.kernel)

    def check(self) -> None:
        super().check()
        check_sizes(self, "planes", "divisor")
        if self.channels % self.planes:
            raise ValueError(f"{self.channels} channels do not lie in {self.planes} planes of an image")
        if not 0 <= self.first <= MOST_VALUES:
            raise ValueError(f"first = {self.first!r:.100} of an image is out of range: expected 0 to {MOST_VALUES}")


@dataclass(frozen=True)
class Append(_Feedforward):
    """Appends the values that a policy observes in addition to an image: inputs -> (inputs + appended,)."""

    kind: ClassVar[str] = "append"
    keeps_order: ClassVar[bool] = True
    inputs: int
    appended: int
    activation: str

    @property
    def outputs(self) -> int:
        return self.inputs + self.appended

    def check(self) -> None:
        check_sizes(self, "inputs", "appended", "outputs")


@dataclass(frozen=True)
class Join(_Feedforward):
    """Puts the features of an image behind those of the images before it: inputs -> (before + inputs,).

    Each image of a policy that sees several has layers of its own, of which the last one is a Join: the next image's begin
    with the observation again.

    Attributes:
        before: Number of values that the joins before it have read, 0 of the first one.
    """

    kind: ClassVar[str] = "join"
    inputs: int
    before: int
    activation: str

    @property
    def outputs(self) -> int:
        return self.before + self.inputs

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")
        if not 0 <= self.before <= MOST_VALUES:
            raise ValueError(f"before = {self.before!r:.100} of a join layer is out of range: expected 0 to {MOST_VALUES}")


@dataclass(frozen=True)
class VirtualBatchNorm(_Feedforward):
    """gamma (x - mean) / sqrt(variance + 0.001) + beta by channel; x has the shape (inputs / channels, channels).

    Mean and variance are those of a reference batch of observations under the present parameters. They are constant within an
    episode, and the normalisation of a value does not depend on other episodes (Salimans et al. 2016, section 3.4).
    """

    kind: ClassVar[str] = "virtual_batch_norm"
    keeps_order: ClassVar[bool] = True
    inputs: int
    channels: int
    activation: str

    @property
    def outputs(self) -> int:
        return self.inputs

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"gamma": (self.channels,), "beta": (self.channels,)}

    def scale_normals(self, parameters: Parameters, gain: float) -> None:  # noqa: ARG002
        parameters["gamma"][:] = 1.0
        parameters["beta"][:] = 0.0

    def to_torch(self, own: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return {"weight": own["gamma"], "bias": own["beta"]}

    def from_torch(self, given: Parameters, order: Order) -> Parameters:  # noqa: ARG002
        return {"gamma": given["weight"], "beta": given["bias"]}

    def check(self) -> None:
        check_sizes(self, "inputs", "channels")
        if self.inputs % self.channels:
            raise ValueError(f"{self.inputs} values are not a multiple of {self.channels} channels")


# --- recurrent cells --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Base of recurrent cells, whose outputs are part of what they remember.

    Parameters: weight (inputs + outputs, gates * outputs) for inputs and memory, bias (4 * outputs,).

    Attributes:
        gates: Number of blocks of `outputs` values in a row of the weight.
        remembered: Number of blocks of `outputs` values that it remembers; the outputs are the first.
        in_scratch: Number of blocks of `outputs` values that it needs room for in addition to inputs and outputs.
    """

    kind: ClassVar[str]
    gates: ClassVar[int]
    remembered: ClassVar[int]
    in_scratch: ClassVar[int]
    activation: ClassVar[str] = IDENTITY
    reads_image: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    inputs: int
    outputs: int

    @property
    def state_size(self) -> int:
        return self.remembered * self.outputs

    @property
    def scratch_size(self) -> int:
        return self.in_scratch * self.outputs

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.inputs + self.outputs, self.gates * self.outputs), "bias": (4 * self.outputs,)}

    def scale_normals(self, parameters: Parameters, gain: float) -> None:
        """Make weights N(0, gain^2 / (inputs + outputs)) and biases zero, except that of the gate that keeps the memory.

        That one is 1 (Gers et al. 2000; Jozefowicz et al. 2015). With 0, half of the memory would be lost at every step, and
        no perturbation of what is written at the start of an episode would change its return.
        """
        weight, bias = parameters["weight"], parameters["bias"]
        weight *= np.float32(gain * (1.0 / math.sqrt(self.inputs + self.outputs)))
        bias[:] = 0.0
        bias[self.outputs : 2 * self.outputs] = 1.0  # f of an LSTM, z of a GRU

    def to_torch(self, own: Parameters, order: Order) -> Parameters:
        weight, bias, past = own["weight"].T, own["bias"], self.gates * self.outputs
        of_memory = np.zeros(past, dtype=np.float32)
        of_memory[past - len(bias[past:]) :] = bias[past:]
        weights = {"weight_ih": weight[:, : self.inputs][:, order], "weight_hh": weight[:, self.inputs :]}
        return {**weights, "bias_ih": bias[:past], "bias_hh": of_memory}

    def from_torch(self, given: Parameters, order: Order) -> Parameters:
        weight = np.concatenate([given["weight_ih"][:, _inverse(order)], given["weight_hh"]], axis=1).T
        of_inputs, of_memory = given["bias_ih"], given["bias_hh"]
        added = np.where(of_memory == 0.0, of_inputs, of_inputs + of_memory)  # adding 0 would turn -0 into 0
        apart = 2 * len(added) - 4 * self.outputs  # from here on both biases are kept: those of a GRU's last gate
        return {"weight": weight, "bias": np.concatenate([added[:apart], of_inputs[apart:], of_memory[apart:]])}

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")
        if self.outputs > (most := MOST_VALUES // 6):
            raise ValueError(f"outputs = {self.outputs} of a {self.kind} layer is out of range: expected 1 to {most}")


@dataclass(frozen=True)
class Lstm(Cell):
    """Gates i, f, g, o; c = sigmoid(f) c + sigmoid(i) tanh(g), outputs h = sigmoid(o) tanh(c). It remembers h and c.

    It is torch's nn.LSTMCell with weight = [weight_ih.T; weight_hh.T] and bias = bias_ih + bias_hh.
    """

    kind: ClassVar[str] = "lstm"
    gates: ClassVar[int] = 4
    remembered: ClassVar[int] = 2
    in_scratch: ClassVar[int] = 4


@dataclass(frozen=True)
class Gru(Cell):
    """Gates r, z, n; n = tanh(n of inputs + sigmoid(r) n of h), outputs h = (1 - sigmoid(z)) n + sigmoid(z) h.

    It is torch's nn.GRUCell with weight = [weight_ih.T; weight_hh.T]; the blocks of bias are bias_ih + bias_hh of r and of z,
    bias_ih of n and bias_hh of n.
    """

    kind: ClassVar[str] = "gru"
    gates: ClassVar[int] = 3
    remembered: ClassVar[int] = 1
    in_scratch: ClassVar[int] = 6


CELLS: dict[str, type[Lstm] | type[Gru]] = {cell.kind: cell for cell in (Lstm, Gru)}
KINDS: dict[str, Callable[..., Layer]] = {
    kind.kind: kind for kind in (Dense, Convolution, ImageConvolution, Append, Join, VirtualBatchNorm, Lstm, Gru)
}


# --- the memory of recurrent policies, as `predict` takes and returns it ----------------------------------------------

State = tuple[Float32, ...]  # h of the cells, and c of an LSTM's: each (cells, rows, units), the shapes of sb3-contrib


def cells_of(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers that remember something; they are all alike (check_layers)."""
    return [layer for layer in layers if layer.state_size]


def state_of(cells: Sequence[Layer], remembered: Float32) -> State:
    """Return arrays (cells, rows, units) of the values that actors remember, float32 (rows, cells * state_size)."""
    parts, units = _parts(cells[0])
    return tuple(remembered.reshape(len(remembered), len(cells), parts, units).transpose(2, 1, 0, 3).copy())


def remembered_in(cells: Sequence[Layer], state: Any, rows: int) -> Float32:
    """Return the values that actors remember, float32 (rows, cells * state_size): the inverse of `state_of`.

    Args:
        cells: The policy's cells.
        state: As `state_of` returns it; None for zeros.
        rows: Number of observations.

    Raises:
        ValueError: Arrays of other shapes.
    """
    parts, units = _parts(cells[0])
    shape = (parts, len(cells), rows, units)
    if state is None:
        return np.zeros((rows, len(cells) * cells[0].state_size), dtype=np.float32)
    try:
        arrays = np.array([np.asarray(part, dtype=np.float32) for part in state])
    except (TypeError, ValueError):
        arrays = np.empty(0)
    if arrays.shape != shape:
        found = [np.shape(part) for part in state] if isinstance(state, (list, tuple)) else f"{state!r:.100}"
        raise ValueError(
            f"state has {found}: expected a tuple of {parts} arrays {shape[1:]} for {rows} observation{'s' * (rows > 1)}, as "
            "predict returned it, or None where all episodes begin"
        )
    return np.ascontiguousarray(arrays.transpose(2, 1, 0, 3)).reshape(rows, -1)


def _parts(cell: Layer) -> tuple[int, int]:
    """Return the number of arrays that a cell remembers, and their length."""
    return cell.state_size // cell.outputs, cell.outputs


# --- parameters under torch's names -----------------------------------------------------------------------------------


def to_torch(layers: Sequence[Layer], parameters: Sequence[Parameters]) -> dict[str, Float32]:
    """Return copies of each layer's parameters under torch's names.

    Linear, Conv2d and BatchNorm have `layers.<i>.weight` and `.bias`; LSTMCell and GRUCell have `.weight_ih`, `.weight_hh`,
    `.bias_ih` and `.bias_hh`, of which the last is 0 for gates that only ever add both biases.
    """
    named = {}
    for i, (layer, own) in enumerate(zip(layers, parameters, strict=True)):
        for name, value in layer.to_torch(own, _order_in_torch(layers, i)).items():
            named[f"layers.{i}.{name}"] = np.array(value, dtype=np.float32, order="C")
    return named


def from_torch(layers: Sequence[Layer], named: Parameters) -> list[Parameters]:
    """Return each layer's parameters under the names here: the inverse of `to_torch`."""
    own = []
    for i, layer in enumerate(layers):
        prefix = f"layers.{i}."
        given = {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
        own.append(layer.from_torch(given, _order_in_torch(layers, i)))
    return own


def _order_in_torch(layers: Sequence[Layer], i: int) -> Order:
    """Return which input of layer i is torch's first, second and so on: another one behind a map that is flattened."""
    before = i - 1
    while before >= 0 and layers[before].keeps_order:
        before -= 1
    if before < 0 or not isinstance(of := layers[before], Convolution):
        return slice(None)
    flat = np.arange(of.outputs).reshape(of.rows, of.columns, of.filters).transpose(2, 0, 1).ravel()
    return np.concatenate([flat, np.arange(of.outputs, layers[i].inputs)])


# --- lists of layers, and their description in a checkpoint (docs/reference/checkpoint-format.md) ---------------------

DESCRIPTIONS = {"layers"}, {"layer_sizes", "activation", "use_bias"}  # keys of the two ways to describe layers
_MAX_LAYERS = 10_000  # each costs memory, and a file can list millions
_FITS: dict[str, Callable[[Any], bool]] = {  # type of a field -> whether a value of a file may be one
    "int": lambda value: type(value) is int and 0 <= value <= MOST_VALUES,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str) and value in _core.ACTIVATIONS,
}


def layer_sizes(layers: Sequence[Layer]) -> tuple[int, ...]:
    """Return the number of values before, between and after the layers."""
    return (layers[0].inputs, *(layer.outputs for layer in layers))


def in_words(layer: Layer | None, fields: Sequence[str] = ()) -> str:
    """Return a layer in words, for errors, with these further fields."""
    if layer is None:
        return "none"
    told = ", ".join(f"{name} {getattr(layer, name)!r}" for name in fields)
    return f"{layer.kind} {layer.inputs} -> {layer.outputs}{told and f' ({told})'}"


def first_difference(asked: Sequence[Layer], stored: Sequence[Layer]) -> str:
    """Return the first layer that differs from a checkpoint's, in words; '' if none does."""
    for i, (one, other) in enumerate(zip_longest(asked, stored)):
        if one != other:
            differ = _fields_that_differ(one, other)
            return f"layer {i} would be {in_words(one, differ)}, the checkpoint's is {in_words(other, differ)}"
    return ""


def _fields_that_differ(one: Any, other: Any) -> list[str]:
    """Return the fields in which two layers of a kind differ, without those that `in_words` always has."""
    fields = dataclasses.fields(one) if type(one) is type(other) else ()
    return [f.name for f in fields if f.name not in ("inputs", "outputs") and getattr(one, f.name) != getattr(other, f.name)]


def describe_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the description of layers in a checkpoint: the sizes of dense ones that are all alike, a list of any others."""
    sizes, first = layer_sizes(layers), layers[0]
    if isinstance(first, Dense):
        activation = first.activation if len(layers) > 1 else ACTIVATIONS[0]  # any: nothing follows
        if activation in ACTIVATIONS and dense_layers(sizes, activation, first.use_bias) == tuple(layers):
            return {"layer_sizes": list(sizes), "activation": activation, "use_bias": first.use_bias}
    return {"layers": [{"kind": layer.kind, **dataclasses.asdict(layer)} for layer in layers]}  # type: ignore[call-overload]


def described_layers(stored: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Return the layers that a checkpoint describes, for `check_layers`; KeyError or ValueError if it describes none."""
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
    """Check layers before the core sees them.

    Args:
        layers: The policy's.
        observed: Number of values that the policy chooses among those of an observation.

    Raises:
        ValueError: A layer whose sizes the core must not see, or that does not read the outputs of the layer before it.
    """
    appended = [layer.appended for layer in layers if isinstance(layer, Append)]
    expected = [observed] if layers[0].reads_image and observed else []
    if appended != expected:
        raise ValueError(f"layers append {appended} observed values to an image's, expected {expected}")
    joined = 0
    for i, layer in enumerate(layers):
        layer.check()
        if i and layer.reads_image:
            if not isinstance(layers[i - 1], Join):
                raise ValueError(f"layer {i} reads an image: only the first one can, and one behind a join")
        elif i and layer.inputs != layers[i - 1].outputs:
            raise ValueError(f"layer {i}'s input has {layer.inputs} values, expected {layers[i - 1].outputs}")
        if isinstance(layer, Join):
            if layer.before != joined:
                raise ValueError(f"layer {i} joins its input with {layer.before} values, expected {joined}")
            joined += layer.inputs
    _check_cells(layers)


def _check_cells(layers: Sequence[Layer]) -> None:
    """Raise ValueError for unlike cells, or cells in front of batch normalisation: a batch of observations has no memory."""
    cells = [i for i, layer in enumerate(layers) if layer.state_size]
    found = {f"{layers[i].kind} of {layers[i].outputs} values" for i in cells}
    if len(found) > 1:
        raise ValueError(f"recurrent layers differ: {', '.join(sorted(found))}; expected all of one kind and size")
    for i in range(cells[0] if cells else len(layers), len(layers)):
        if isinstance(layers[i], VirtualBatchNorm):
            raise ValueError(
                f"layer {i} normalises by a batch of observations behind a recurrent one: expected it before these"
            )
