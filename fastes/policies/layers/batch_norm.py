"""Virtual batch normalisation (Salimans et al. 2016, section 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastes.policies.layers.layer import Feedforward, Float32, check_sizes

REFERENCE_SIZE = 128  # observations of a reference batch (Salimans et al. 2017; released code of Such et al. 2017)


@dataclass(frozen=True)
class VirtualBatchNorm(Feedforward):
    """gamma (x - mean) / sqrt(variance + 0.001) + beta by channel, x of (inputs / channels, channels) values.

    Mean and variance are those of a reference batch of observations under the present parameters: they are constants of an
    episode, and a value's normalisation does not depend on what else is played.
    """

    kind: ClassVar[str] = "virtual_batch_norm"
    inputs: int
    channels: int
    activation: str

    @property
    def outputs(self) -> int:
        return self.inputs

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        return {"gamma": (self.channels,), "beta": (self.channels,)}

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:  # noqa: ARG002
        """First parameters, in place: gamma 1, beta 0."""
        parameters["gamma"][:] = 1.0
        parameters["beta"][:] = 0.0

    def check(self) -> None:
        check_sizes(self, "inputs", "channels")
        if self.inputs % self.channels:
            raise ValueError(f"{self.inputs} values are no multiple of {self.channels} channels")
