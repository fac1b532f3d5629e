"""Builds fastes._core; everything else about the package is in pyproject.toml."""

import sys

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    raise SystemExit("FastES needs GCC's vector extensions and POSIX shared memory: build it on Linux, macOS or in WSL.")

SOURCES = ["scalar.c", "variant_baseline.c", "variant_avx2.c", "variant_avx512.c"]
HEADERS = ["fastes_core.h", "lanes.h", "lanes.inc", "kernels.inc", "noise.c", "stats.c", "policy.c"]

SAME_BITS = ["-ffp-contract=off", "-fno-fast-math"]  # in every variant: no contraction, no reassociation

core = Extension(
    "fastes._core",
    sources=["src/_core.pyx", *(f"src/{name}" for name in SOURCES)],
    depends=[f"src/{name}" for name in HEADERS],
    include_dirs=["src", np.get_include()],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
    # -O3: the kernels rely on vectorised loops. No errno: square roots are then instructions, with the same bits.
    extra_compile_args=["-O3", "-g0", "-std=gnu11", *SAME_BITS, "-fno-math-errno", "-Wno-psabi", "-Wno-unknown-pragmas"],
)

setup(ext_modules=cythonize([core], build_dir="build/cython"))
