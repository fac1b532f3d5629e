"""fastes doctor: report on this machine, what works, and the commands that install the rest.

Importing this module needs only the standard library: it has to work if another package cannot be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import runpy
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fastes import __version__
from fastes.cli.extras import needed, optional_parts
from fastes.errors import first_few
from fastes.system.console import fill_standard_descriptors, say_beside
from fastes.system.installation import CPU_TORCH, WAYS, has_libraries, install_command, package_root, packages_command
from fastes.system.limits import affinity_cpus, available_cpus, available_memory, cpu_quota, in_bytes, memory_limit

SECONDS = 150.0  # for all tries together, on a busy machine
BOOT = "import sys; sys.path[:] = {path!r}; from fastes.cli.doctor_tries import answer; answer({name!r})"


class Row(NamedTuple):
    """A line of the report. broken: whether training needs the part, and it is missing or does not work."""

    name: str
    text: str
    broken: bool = False


def add_doctor(commands: Any) -> None:
    commands.add_parser(
        "doctor",
        help="what this machine has for FastES, what of it works, and what installs the rest",
        description="Say which versions, cores, memory and libraries there are, try what FastES uses, each in a process of its "
        "own, and name the command that installs each optional part that is missing. The exit status is 0 when all that "
        "training needs works, and else 1; drawing and optional parts do not count.",
    )


def main() -> int:
    """Report if fastes.cli.main cannot be imported."""
    fill_standard_descriptors()
    return run_doctor(argparse.Namespace())


def run_doctor(arguments: argparse.Namespace) -> int:  # noqa: ARG001
    print(f"FastES {__version__} in {package_root()}")
    broken: list[str] = []
    with folder_to_write() as folder, Tries(folder) as tries:
        for title, rows in (
            ("Versions", versions()),
            ("This machine", machine()),
            ("Training", training(tries)),
            ("Drawing", drawing(tries)),
            ("Optional parts", optional()),
        ):
            found = list(rows)
            _show(title, found)
            broken += [row.name for row in found if row.broken]
    print(f"\nBroken: {', '.join(broken)}" if broken else "\nAll that training needs works.")
    return 1 if broken else 0


def _show(title: str, rows: list[Row]) -> None:
    width = max(len(row.name) for row in rows)
    print(f"\n{title}")
    for row in rows:
        say_beside(f"  {row.name.ljust(width)}  ", f"{'BROKEN: ' if row.broken else ''}{row.text}")
    sys.stdout.flush()


def versions() -> Iterator[Row]:
    """Yield the rows of Python, the system, and the packages that FastES needs."""
    threads = ", free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    yield Row("Python", f"{platform.python_version()}, {platform.python_implementation()}{threads}, {sys.executable}")
    yield Row("system", f"{_distribution()}{platform.system()} {platform.release()}, {platform.machine()}, {_libc()}")
    try:
        packages = needed()
    except metadata.PackageNotFoundError:
        yield Row("packages", "not known: FastES was not installed with pip")
        return
    for package in packages:
        command = f"pip install '{package.name}{package.wanted}'"
        lacks = f"{package.there} is there, {package.wanted} is needed: {command}" if package.there else f"missing: {command}"
        yield Row(package.name, package.there if package.suffices else lacks, broken=not package.suffices)


def _distribution() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, "
    except (OSError, KeyError):
        return ""


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "an unknown libc"
    except (AttributeError, ValueError, OSError):  # musl, macOS
        return " ".join(part for part in platform.libc_ver() if part) or "no glibc"


def machine() -> Iterator[Row]:
    """Yield the rows of the machine's limits: cores, memory, open files, and whether this folder can be written."""
    quota = cpu_quota()
    limit = "no quota of a container" if quota is None else f"a quota of {quota:g} of the container"
    yield Row("cores", f"{available_cpus()} allowed: {affinity_cpus()} in the affinity mask, {limit}")
    left, most = available_memory(), memory_limit()
    of = "" if most is None else f", of {in_bytes(most)} that the container may have"
    yield Row("memory", "not known: there is no /proc" if left is None else f"{in_bytes(left)} left{of}")
    soft, hard = (str(n) if n != resource.RLIM_INFINITY else "unlimited" for n in resource.getrlimit(resource.RLIMIT_NOFILE))
    yield Row("open files", f"{soft} at most (`ulimit -n`, hard limit {hard}); a worker takes 3")
    writable = os.access(os.curdir, os.W_OK)
    yield Row("this folder", "can be written" if writable else "cannot be written: choose another for run folders with --runs")


def training(tries: Tries) -> Iterator[Row]:
    """Yield the rows of the parts without which no training works."""
    try:
        yield check_sources()
    except Exception as error:  # a core for another Python, or one that does not load
        yield Row("core", f"{type(error).__name__}: {error}", broken=True)
    for name in ("kernels", "shared memory", "training"):
        works, text = tries.result(name)
        yield Row(name, text, broken=not works)


def check_sources() -> Row:
    """Check that the core is compiled from the sources next to the package, if there are any."""
    from fastes import _core

    root = Path(package_root())
    if not ((root / "src" / "_core.pyx").is_file() and (root / "setup.py").is_file()):
        return Row("core", f"built from sources {_core.SOURCE_HASH}")
    wanted = runpy.run_path(str(root / "setup.py"))["source_hash"](root / "src")
    if wanted == _core.SOURCE_HASH:
        return Row("core", f"built from sources {_core.SOURCE_HASH}, as they are in {root}")
    return Row("core", f"built from sources {_core.SOURCE_HASH}, and those in {root} are {wanted}: build it again", broken=True)


def drawing(tries: Tries) -> Iterator[Row]:
    """Yield the rows of what draws frames and encodes videos; none is broken, because training draws nothing."""
    for name, way in ways_to_draw():
        yield Row(name, tries.told(name, "mujoco", "mujoco", way))
    yield Row("classic control", tries.told("classic control", "pygame", "video"))
    yield Row("video", tries.told("video", "imageio_ffmpeg", "video"))


def ways_to_draw() -> list[tuple[str, str]]:
    """Return the name of a row and MUJOCO_GL of each possible way of drawing; '' for MuJoCo's own choice."""
    if sys.platform != "linux" or not find_spec("mujoco"):
        return [("MuJoCo", "")]
    chosen = os.environ.get("MUJOCO_GL")
    ways = [*WAYS, *([chosen] if chosen and chosen not in WAYS else [])]
    if not os.environ.get("DISPLAY") and chosen != "glfw":
        ways.remove("glfw")
    return [(f"MuJoCo, {way}{' (MUJOCO_GL)' if way == chosen else ''}", way) for way in ways]


def optional() -> Iterator[Row]:
    """Yield the rows of the extras: their packages, or the command that installs them."""
    try:
        parts = optional_parts()
    except metadata.PackageNotFoundError:
        yield Row("extras", "not known: FastES was not installed with pip")
        return
    try:
        yield Row("torch", metadata.version("torch"))
    except metadata.PackageNotFoundError:
        yield Row("torch", f"missing: {CPU_TORCH} (before an extra that brings torch, which would be the build for GPUs)")
    for part in parts:
        lacks = [f"{name}{wanted if there else ''}" for name, wanted, there in part.missing]
        has = [f"{name} {there}" for name, _, there in part.packages]
        yield Row(part.extra, f"missing {first_few(lacks)}: {install_command(part.extra)}" if lacks else first_few(has))


class Tries:
    """Processes that try things side by side. Leaving the context ends them.

    Args:
        folder: For their files.

    Attributes:
        until: The time (`time.monotonic`) at which those that have not ended are given up.
        processes: Name of a row -> the process that tries it, or the reason that none could be started.
    """

    def __init__(self, folder: str) -> None:
        self.until = time.monotonic() + SECONDS
        self.processes: dict[str, subprocess.Popen[bytes] | OSError] = {}
        path = [os.path.abspath(entry) for entry in sys.path]  # they run in another folder
        for name in ("kernels", "shared memory", "training"):
            self._start(name, name, path, folder, {})
        for name, way in ways_to_draw() if find_spec("mujoco") else ():
            self._start(name, "mujoco", path, folder, {"MUJOCO_GL": way} if way else {})
        if find_spec("pygame"):
            self._start("classic control", "classic control", path, folder, {"SDL_VIDEODRIVER": "dummy"})
        if find_spec("imageio_ffmpeg"):
            self._start("video", "video", path, folder, {})

    def _start(self, row: str, name: str, path: list[str], folder: str, env: Mapping[str, str]) -> None:
        command = [sys.executable, "-c", BOOT.format(path=path, name=name)]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            self.processes[row] = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, **streams)
        except OSError as error:  # there may be no more processes
            self.processes[row] = error

    def __enter__(self) -> Tries:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if not isinstance(process, OSError):
                process.kill()
                process.communicate()

    def told(self, row: str, module: str, extra: str, way: str = "") -> str:
        """Return the result of a try that needs a module of an extra, in words. way: MuJoCo's way of drawing."""
        if row not in self.processes:
            return f"needs {module}: {install_command(extra)}"
        works, text = self.result(row)
        if works:
            choose = f"; MUJOCO_GL={way} chooses it" if way and way != "egl" else ""
            return f"works: {text}{choose}"
        if way not in WAYS or isinstance(self.processes[row], OSError):
            return f"no: {text}"
        lacks = f"{text}; it may lack a driver" if has_libraries(way) else "its libraries are not there"
        return f"no: {lacks}: {packages_command(way)}"

    def result(self, row: str) -> tuple[bool, str]:
        """Return whether a try worked, and what it found or what went wrong."""
        process = self.processes[row]
        if isinstance(process, OSError):
            return False, f"no process could be started to try it: {process}"
        try:
            out, err = process.communicate(timeout=max(0.1, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False, f"it has not ended after {SECONDS:.0f} s"
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
            said = json.loads(out.splitlines()[-1])
            return bool(said["works"]), " ".join(str(said["text"]).split())
        return False, _end_of(process.returncode, err)


def _end_of(status: int, err: bytes) -> str:
    """Return how a process has ended that printed no result."""
    how = f"exit status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):  # a signal without a name
            how = signal.Signals(-status).name
    last = err.decode(errors="replace").strip().splitlines()[-1:]
    return f"the process that tried it ended with {how}{f' ({last[0]})' if last else ''}"


@contextlib.contextmanager
def folder_to_write() -> Iterator[str]:
    """Yield a folder for a library's files, or the root if no folder can be written."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="fastes-doctor-", ignore_cleanup_errors=True)
    except OSError:
        yield "/"
        return
    with folder:
        yield folder.name
