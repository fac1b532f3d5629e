"""The NumPy twins of the C core, which live among the tests: benchmarks run from a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))

from twins import numpy_kernels
from twins.same_bits import assert_same_bits

__all__ = ["assert_same_bits", "numpy_kernels"]
