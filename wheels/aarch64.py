"""Build a wheel for arm64 on another machine, and prove it under emulation: `python -m wheels.aarch64`, on Debian without root.

An arm64 Python of Debian's packages runs under qemu-user and builds as it would at home; the compiler alone is this machine's
cross compiler. The wheel is then installed into a fresh environment of that Python, where the kernels' tests and the stored
digests of trainings have to pass. Everything lies in one folder, and what a run has downloaded there is used again.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from wheels.build import DIST, ROOT, Wheel, WheelError, build_requirements, build_sdist, repair, run, tool_env
from wheels.prove import TEST_TOOLS, copy_tests
from wheels.targets import Platform, interpreter

PLATFORM = Platform(
    "manylinux_aarch64",
    "manylinux_2_17_aarch64",  # the oldest that there is for arm64
    "aarch64-linux-gnu",
    "aarch64-linux-gnu-gcc",
    "gcc-aarch64-linux-gnu",
    newest_glibc=(2, 17),
)
COMMANDS = {  # command -> Debian's package
    "qemu-aarch64": "qemu-user",
    PLATFORM.compiler: PLATFORM.package,
    "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVE = "http://deb.debian.org/debian"
RELEASE, VERSION = "bookworm", "3.11"  # of Debian, and its Python

TESTS = (
    "src/test_kernel_golden.py",
    "src/test_kernel_parity.py",
    "src/test_kernel_properties.py",
    "src/test_kernel_rows.py",
    "policies/test_layers.py",
    "policies/test_image_layers.py",
    "policies/test_recurrent_layers.py",
    "src/test_screen.py",
    "rollout/test_exact_moments.py",
    "system/test_float_mode.py",
    "checkpoints/test_frozen_checkpoint.py",
    "test_golden_trainings.py",
)
LEFT_OUT = "broken_generator"  # minutes of NumPy's arithmetic, which says nothing of the core

# One rounding for two operations, or estimates: neither is on every processor.
_OTHER_BITS = re.compile(r"\s(fn?m(add|sub)|fml[as]l?2?|fr(ecp|sqrt)[esx])\b")
SAY = "import platform; from fastes import _core; print(platform.machine(), *_core.available_variants())"
CANARY = "float fused(float a, float b, float c) { return a * b + c; }\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m wheels.aarch64", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "aarch64", help="for all that is made on the way")
    parser.add_argument("--no-proof", action="store_true", help="build and check alone")
    given = parser.parse_args()
    check_commands()
    folder = given.folder.resolve() / RELEASE
    debian = Debian(folder)
    wheel = build(debian)
    rows = [("newest symbol", f"GLIBC_{'.'.join(map(str, wheel.glibc or ()))}"), check_instructions(wheel, folder)]
    if not given.no_proof:
        rows += prove(debian, wheel.path)
    DIST.mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel.path, DIST)
    print_table([("wheel", f"wheels/dist/{wheel.path.name}, {wheel.megabytes:.2f} MB"), *rows])


def check_commands() -> None:
    missing = [package for command, package in COMMANDS.items() if shutil.which(command) is None]
    if not KEYS.exists():
        missing.append("debian-archive-keyring")
    if missing:
        raise SystemExit(f"to build for arm64 here, install first: apt-get install {' '.join(missing)}")


def clean_env(**more: str) -> dict[str, str]:
    """Without what points to packages and compilers of this machine."""
    compilers = ("CC", "CFLAGS", "LDFLAGS", "LDSHARED")
    kept = {name: value for name, value in tool_env(PYTHONDONTWRITEBYTECODE="1").items() if name not in compilers}
    return {**kept, **more}


class Debian:
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
        env = clean_env(APT_CONFIG=str(apt / "settings"))
        run("apt-get", "-q", "update", env=env, shown=True)
        packages = [python, f"lib{python}-dev", "libstdc++6"]
        run("apt-get", "-q", "-y", "--download-only", "install", *packages, env=env, shown=True)
        for package in sorted((apt / "archives").glob("*.deb")):
            run("dpkg", "-x", package, self.root, shown=True)

    def environment(self, name: str, *packages: str | Path) -> Path:
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
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", site, "pip", env=clean_env())
        quick = ["--quiet", "--no-compile", "--disable-pip-version-check", "--only-binary", ":all:"]
        run(python, "-m", "pip", "install", *quick, *packages, env=clean_env(), shown=True)
        return python


def build(debian: Debian) -> Wheel:
    """The wheel of the sdist, built by the emulated Python and a compiler that runs at full speed."""
    python = debian.environment("build-environment", "pip", *build_requirements())
    built = debian.folder / "built"
    shutil.rmtree(built, ignore_errors=True)
    headers = debian.root / "usr" / "include"
    flags = f"-I{headers / f'python{debian.version}'} -idirafter {headers}"  # this machine's headers of Python are not arm64's
    env = clean_env(CC=PLATFORM.compiler, CFLAGS=flags)
    sdist = build_sdist(built / "sdist")
    options: list[str | Path] = ["--no-deps", "--no-build-isolation", "--wheel-dir", built / "plain"]
    run(python, "-m", "pip", "wheel", "--quiet", *options, sdist, env=env, shown=True)
    (plain,) = (built / "plain").glob("fastes-*.whl")
    return repair(plain, interpreter(str(python)), PLATFORM, built / "repaired")


def check_instructions(wheel: Wheel, folder: Path) -> tuple[str, str]:
    """That no instruction in the core would give other bits."""
    unpacked = folder / "unpacked-wheel"
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(wheel.path, unpacked, "zip")
    core, canary = unpacked / wheel.core, folder / "canary.c"
    canary.write_text(CANARY)
    run(PLATFORM.compiler, "-O2", "-ffp-contract=fast", "-c", canary, "-o", canary.with_suffix(".o"), env=clean_env())
    if not other_bits(canary.with_suffix(".o")):
        raise WheelError("a fused multiplication and addition that was made on purpose was not seen")
    if found := other_bits(core):
        raise WheelError(f"{core.name} has instructions that give other bits, as {found[0]}: is -ffp-contract=off a flag?")
    vectors = len(re.findall(r"\sfmul\s+v\d+\.4s", disassembly(core)))
    return "fused instructions", f"none, beside {vectors} multiplications of four floats"


def disassembly(file: Path) -> str:
    return run("aarch64-linux-gnu-objdump", "-d", file)


def other_bits(file: Path) -> list[str]:
    """Lines of its code that round otherwise than a multiplication and an addition."""
    return [line.strip() for line in disassembly(file).splitlines() if _OTHER_BITS.search(line)]


def prove(debian: Debian, wheel: Path) -> list[tuple[str, str]]:
    """Install the wheel where nothing was built, and run the tests that compare bits, away from the source."""
    python = debian.environment("proof-environment", "pip", *TEST_TOOLS, wheel)
    proof = debian.folder / "proof"
    shutil.rmtree(proof, ignore_errors=True)
    copy_tests(proof)
    said = run(python, "-c", SAY, env=clean_env(), cwd=proof)
    if said.split() != ["aarch64", "neon"]:
        raise WheelError(f"the wheel's machine and kernels are {said.strip()!r}: expected 'aarch64 neon'")
    begun, report = time.monotonic(), proof / "report.xml"
    chosen = [proof / "tests" / name for name in TESTS]
    options: list[str | Path] = ["-q", "-k", f"not {LEFT_OUT}", "-c", proof / "pyproject.toml", f"--junit-xml={report}"]
    run(python, "-m", "pytest", *options, *chosen, env=clean_env(), cwd=proof, shown=True)
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
