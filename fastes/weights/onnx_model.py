"""A policy as an ONNX model that gives its actions: observations (n, *obs_shape) of float32 -> actions (n, *action shape)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.weights.exported import Exported

_OPSET, _IR = 17, 8  # of 2022: what runtimes of today and of some years ago read
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}


class _Graph:
    """Nodes one behind the other, each of what the one before gives and of constants."""

    def __init__(self, onnx: Any, name: str) -> None:
        self.onnx, self.last = onnx, name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *constants: npt.ArrayLike | None, **attributes: Any) -> str:
        """A node of the last value and constants; the name of its value, which is the last one now."""
        inputs = [self.last, *("" if each is None else self.constant(np.asarray(each)) for each in constants)]
        return self.put(kind, inputs, **attributes)

    def put(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        self.last = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [self.last], **attributes))
        return self.last

    def cast(self, dtype: str) -> None:
        self.add("Cast", to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, array: npt.NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def onnx_bytes(of: Exported, onnx: Any) -> bytes:
    """The model as a file has it. onnx: the package. Input `observation`, output `action`."""
    graph = _Graph(onnx, "observation")
    _observe(graph, of)
    for i, (weight, bias) in enumerate(of.layers):
        graph.add("MatMul", weight.T)
        if bias is not None:
            graph.add("Add", bias)
        if i < len(of.layers) - 1:
            graph.add(_ACTIVATIONS[of.activation])
    dtype = _act(graph, of)
    graph.add("Reshape", np.array([-1, *of.head.shape], dtype=np.int64))
    graph.cast(dtype)
    graph.nodes[-1].output[0] = "action"
    helper = onnx.helper
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(each)) for each in ("float32", dtype)]
    ends = [
        helper.make_tensor_value_info(name, kind, ["n", *shape])
        for name, kind, shape in zip(("observation", "action"), kinds, (of.obs_shape, of.head.shape), strict=True)
    ]
    made = helper.make_graph(graph.nodes, "policy", ends[:1], ends[1:], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="fastes")
    onnx.checker.check_model(model)
    written: bytes = model.SerializeToString()
    return written


def _observe(graph: _Graph, of: Exported) -> None:
    """What the first layer reads."""
    graph.add("Flatten", axis=1)
    if of.columns is not None:
        graph.add("Gather", of.columns, axis=1)
    if of.mean is not None:
        graph.cast("float64")
        graph.add("Sub", of.mean)
        graph.add("Mul", 1.0 / np.asarray(of.std))
        graph.add("Clip", np.array(-of.clip), np.array(of.clip))
        graph.cast("float32")


def _act(graph: _Graph, of: Exported) -> str:
    """Actions (n, size) of the last layer's outputs; their dtype."""
    head = of.head
    if head.kind == "categorical":
        _choose(graph, head.nvec)
        graph.add("Add", np.array(head.start, dtype=np.int64))
        return head.cast or head.dtype
    if head.kind == "binary":
        graph.add("Greater", np.float32(0.0))
        return "int8"
    if head.kind == "bins":
        graph.add("Reshape", np.array([-1, head.size, head.num_bins], dtype=np.int64))
        graph.add("ArgMax", axis=2, keepdims=0)
        graph.cast("float64")
        graph.add("Mul", np.array(2.0 / (head.num_bins - 1)))
        graph.add("Sub", np.array(1.0))
    if head.kind == "squash":
        graph.add("Tanh")
    graph.cast("float64")
    half, middle = head.spans()
    for kind, values in (("Mul", half), ("Add", middle), ("Max", head.low), ("Min", head.high)):
        graph.add(kind, np.array(values))
    return head.dtype


def _choose(graph: _Graph, nvec: tuple[int, ...]) -> None:
    """The largest logit of each component, int64 (n, components)."""
    logits, ends, chosen = graph.last, np.cumsum(nvec), []
    for begin, end in zip(ends - np.array(nvec), ends, strict=True):
        graph.last = logits
        graph.add("Slice", np.array([begin]), np.array([end]), np.array([1]))
        chosen.append(graph.add("ArgMax", axis=1, keepdims=1))
    graph.put("Concat", chosen, axis=1)
