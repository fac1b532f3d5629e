"""The source distribution, proven: it has every file of the checkout, and its tests pass where nothing else is.

    python -m wheels.sdist                                  newest versions of everything (make sdist)
    python -m wheels.sdist --lowest --python python3.10     the lowest that pyproject.toml allows (make lowest)
    python -m wheels.sdist -- tests/cli/test_cli.py -x          what follows -- goes to pytest; all tests without it

It is unpacked in an empty folder. A wheel is built of it, compared with one of the checkout, and installed in a fresh
environment, in which the tests of the unpacked folder run. With --lowest, whatever pyproject.toml gives a lower bound has
that version: what builds the wheel, what FastES needs, and the extras.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

from wheels.build import ROOT, TOOLS, WheelError, build_requirements, build_sdist, build_wheel, run, tool_env
from wheels.prove import make_environment
from wheels.targets import interpreter

MADE = re.compile(r"PKG-INFO|setup\.cfg|fastes\.egg-info/.+")  # by setuptools, in a source distribution
_BOUND = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])? ?>=([\d.]+)[^;]*(;.+)?$")


def main() -> None:
    given = read_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = build_sdist(folder / "sdist")
        if (ROOT / ".git").exists():
            check_files(archive)
        shutil.unpack_archive(archive, folder)
        unpacked = folder / archive.name.removesuffix(".tar.gz")
        versions = pins(build_requirements()) if given.lowest else []
        if versions:
            print("built with", *versions, flush=True)
        wheel = build_wheel(unpacked, given.python, folder / "of_sdist", versions=versions)
        if not given.lowest and (ROOT / ".git").exists():
            compare(wheel, build_wheel(copy_of_checkout(folder / "checkout"), given.python, folder / "of_checkout"))
        test(wheel, unpacked, given)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m wheels.sdist", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", type=interpreter, default=sys.executable, help="interpreter of the environments (default: this one)"
    )
    parser.add_argument("--lowest", action="store_true", help="install lower bounds")
    parser.add_argument("--extras", default="test", help="extras of the environment, separated by commas (default: test)")
    parser.add_argument("--also", nargs="*", default=[], metavar="REQUIREMENT", help="more to install")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    return parser.parse_args()


def check_files(archive: Path) -> None:
    """WheelError unless the archive has what is under version control, and nothing else."""
    expected = set(files_of_checkout())
    with tarfile.open(archive) as file:
        found = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    lost, more = sorted(expected - found), sorted(name for name in found - expected if not MADE.fullmatch(name))
    if lost or more:
        raise WheelError(f"MANIFEST.in and version control differ: the sdist lacks {lost}, and version control lacks {more}")
    print(f"{archive.name}: {len(found)} files, {archive.stat().st_size / 1e6:.1f} MB, each under version control", flush=True)


def copy_of_checkout(target: Path) -> Path:
    """Files under version control alone: an older build leaves modules in build/, and they would enter a wheel."""
    for name in files_of_checkout():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


def files_of_checkout() -> list[str]:
    """Under version control, and there."""
    return [name for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0") if name and (ROOT / name).exists()]


def compare(wheel: Path, other: Path) -> None:
    """WheelError unless both have the same files, and each file the same bytes. RECORD follows from them."""
    first, second = contents(wheel), contents(other)
    if different := sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)):
        raise WheelError(f"wheels of the sdist and of the checkout differ in {different}")
    print(
        f"{wheel.name}: {len(first)} files, {wheel.stat().st_size / 1e6:.2f} MB, the same bytes as of the checkout", flush=True
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test(wheel: Path, unpacked: Path, given: argparse.Namespace) -> None:
    constraints = unpacked.parent / "lowest.txt"
    constraints.write_text("\n".join(pins(required_by(wheel, given.extras.split(","))) if given.lowest else []) + "\n")
    packages = ["--constraint", constraints, f"fastes[{given.extras}] @ {wheel.as_uri()}", *given.also]
    python = make_environment(given.python, unpacked.parent / "env", *packages, env=tool_env(), wheels_only=True)
    print(run(TOOLS / "uv", "pip", "list", "--format=freeze", "--python", python, env=tool_env()), end="", flush=True)
    env = tool_env(PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    run(python.parent / "pytest", *given.pytest, cwd=unpacked, env=env, shown=True)


def required_by(wheel: Path, extras: Iterable[str]) -> list[str]:
    """What a wheel asks for with these extras, and with those that they name. What an extra asks for has lost its markers."""
    with ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        requirements = message_from_bytes(file.read(name)).get_all("Requires-Dist", [])
    chosen, pending = set(), set(extras)
    found = [requirement for requirement in requirements if "extra ==" not in requirement]
    while pending:
        extra = pending.pop()
        chosen.add(extra)
        asked = [requirement for requirement in requirements if re.search(rf"extra == .{extra}\b", requirement)]
        found += asked
        for requirement in asked:
            if own := re.match(r"fastes\[(.+?)\]", requirement):
                pending |= set(own[1].split(",")) - chosen
    return [requirement.partition(";")[0].strip() if "extra ==" in requirement else requirement for requirement in found]


def pins(requirements: Iterable[str]) -> list[str]:
    """name==lowest version; the highest of these where a package is asked for more than once."""
    lowest: dict[str, tuple[str, str]] = {}
    for requirement in requirements:
        if found := _BOUND.match(requirement):
            name, version, marker = found[1], found[2], found[3] or ""
            lowest[name] = max(
                lowest.get(name, ("0", "")), (version, marker), key=lambda pin: [int(part) for part in pin[0].split(".")]
            )
    return [f"{name}=={version}{marker}" for name, (version, marker) in lowest.items()]


if __name__ == "__main__":
    main()
