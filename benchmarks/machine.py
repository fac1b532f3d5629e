"""The machine and versions of a measurement: `python -m benchmarks.machine` prints them. Names no host, user or path."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path

import fastes
from fastes import _core
from fastes.system.limits import available_cpus

PACKAGES = ("numpy", "gymnasium", "mujoco", "torch", "stable-baselines3", "sb3-contrib")


def cpu_model() -> str:
    """The CPU's name, or its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cpus(cores: int | None) -> tuple[int, ...]:
    """The first `cores` CPUs that this process may use, None for as many as it is allowed at once.

    Raises ValueError for more than there are.
    """
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    allowed = available_cpus()
    if cores is not None and not 1 <= cores <= allowed:
        raise ValueError(f"--cores {cores}: this process may use 1 to {allowed}")
    return tuple(found[: cores or allowed])


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def system() -> str:
    """Distribution, or what the platform module says of other systems."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def versions(*more: str) -> str:
    """FastES, Python and the installed packages that speed and results depend on, then those that are named."""
    found = [f"fastes {fastes.__version__}", f"python {platform.python_version()}"]
    for package in (*PACKAGES, *more):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def describe() -> str:
    """Machine and versions on one line."""
    hardware = f"{cpu_model()}, usable cores: {available_cpus()}, {memory_gib():.0f} GiB"
    return f"{hardware}, {system()}, {_core.variant()} kernels; {versions()}"


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.machine", description=__doc__).parse_args()
    print(describe())


if __name__ == "__main__":
    main()
