"""Builds fastes._core; everything else about the package is in pyproject.toml.

Run by another name than __main__ it builds nothing: `fastes doctor` reads source_hash.
"""

import hashlib
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    raise SystemExit("FastES needs GCC's vector extensions and POSIX shared memory: build it on Linux, macOS or in WSL.")

SOURCES = [
    "scalar.c",
    "variant_baseline.c",
    "variant_avx2.c",
    "variant_avx512.c",
    "variant_neon.c",
    "native_episode.c",
    "classic_control.c",
    "mujoco_tasks.c",
]

HEADER = "fastes/include/fastes_env.h"

SAME_BITS = ["-ffp-contract=off", "-fno-fast-math"]  # in every variant: no contraction, no reassociation
# -O3: the kernels rely on vectorised loops. No errno: square roots are then instructions, with the same bits.
FLAGS = ["-O3", "-g0", "-std=gnu11", *SAME_BITS, "-fno-math-errno", "-Wno-psabi", "-Wno-unknown-pragmas"]


def source_hash(folder: Path = Path("src")) -> str:
    """Of all that the core is compiled from: results depend on it, and each machine of a cluster may have built its own."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted([*folder.iterdir(), folder.parent / HEADER], key=lambda path: path.name):
        if path.suffix in (".c", ".h", ".inc", ".pyx", ".pxi", ".pxd"):
            digest.update(f"\n{path.name}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def index_page(readme: str, repository: str = "") -> str:
    """README.md for the package index, which has none of its files: links lead to the repository, or are no links.

    Without an address there are no pictures either.
    """

    def moved(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if repository:
            return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/HEAD/{path})"
        return "" if picture else words

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", moved, readme)


def repository() -> str:
    """Its address as pyproject.toml has it in [project.urls]; "" without."""
    found = re.search(r'^Repository = "(.+?)/?"$', Path("pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    import numpy as np
    from Cython.Build import cythonize
    from setuptools import Extension, setup
    from setuptools.command.build_ext import build_ext

    class BuildTogether(build_ext):
        """Compiles the files side by side: it takes half the time on two cores."""

        def build_extensions(self) -> None:
            compile_in_turn = self.compiler.compile

            def compile_together(sources: list[str], **settings: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    objects = pool.map(lambda source: compile_in_turn([source], **settings), sources)
                    return [path for paths in objects for path in paths]

            self.compiler.compile = compile_together
            super().build_extensions()

    core = Extension(
        "fastes._core",
        sources=["src/_core.pyx", *(f"src/{name}" for name in SOURCES)],
        depends=[HEADER, *(str(path) for path in sorted(Path("src").iterdir()) if path.suffix in (".h", ".inc"))],
        include_dirs=["src", "fastes/include", np.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("FASTES_SOURCE_HASH", f'"{source_hash()}"')],
        extra_compile_args=FLAGS,
    )

    setup(
        cmdclass={"build_ext": BuildTogether},
        ext_modules=cythonize([core], build_dir="build/cython", include_path=["src"]),
        long_description=index_page(Path("README.md").read_text(encoding="utf-8"), repository()),
        long_description_content_type="text/markdown",
    )
