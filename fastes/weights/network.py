"""A network that another library has trained, and the policy that gives the same actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastes.errors import suggest
from fastes.number_array import Float64, number_array
from fastes.policies.action_head import ActionHead, actions_in_words
from fastes.policies.layers import ACTIVATIONS
from fastes.policies.policy_keywords import head_from

OUTPUTS = {  # meaning of the last layer's outputs -> the action_mapping that makes actions of them
    "actions": "clip",
    "unit": "clip",
    "tanh": "squash",
    "bins": "bins",
    "logits": "clip",
}
OUTPUTS_IN_WORDS = (
    "outputs='actions' (the actions themselves, clipped to their bounds), 'tanh' (their tanh spans the bounds), or 'unit' "
    "(-1 to 1 spans the bounds)"
)
NO_CLIP = 1e30  # standard deviations: as good as no clipping
_KNOWN_WELL = 1_000_000  # number of observations behind statistics, if it is not said


@dataclass(frozen=True)
class Statistics:
    """Statistics of observations, which reach the policy as (observation - mean) / std, clipped to +- clip.

    Attributes:
        mean, std: float64 (n,).
        clip: In standard deviations.
        count: Number of observations that they stand for.
    """

    mean: Float64
    std: Float64
    clip: float = NO_CLIP
    count: int = _KNOWN_WELL


@dataclass(frozen=True)
class Front:
    """Layers in front of the dense ones: convolutions of an image, or LSTM cells.

    Attributes:
        policy: Name of a policy that has such layers.
        layers: The parameters of each under torch's names, float64.
        kwargs: policy_kwargs for them.
        inputs: Number of values of an observation that they read in addition to an image.
        features: Number of dense layers that belong to the image's features.
    """

    policy: str
    layers: tuple[Mapping[str, Float64], ...]
    kwargs: Mapping[str, Any]
    inputs: int = 0
    features: int = 0


@dataclass(frozen=True)
class Network:
    """Dense layers with an activation between them, and the meaning of inputs and outputs.

    Attributes:
        weights: Weight of each layer, float64 (outputs, inputs).
        biases: Bias of each layer, float64 (outputs,), or None.
        activation: Activation between layers.
        outputs: Meaning of the last layer's outputs, one of OUTPUTS; 'logits' for choices; None if unknown.
        statistics: Statistics of observations, None if these are not normalised.
        action_space: The space that it was trained in; None if unknown.
        actions: Further facts about its actions: 'low', 'high', 'nvec' and 'start' of an ActionHead, as far as known.
        columns: Indices of the values of an observation that it reads, empty for all.
        num_bins: Values per component of 'bins', else 0.
        front: The layers in front of these, None for none.
    """

    weights: tuple[Float64, ...]
    biases: tuple[Float64 | None, ...]
    activation: str
    outputs: str | None
    statistics: Statistics | None = None
    action_space: Any = None
    actions: Mapping[str, Float64] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    num_bins: int = 0
    front: Front | None = None

    @property
    def inputs(self) -> int:
        return int(self.weights[0].shape[1]) if self.front is None else self.front.inputs

    @property
    def has_bias(self) -> bool:
        return self.front is not None or any(bias is not None for bias in self.biases)

    @property
    def policy(self) -> str:
        """The name of a policy that can act as it does."""
        if self.front is not None:
            return self.front.policy
        return "LinearPolicy" if len(self.weights) == 1 else "MlpPolicy"

    def policy_kwargs(self, use_bias: bool) -> dict[str, Any]:
        """Return the policy_kwargs of such a policy."""
        kwargs: dict[str, Any] = {"action_mapping": OUTPUTS[self.outputs or "logits"], "use_bias": use_bias}
        if self.num_bins:
            kwargs["num_bins"] = self.num_bins
        hidden = [len(weight) for weight in self.weights[:-1]]
        if self.front is not None:
            return kwargs | {**self.front.kwargs, "net_arch": hidden[self.front.features :], "activation_fn": self.activation}
        return kwargs | {"net_arch": hidden, "activation_fn": self.activation} if hidden else kwargs

    def settings(self) -> dict[str, Any]:
        """Return the settings under which observations reach it as they did in training."""
        columns: Any = list(self.columns) or "all"
        if self.statistics is None:
            return {"obs_columns": columns, "normalize_obs": False}
        normalized = {"obs_clip": self.statistics.clip, "obs_std_floor": float(self.statistics.std.min()) / 2}
        return {"obs_columns": columns, "normalize_obs": True, **normalized}

    def fitted(self, head: ActionHead) -> Network:
        """Return the network for an action space, whose bounds are -1 to 1 of the outputs; ValueError for other actions."""
        size = len(self.weights[-1])
        if size != head.num_outputs:
            raise ValueError(f"the policy has {size} outputs, the environment needs {head.num_outputs}, {head.outputs}")
        for name, values in self.actions.items():
            if not np.array_equal(np.ravel(values), getattr(head, name)):
                raise ValueError(
                    f"the policy was trained on actions with {name} = {values.tolist()!r:.100}, the environment has "
                    f"{actions_in_words(head)}: pass the environment that it was trained in, with its wrappers"
                )
        chooses = head.kind in ("categorical", "binary")
        if chooses and self.outputs in (None, "actions"):  # plain arrays are 'actions' by default
            return replace(self, outputs="logits")
        if self.outputs is None:
            raise ValueError(f"the policy does not say what its outputs are: pass {OUTPUTS_IN_WORDS}")
        if chooses != (self.outputs == "logits"):
            given = "logits of choices" if self.outputs == "logits" else f"outputs={self.outputs!r}"
            raise ValueError(f"the policy has {given}, the environment has {actions_in_words(head)}")
        if self.action_space is not None and (own := head_from(self.action_space, self.policy_kwargs(True))) != head:
            raise ValueError(
                f"the policy was trained on {actions_in_words(own)}, the environment has {actions_in_words(head)}: pass the "
                "environment that it was trained in, with its wrappers"
            )
        return self._spanning(head) if self.outputs == "actions" else self

    def _spanning(self, head: ActionHead) -> Network:
        """Return a network whose outputs span the bounds from -1 to 1: (action - middle) / half of the span."""
        half, middle = head.spans()
        half[half == 0.0] = 1.0  # of bounds that are equal: any output is that action
        *biases, bias = self.biases
        if bias is not None or middle.any():
            bias = ((0.0 if bias is None else bias) - middle) / half
        return replace(self, weights=(*self.weights[:-1], self.weights[-1] / half[:, None]), biases=(*biases, bias))

    def parameters(self) -> dict[str, Float64]:
        """Return the parameters by the names of FastES.get_parameters; all layers have a bias, or none has."""
        front = () if self.front is None else self.front.layers
        named = {f"layers.{i}.{name}": value for i, layer in enumerate(front) for name, value in layer.items()}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), len(front)):
            named[f"layers.{i}.weight"] = weight
            if self.has_bias:
                named[f"layers.{i}.bias"] = np.zeros(len(weight)) if bias is None else bias
        return named


def checked_network(
    layers: Sequence[tuple[Any, Any]],
    activation: Any,
    outputs: str | None,
    statistics: Statistics | None = None,
    **more: Any,
) -> Network:
    """Return a network of layers (weight, bias or None), arrays or tensors; ValueError for shapes that do not match."""
    weights: list[Float64] = []
    biases: list[Float64 | None] = []
    for i, (weight, bias) in enumerate(layers):
        matrix = number_array(f"the weights of layer {i}", weight, "numbers, (outputs, inputs)")
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"the weight of layer {i} has shape {matrix.shape}: expected (outputs, inputs)")
        if weights and matrix.shape[1] != len(weights[-1]):
            raise ValueError(
                f"the weight of layer {i} has shape {matrix.shape}, (outputs, inputs), and layer {i - 1} has "
                f"{len(weights[-1])} outputs: pass weights as torch has them, with .T if yours are (inputs, outputs)"
            )
        vector = None if bias is None else number_array(f"the biases of layer {i}", bias, "numbers, (outputs,)")
        if vector is not None and vector.shape != (len(matrix),):
            raise ValueError(f"the bias of layer {i} has shape {vector.shape}: expected ({len(matrix)},), a number per output")
        if not _is_finite(matrix) or (vector is not None and not _is_finite(vector)):
            raise ValueError(f"layer {i} has values that are not finite: expected finite numbers of float32 only")
        weights.append(matrix)
        biases.append(vector)
    if outputs is not None and not (isinstance(outputs, str) and outputs in OUTPUTS):
        raise ValueError(f"outputs = {outputs!r:.100}: expected one of {tuple(OUTPUTS)}{suggest(outputs, OUTPUTS)}")
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", repr(activation))
    if name.lower() not in ACTIVATIONS:
        raise ValueError(
            f"activation_fn = {activation!r}: a FastES policy has one of {ACTIVATIONS} between its layers. "
            "fastes.TorchPolicy(module) takes any network"
        )
    network = Network(tuple(weights), tuple(biases), name.lower(), outputs, statistics, **more)
    return network if statistics is None else _without_constants(network, statistics)


def _is_finite(values: Float64) -> bool:
    """Whether all values are finite in float32, in which policies compute."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(values.astype(np.float32)).all())


def statistics_or_none(mean: Any, std: Any, clip: Any) -> Statistics | None:
    """Return statistics, or None if none were given; ValueError for mean without std, or the reverse."""
    if mean is None and std is None and clip is None:
        return None
    if mean is None or std is None:
        given = ", ".join(name for name, value in (("mean", mean), ("std", std), ("clip", clip)) if value is not None)
        raise ValueError(f"of the statistics of observations only {given} was given: pass mean and std, or none of them")
    return checked_statistics(mean, std, clip)


def checked_statistics(mean: Any, std: Any, clip: Any = None, count: int = _KNOWN_WELL) -> Statistics:
    """Return statistics (n,); std may be infinite for a component that counts for nothing. ValueError for other values."""
    given = (("mean", mean), ("std", std))
    means, stds = (number_array(f"the values of {name}", value, "numbers, (n,)") for name, value in given)
    if means.ndim != 1 or means.shape != stds.shape:
        raise ValueError(f"mean has shape {means.shape} and std {stds.shape}: expected both to be (observation values,)")
    if not np.isfinite(means).all():
        raise ValueError("mean has values that are not finite: expected finite numbers only")
    if not (stds > 0.0).all():
        at = int(np.flatnonzero(~(stds > 0.0))[0])
        raise ValueError(
            f"std[{at}] = {stds[at]:g}: expected positive numbers, or infinity for a value that counts for nothing"
        )
    limit = number_array("the values of clip", NO_CLIP if clip is None else clip, "one number")
    if limit.size != 1 or not (limit > 0.0).all():
        raise ValueError(f"clip = {clip!r:.100}: expected one positive number of standard deviations, or None")
    return Statistics(means, stds, min(limit.item(), NO_CLIP), max(int(count), 1))


def _without_constants(network: Network, statistics: Statistics) -> Network:
    """Return the network with statistics; weights of components that are divided by infinity become 0."""
    if network.front is not None and network.front.features:
        raise ValueError("mean and std were given for a policy that sees images: those are not normalised here")
    if statistics.mean.shape != (network.inputs,):
        raise ValueError(
            f"mean and std are of {len(statistics.mean)} observation values, the first layer's weight "
            f"{network.weights[0].shape} reads {network.inputs}: expected (outputs, inputs), as torch has it"
        )
    constant = np.isinf(statistics.std)
    if network.front is not None:
        if constant.any():
            raise ValueError("std has values that are not finite: expected finite numbers for a policy that remembers")
        return network
    first = np.where(constant, 0.0, network.weights[0])
    own = replace(statistics, std=np.where(constant, 1.0, statistics.std))
    return replace(network, weights=(first, *network.weights[1:]), statistics=own)
