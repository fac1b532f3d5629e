"""Dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from fastes.policies.layers.layer import IDENTITY, Weighted, check_sizes


@dataclass(frozen=True)
class Dense(Weighted):
    """outputs = activation(inputs . weight (inputs, outputs) + bias (outputs,))."""

    kind: ClassVar[str] = "dense"
    inputs: int
    outputs: int
    activation: str
    use_bias: bool

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.inputs, self.outputs

    def check(self) -> None:
        check_sizes(self, "inputs", "outputs")


def dense_layers(sizes: Sequence[int], activation: str, use_bias: bool) -> tuple[Dense, ...]:
    """Dense layers between inputs, hidden sizes and outputs; the last one's outputs stay as they are."""
    pairs = list(pairwise(sizes))
    activations = [activation] * (len(pairs) - 1) + [IDENTITY]
    return tuple(Dense(*pair, of_pair, use_bias) for pair, of_pair in zip(pairs, activations, strict=True))
