"""Convolutions, and the layer behind them that appends the values that are not part of the image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastes import _core
from fastes.policies.layers.layer import MOST_VALUES, Feedforward, Float32, Weighted, check_sizes


@dataclass(frozen=True)
class Convolution(Weighted):
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

    def check(self) -> None:
        check_sizes(self, "height", "width", "channels", "filters", "kernel", "stride")
        if self.kernel > min(self.height, self.width):
            raise ValueError(f"a kernel of {self.kernel} x {self.kernel} does not fit a map of {self.height} x {self.width}")
        check_sizes(self, "inputs", "outputs")
        if math.prod(self.weight_shape) > MOST_VALUES:
            raise ValueError(f"{self} has more than {MOST_VALUES} weights")


@dataclass(frozen=True)
class ImageConvolution(Convolution):
    """The same of an image that lies in an observation of any dtype.

    first: the number of its first value in the flat observation.
    planes: it lies there as (planes, height, width, channels / planes): 1 where the channels are the last dimension, as many as
        channels if they are the first, and the number of images for a stack of images whose channels are the last.
    divisor: of its values, 255 for bytes that become 0 to 1.
    """

    kind: ClassVar[str] = "image_convolution"
    reads_image: ClassVar[bool] = True
    first: int
    planes: int
    divisor: int

    @property
    def strip_rows(self) -> int:
        """Rows of outputs that are made at a time, of a strip of the image that is held as floats."""
        most = (_core.STRIP_VALUES // (self.width * self.channels) - self.kernel) // self.stride + 1
        return min(max(most, 1), self.rows)

    @property
    def strip_size(self) -> int:
        """Values of that strip."""
        return self.width * self.channels * ((self.strip_rows - 1) * self.stride + self.kernel)

    def check(self) -> None:
        super().check()
        check_sizes(self, "planes", "divisor")
        if self.channels % self.planes:
            raise ValueError(f"{self.channels} channels do not lie in {self.planes} planes of an image")
        if not 0 <= self.first <= MOST_VALUES:
            raise ValueError(f"first = {self.first!r:.100} of an image is out of range: expected 0 to {MOST_VALUES}")


@dataclass(frozen=True)
class Append(Feedforward):
    """Appends the values that a policy observes in addition to an image: inputs -> (inputs + appended,)."""

    kind: ClassVar[str] = "append"
    inputs: int
    appended: int
    activation: str

    @property
    def outputs(self) -> int:
        return self.inputs + self.appended

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def scale_normals(self, parameters: Mapping[str, Float32], gain: float) -> None:
        """It has no parameters."""

    def check(self) -> None:
        check_sizes(self, "inputs", "appended", "outputs")
