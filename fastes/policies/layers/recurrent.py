"""Recurrent cells: layers whose outputs are what they remember."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastes.policies.layers.layer import IDENTITY, MOST_VALUES, Float32, check_sizes


@dataclass(frozen=True)
class Cell:
    """Base of cells: weight (inputs + outputs, gates * outputs) for inputs and memory, bias (4 * outputs,).

    gates: blocks of outputs values in a row of weight.
    remembered: blocks of outputs values that it remembers: the outputs, and others.
    kept: the block of the bias that keeps the memory if it is large.
    in_scratch: blocks of outputs values that it needs room for in addition to inputs and outputs.
    """

    kind: ClassVar[str]
    gates: ClassVar[int]
    remembered: ClassVar[int]
    kept: ClassVar[int]
    in_scratch: ClassVar[int]
    activation: ClassVar[str] = IDENTITY
    reads_image: ClassVar[bool] = False
    inputs: int
    outputs: int

    @property
    def state_size(self) -> int:
        return self.remembered * self.outputs

    @property
    def scratch_size(self) -> int:
        return self.in_scratch * self.outputs

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        return {"weight": (self.inputs + self.outputs, self.gates * self.outputs), "bias": (4 * self.outputs,)}

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:
        """Turn standard normals into first parameters, in place: weights N(0, gain^2 / (inputs + outputs)), biases zero.

        The bias that keeps the memory is 1 (Gers et al. 2000; Jozefowicz et al. 2015): with 0 half of it would be lost at
        every step, so that no perturbation of what is written at an episode's start would change its return.
        """
        weight, bias = parameters["weight"], parameters["bias"]
        weight *= np.float32(gain * (1.0 / math.sqrt(self.inputs + self.outputs)))
        bias[:] = 0.0
        bias[self.kept * self.outputs : (self.kept + 1) * self.outputs] = 1.0

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")
        if self.outputs > (most := MOST_VALUES // 6):
            raise ValueError(f"outputs = {self.outputs} of a {self.kind} layer is out of range: expected 1 to {most}")


@dataclass(frozen=True)
class Lstm(Cell):
    """Gates i, f, g, o; c = sigmoid(f) c + sigmoid(i) tanh(g), outputs h = sigmoid(o) tanh(c). It remembers h and c.

    Torch's nn.LSTMCell with weight = [weight_ih.T; weight_hh.T] and bias = bias_ih + bias_hh.
    """

    kind: ClassVar[str] = "lstm"
    gates: ClassVar[int] = 4
    remembered: ClassVar[int] = 2
    kept: ClassVar[int] = 1
    in_scratch: ClassVar[int] = 4


@dataclass(frozen=True)
class Gru(Cell):
    """Gates r, z, n; n = tanh(n of inputs + sigmoid(r) n of h), outputs h = (1 - sigmoid(z)) n + sigmoid(z) h.

    Torch's nn.GRUCell with weight = [weight_ih.T; weight_hh.T]; bias is bias_ih + bias_hh of r and z, bias_ih of n,
    bias_hh of n.
    """

    kind: ClassVar[str] = "gru"
    gates: ClassVar[int] = 3
    remembered: ClassVar[int] = 1
    kept: ClassVar[int] = 1
    in_scratch: ClassVar[int] = 6


CELLS: dict[str, type[Lstm] | type[Gru]] = {cell.kind: cell for cell in (Lstm, Gru)}
