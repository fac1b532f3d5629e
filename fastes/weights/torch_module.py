"""A policy as a torch module that gives its actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fastes.weights.exported import Exported

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "elu": torch.nn.functional.elu}


class ActionModule(torch.nn.Module):  # type: ignore[misc]
    """Maps observations (n, *obs_shape) of any dtype to actions (n, *action shape), as `predict(deterministic=True)` does.

    Its parameters have the names of `policy.state_dict()`: `layers.0.weight` and so on. Statistics of observations and
    bounds of actions are buffers outside its state_dict.
    """

    def __init__(self, of: Exported) -> None:
        super().__init__()
        self.head, self.activation, self.clip = of.head, _ACTIVATIONS[of.activation], of.clip
        self.obs_shape = of.obs_shape
        self.layers = torch.nn.ModuleList()
        for weight, bias in of.layers:
            # skip torch's initial values, which would be drawn from its global random state
            layer = torch.nn.utils.skip_init(torch.nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
            layer.load_state_dict({"weight": torch.tensor(weight)} | ({} if bias is None else {"bias": torch.tensor(bias)}))
            self.layers.append(layer)
        self._keep("columns", of.columns)
        self._keep("mean", of.mean)
        self._keep("inverse_std", None if of.std is None else 1.0 / of.std)
        for name, values in zip(("scale", "shift"), of.head.spans(), strict=True):
            self._keep(name, values)
        self._keep("low", np.array(of.head.low))
        self._keep("high", np.array(of.head.high))
        self._keep("start", np.array(of.head.start, dtype=np.int64))

    def _keep(self, name: str, values: Any) -> None:
        self.register_buffer(name, None if values is None else torch.tensor(values), persistent=False)

    def forward(self, observation: Any) -> Any:
        if not torch.jit.is_tracing() and math.prod(observation.shape[1:]) != math.prod(self.obs_shape):
            rows = ", ".join(map(str, ("n", *self.obs_shape)))
            raise ValueError(f"observation has shape {tuple(observation.shape)}: expected a batch ({rows})")
        x = observation.reshape(observation.shape[0], -1).double()
        if self.columns is not None:
            x = x[:, self.columns]
        if self.mean is not None:
            x = ((x - self.mean) * self.inverse_std).clamp(-self.clip, self.clip)
        x = x.float()
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self._actions(self.layers[-1](x))

    def _actions(self, y: Any) -> Any:
        head, shape = self.head, (y.shape[0], *self.head.shape)
        if head.kind == "categorical":
            chosen = torch.stack([part.argmax(dim=1) for part in y.split(list(head.nvec), dim=1)], dim=1) + self.start
            return chosen.reshape(shape).to(getattr(torch, head.cast or head.dtype))
        if head.kind == "binary":
            return (y > 0.0).to(torch.int8).reshape(shape)
        if head.kind == "bins":
            y = y.reshape(y.shape[0], head.size, head.num_bins).argmax(dim=2).double() / (head.num_bins - 1) * 2.0 - 1.0
        y = (torch.tanh(y) if head.kind == "squash" else y).double()
        return (y * self.scale + self.shift).clamp(self.low, self.high).to(getattr(torch, head.dtype)).reshape(shape)
