"""The compiled environments of native_envs.c, and of any other file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import fastes

HERE = Path(__file__).resolve().parent
COMPILER = next((each for each in ("cc", "gcc", "clang") if shutil.which(each)), "")
needs_compiler = pytest.mark.skipif(not COMPILER, reason="there is no C compiler")


def compiled(source: Path, folder: Path) -> str:
    """Compile a file as docs/guide/native.md says; return the library's path."""
    library = folder / f"{source.stem}.so"
    command = [COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{fastes.get_include()}"]
    subprocess.run([*command, str(source), "-o", str(library), "-lm"], check=True, timeout=120)
    return str(library)
