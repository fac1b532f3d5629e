"""Builds fastes._core; everything else about the package is in pyproject.toml."""

import sys
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    raise SystemExit("FastES needs GCC's vector extensions and POSIX shared memory: build it on Linux, macOS or in WSL.")

SOURCES = ["scalar.c", "variant_baseline.c", "variant_avx2.c", "variant_avx512.c"]
DEPENDS = sorted(str(path) for path in Path("src").iterdir() if path.suffix in (".h", ".inc"))  # in every variant

SAME_BITS = ["-ffp-contract=off", "-fno-fast-math"]  # in every variant: no contraction, no reassociation

core = Extension(
    "fastes._core",
    sources=["src/_core.pyx", *(f"src/{name}" for name in SOURCES)],
    depends=DEPENDS,
    include_dirs=["src", np.get_include()],
    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
    # -O3: the kernels rely on vectorised loops. No errno: square roots are then instructions, with the same bits.
    extra_compile_args=["-O3", "-g0", "-std=gnu11", *SAME_BITS, "-fno-math-errno", "-Wno-psabi", "-Wno-unknown-pragmas"],
)

setup(ext_modules=cythonize([core], build_dir="build/cython", include_path=["src"]))
