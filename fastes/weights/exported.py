"""A policy of dense layers as plain arrays and as an ONNX model: all that lies between an observation and its action."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.models.parameters import named_parameters
from fastes.policies.action_head import ActionHead
from fastes.policies.custom_policy import AnySpec
from fastes.policies.layers import Dense
from fastes.policies.policy_spec import PolicySpec
from fastes.policies.torch_policy import TorchSpec
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.settings.settings import Settings

Array = npt.NDArray[Any]
_OUTPUTS = {"clip": "unit", "squash": "tanh", "bins": "bins", "categorical": "logits", "binary": "logits"}


class Exported(NamedTuple):
    """The computation of a policy.

    Attributes:
        obs_shape: Shape of an observation, which is flattened.
        columns: Indices of its values that the policy reads, None for all.
        mean, std, clip: Normalisation (observation - mean) / std, clipped to +-clip; float64 (columns,), None without.
        layers: Weight (outputs, inputs) and bias (outputs,) or None of each layer, float32.
        activation: Activation between layers.
        head: How outputs become actions.
    """

    obs_shape: tuple[int, ...]
    columns: npt.NDArray[np.int64] | None
    mean: Array | None
    std: Array | None
    clip: float
    layers: list[tuple[Array, Array | None]]
    activation: str
    head: ActionHead

    @property
    def outputs(self) -> str:
        """Meaning of the last layer's outputs, as import_policy names it."""
        return _OUTPUTS[self.head.kind]

    def arrays(self) -> dict[str, Array]:
        """Return arrays for numpy.savez and import_policy: parameters by name, all else by the names above."""
        found: dict[str, Any] = {}
        for i, (weight, bias) in enumerate(self.layers):
            found[f"layers.{i}.weight"] = weight
            if bias is not None:
                found[f"layers.{i}.bias"] = bias
        found |= {"activation_fn": self.activation, "outputs": self.outputs}
        if self.mean is not None:
            found |= {"mean": self.mean, "std": self.std, "clip": self.clip}
        if self.columns is not None:
            found["columns"] = self.columns
        if self.head.low:
            found |= {"low": self.head.low, "high": self.head.high}
        if self.head.num_bins:
            found["num_bins"] = self.head.num_bins
        if self.head.nvec:
            found |= {"nvec": self.head.nvec, "start": self.head.start}
        return {name: np.array(value) for name, value in found.items()}


def exported(spec: AnySpec, settings: Settings, theta: Array, normalizer: ObsNormalizer) -> Exported:
    """Return the computation of a policy; ValueError for one that is more than dense layers.

    Args:
        spec: The policy's.
        settings: The training's.
        theta: Parameters, float32 (num_params,).
        normalizer: Statistics of observations.
    """
    if not isinstance(spec, PolicySpec) or not all(isinstance(layer, Dense) for layer in spec.layers):
        is_torch = isinstance(spec, TorchSpec)
        module = "model.policy_spec.module_with(model.theta) is its module"
        instead = module if is_torch else "policy.state_dict() has its parameters under torch's names"
        raise ValueError(
            f"a {settings.policy} is more than dense layers and cannot be exported: expected an MlpPolicy or a "
            f"LinearPolicy. {instead}"
        )
    named = named_parameters(spec, theta)
    layers = [(named[f"layers.{i}.weight"], named.get(f"layers.{i}.bias")) for i in range(len(spec.layers))]
    mean, std, clip = (normalizer.mean, normalizer.std, normalizer.clip) if settings.normalize_obs else (None, None, 0.0)
    return Exported(
        spec.obs_shape,
        np.array(spec.columns, dtype=np.int64) if spec.columns else None,
        mean,
        std,
        clip,
        layers,
        spec.layers[0].activation if len(layers) > 1 else "tanh",
        spec.head,
    )


# --- as an ONNX model -------------------------------------------------------------------------------------------------

_OPSET, _IR = 17, 8  # of 2022: older runtimes read them, too
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}


class _Graph:
    """A chain of nodes, each of which takes the value of the one before and constants."""

    def __init__(self, onnx: Any, name: str) -> None:
        self.onnx, self.last = onnx, name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *constants: npt.ArrayLike | None, **attributes: Any) -> str:
        """Add a node that takes the last value and constants; return the name of its value, the new last one."""
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
    """Return the content of an ONNX file.

    Args:
        of: The policy. Its input `observation` is float32 (n, *obs_shape), its output `action` (n, *action shape).
        onnx: The package.
    """
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
    """Add the nodes from an observation to the input of the first layer."""
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
    """Add the nodes from the last layer's outputs to actions (n, size); return the actions' dtype."""
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
    """Add nodes that give the largest logit of each component, int64 (n, components)."""
    logits, ends, chosen = graph.last, np.cumsum(nvec), []
    for begin, end in zip(ends - np.array(nvec), ends, strict=True):
        graph.last = logits
        graph.add("Slice", np.array([begin]), np.array([end]), np.array([1]))
        chosen.append(graph.add("ArgMax", axis=1, keepdims=1))
    graph.put("Concat", chosen, axis=1)
