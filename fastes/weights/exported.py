"""A policy of dense layers as plain arrays: everything between an observation and its action without noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.models.model import Model
from fastes.models.parameters import named_parameters
from fastes.policies.action_head import ActionHead
from fastes.policies.layers import Dense
from fastes.policies.policy_spec import PolicySpec
from fastes.policies.torch_policy import TorchSpec

Array = npt.NDArray[Any]
_OUTPUTS = {"clip": "unit", "squash": "tanh", "bins": "bins", "categorical": "logits", "binary": "logits"}


class Exported(NamedTuple):
    """What a policy does with observations (n, *obs_shape), which are flattened.

    columns: values of them that it reads, None for all.
    mean, std: float64 (columns,), None where they are not normalised: (observation - mean) / std, clipped to +-clip.
    layers: (weight (outputs, inputs), bias (outputs,) or None) of each, float32, with the activation between them.
    head: how outputs become actions.
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
        """What those of the last layer are, as import_policy names it."""
        return _OUTPUTS[self.head.kind]

    def arrays(self) -> dict[str, Array]:
        """As numpy.savez takes them, and import_policy: parameters by name, and all else by the names above."""
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


def exported(model: Model) -> Exported:
    """What a model does. ValueError for a policy that is more than dense layers."""
    spec = model.policy_spec
    if not isinstance(spec, PolicySpec) or not all(isinstance(layer, Dense) for layer in spec.layers):
        is_torch = isinstance(spec, TorchSpec)
        module = "model.policy_spec.module_with(model.theta) is its module"
        instead = module if is_torch else "policy.state_dict() has its parameters under torch's names"
        raise ValueError(
            f"a {model.settings.policy} is more than dense layers and cannot be exported: expected an MlpPolicy or a "
            f"LinearPolicy. {instead}"
        )
    named = named_parameters(spec, model.theta)
    layers = [(named[f"layers.{i}.weight"], named.get(f"layers.{i}.bias")) for i in range(len(spec.layers))]
    normalizer = model.normalizer if model.settings.normalize_obs else None
    return Exported(
        spec.obs_shape,
        np.array(spec.columns, dtype=np.int64) if spec.columns else None,
        None if normalizer is None else normalizer.mean,
        None if normalizer is None else normalizer.std,
        0.0 if normalizer is None else normalizer.clip,
        layers,
        spec.layers[0].activation if len(layers) > 1 else "tanh",
        spec.head,
    )
