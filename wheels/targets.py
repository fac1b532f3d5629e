"""What a wheel is built for: a Python, and a platform with its compiler. A new platform is a line of PLATFORMS."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from argparse import ArgumentTypeError
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class Platform(NamedTuple):
    """name: for the command line. tag: the wheel's. triplet: the end of the core's file name, as its Pythons say it.

    compiler: the command that makes code for it, and Debian's package of that.
    newest_glibc: the version of the newest symbol that the core may need; with another C library it may need none.
    libc: what Pythons of the platform call the C library, where the compiler calls it libc.so.
    """

    name: str
    tag: str
    triplet: str
    compiler: str
    package: str
    newest_glibc: tuple[int, int] | None = None
    libc: str | None = None

    @property
    def machine(self) -> str:
        """As platform.machine() has it."""
        return self.triplet.partition("-")[0]

    def compiler_for(self, python: Python) -> str:
        """What a build by a Python of this machine compiles with: $CC's compiler, where that makes code for the platform."""
        return os.environ.get("CC") or self.compiler if self.triplet == python.triplet else self.compiler

    def build_env(self, python: Python) -> dict[str, str]:
        """What a build by a Python of this machine needs in its environment to be one for this platform."""
        compiler = {"CC": self.compiler_for(python)}
        if self.triplet == python.triplet:
            return compiler
        return {
            **compiler,
            "LDSHARED": f"{self.compiler} -shared -s",
            "SETUPTOOLS_EXT_SUFFIX": f".cpython-{python.digits}-{self.triplet}.so",
            "_PYTHON_HOST_PLATFORM": f"linux-{self.machine}",
        }


# Of glibc the core needs little, and all of it is old: the machine's own compiler and library do for manylinux. What it needs
# is read from each wheel that is built, so that another library cannot change this unseen.
PLATFORMS = {
    each.name: each
    for each in (
        Platform("manylinux_x86_64", "manylinux_2_17_x86_64", "x86_64-linux-gnu", "cc", "gcc", newest_glibc=(2, 17)),
        Platform(
            "musllinux_x86_64",
            "musllinux_1_2_x86_64",
            "x86_64-linux-musl",
            "musl-gcc",
            "musl-tools",
            libc="libc.musl-x86_64.so.1",
        ),
    )
}


class Python(NamedTuple):
    """An interpreter of this machine. digits: 313, or 313t without a GIL. triplet: as Platform's."""

    path: Path
    digits: str
    triplet: str

    @property
    def tag(self) -> str:
        return f"cp{self.digits}"


_ASK = """
import json, sys, sysconfig
version = f"{sys.version_info[0]}{sys.version_info[1]}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}"
print(json.dumps([version, sysconfig.get_config_var("EXT_SUFFIX").split(".")[1].split("-", 2)[2]]))
"""


def python_at(path: Path) -> Python | None:
    """The interpreter that is there, if it runs."""
    try:
        done = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True)
    except OSError:
        return None
    return Python(path, *json.loads(done.stdout)) if done.returncode == 0 else None


def interpreter(path: str) -> Python:
    """What an option names; for argparse."""
    found = python_at(Path(path))
    if found is None:
        raise ArgumentTypeError(f"{path!r} is no Python that runs here")
    return found


def find_pythons(versions: Iterable[str] = VERSIONS) -> list[Python]:
    """One of each version: the first that runs of those on PATH and those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = []
    for version in versions:
        on_path = shutil.which(f"python{version}")
        places = [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"*/bin/python{version}"))]
        found += [python for python in map(python_at, places) if python][:1]
    return found


class Target(NamedTuple):
    """builder: the Python whose headers the wheel is built with. runner: one that can import it, if it is here."""

    builder: Python
    platform: Platform
    runner: Python | None

    @property
    def compiler(self) -> str:
        return self.platform.compiler_for(self.builder)


def make_targets(pythons: list[Python], platforms: Iterable[Platform]) -> list[Target]:
    """Every Python on every platform. A version's builder is this machine's own Python of it."""
    own = f"{platform.machine()}-linux-gnu"
    builders = [python for python in pythons if python.triplet == own]
    runners = {(python.digits, python.triplet): python for python in pythons}
    return [Target(builder, each, runners.get((builder.digits, each.triplet))) for builder in builders for each in platforms]
