"""The source distribution, proven: it has every file of the checkout, and its tests pass where nothing else is.

    python wheels/sdist.py                                  newest versions of everything (make sdist)
    python wheels/sdist.py --lowest --python python3.10     the lowest that pyproject.toml allows (make lowest)
    python wheels/sdist.py -- tests/test_cli.py -x          what follows -- goes to pytest; all tests without it

It is unpacked in an empty folder. A wheel is built of it, compared with one of the checkout, and installed in a fresh
environment, in which the tests of the unpacked folder run. With --lowest, whatever pyproject.toml gives a lower bound has
that version: what builds the wheel, what FastES needs, and the extras.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
MADE = re.compile(r"PKG-INFO|setup\.cfg|fastes\.egg-info/.+")  # by setuptools, in a source distribution
_BOUND = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])? ?>=([\d.]+)[^;]*(;.+)?$")


def main() -> None:
    given = read_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = build_sdist(folder, given.python)
        if (ROOT / ".git").exists():
            check_files(archive)
        shutil.unpack_archive(archive, folder)
        unpacked = folder / archive.name.removesuffix(".tar.gz")
        versions = build_requirements(unpacked) if given.lowest else ()
        wheel = build_wheel(unpacked, folder / "of_sdist", given.python, versions)
        if not given.lowest and (ROOT / ".git").exists():
            compare(wheel, build_wheel(copy_of_checkout(folder / "checkout"), folder / "of_checkout", given.python))
        test(wheel, unpacked, given)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments (default: this one)")
    parser.add_argument("--lowest", action="store_true", help="install lower bounds")
    parser.add_argument("--extras", default="test", help="extras of the environment, separated by commas (default: test)")
    parser.add_argument("--also", nargs="*", default=[], metavar="REQUIREMENT", help="more to install, as pip takes it")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    return parser.parse_args()


def build_sdist(folder: Path, interpreter: str) -> Path:
    """Of the checkout, with a tool of its own environment; its description has to be what the index can show."""
    python = make_environment(folder / "tools", interpreter)
    pip_install(python, "build", "twine")
    run([python, "-m", "build", "--sdist", "--outdir", folder / "sdist", ROOT], quiet=True)
    (archive,) = (folder / "sdist").glob("*.tar.gz")
    run([python, "-m", "twine", "check", "--strict", archive])
    return archive


def check_files(archive: Path) -> None:
    """SystemExit unless the archive has what is under version control, and nothing else."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    expected = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(archive) as file:
        found = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    lost, more = sorted(expected - found), sorted(name for name in found - expected if not MADE.fullmatch(name))
    if lost or more:
        raise SystemExit(f"MANIFEST.in and version control differ: the sdist lacks {lost}, and version control lacks {more}")
    print(f"{archive.name}: {len(found)} files, {archive.stat().st_size / 1e6:.1f} MB, each under version control", flush=True)


def copy_of_checkout(target: Path) -> Path:
    """Files under version control alone: an older build leaves modules in build/, and they would enter a wheel."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def build_requirements(unpacked: Path) -> list[str]:
    """The lowest versions of what builds the wheel, as pins."""
    text = (unpacked / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(r"^requires = (\[[^\]]+\])", text, re.MULTILINE)
    return pins(ast.literal_eval(found))


def build_wheel(source: Path, target: Path, interpreter: str, versions: Sequence[str] = ()) -> Path:
    """versions: pins of the packages that build it; the newest otherwise."""
    python = make_environment(target / "builder", interpreter)
    options = []
    if versions:
        pip_install(python, *versions)
        options = ["--no-build-isolation"]
        print("built with", *versions, flush=True)
    run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", *options, "--wheel-dir", target, source])
    return next(target.glob("*.whl"))


def compare(wheel: Path, other: Path) -> None:
    """SystemExit unless both have the same files, and each file the same bytes. RECORD follows from them."""
    first, second = contents(wheel), contents(other)
    if different := sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)):
        raise SystemExit(f"wheels of the sdist and of the checkout differ in {different}")
    print(
        f"{wheel.name}: {len(first)} files, {wheel.stat().st_size / 1e6:.2f} MB, the same bytes as of the checkout", flush=True
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test(wheel: Path, unpacked: Path, given: argparse.Namespace) -> None:
    python = make_environment(unpacked.parent / "env", given.python)
    constraints = unpacked.parent / "lowest.txt"
    constraints.write_text("\n".join(pins(required_by(wheel, given.extras.split(","))) if given.lowest else []) + "\n")
    pip_install(
        python, "--only-binary", ":all:", "--constraint", constraints, f"fastes[{given.extras}] @ {wheel.as_uri()}", *given.also
    )
    run([python, "-m", "pip", "list", "--format=freeze"])
    home = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    home["PATH"] = f"{python.parent}{os.pathsep}{home['PATH']}"
    done = subprocess.run([python.parent / "pytest", *given.pytest], cwd=unpacked, env=home)
    if done.returncode:
        raise SystemExit(done.returncode)


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


def make_environment(home: Path, interpreter: str) -> Path:
    """Its interpreter. With the newest pip: Python 3.10's looks for minutes for what belongs to the lowest versions."""
    run([interpreter, "-m", "venv", home])
    pip_install(home / "bin" / "python", "--upgrade", "pip")
    return home / "bin" / "python"


def pip_install(python: Path, *arguments: str | Path) -> None:
    run([python, "-m", "pip", "install", "--quiet", *arguments])


def run(command: Sequence[str | Path], quiet: bool = False) -> None:
    """SystemExit where it fails, with what it has printed if that was kept back."""
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=quiet, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed\n{done.stdout or ''}{done.stderr or ''}")


if __name__ == "__main__":
    main()
