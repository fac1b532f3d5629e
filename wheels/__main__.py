"""`make wheels`: build a wheel for every Python here and every platform, prove each, and print a table."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from platform import machine

from wheels.build import DIST, Wheel, WheelError, build_sdist, make_wheel, run
from wheels.prove import TESTS, Digests, Proof, digests_of_source, prove, source_build
from wheels.targets import PLATFORMS, Platform, Target, find_pythons, interpreter, make_targets

COLUMNS = ("python", "platform", "compiler", "glibc", "MB", "kernels", "tests", "same bits", "extras without wheels")


def main() -> None:
    given = parse()
    pythons = given.python or find_pythons()
    targets = make_targets(pythons, given.platform or [each for each in PLATFORMS.values() if is_possible(each)])
    if not targets:
        raise SystemExit("nothing to build: expected Linux, and python3.10 or newer on PATH or in pyenv, or --python PATH")
    DIST.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist = build_sdist(folder / "sdist")
        source = given.source.path if given.source else source_build(targets[0].builder, sdist, folder / "source")
        expected = digests_of_source(source, folder / "beside")
        print(line(COLUMNS), line(["---"] * len(COLUMNS)), sep="\n", flush=True)
        for number, target in enumerate(targets):
            for old in DIST.glob(f"fastes-*-{target.builder.tag}-*{target.platform.tag}*.whl"):
                old.unlink()
            try:
                wheel, proof = make(target, sdist, folder / str(number), expected, given.tests)
            except WheelError as error:
                print(f"{target.builder.tag} {target.platform.name}: {error}", file=sys.stderr, flush=True)
                failed += 1
                continue
            shutil.copy(wheel.path, DIST)
            print(line(row(target, wheel, proof)), flush=True)
    if failed:
        raise SystemExit(f"make wheels: {failed} of {len(targets)} wheels failed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m wheels", description=__doc__)
    add = parser.add_argument
    add("--python", type=interpreter, action="append", help="an interpreter to build for, not all that are found; repeatable")
    add("--platform", type=platform, action="append", help=f"one of {', '.join(PLATFORMS)}; repeatable")
    add("--tests", choices=TESTS, default="quick", help="how much of the test suite each wheel has to pass")
    add("--source", type=interpreter, help="one with FastES built from source, to compare with; else it is built first")
    return parser.parse_args()


def platform(name: str) -> Platform:
    if name not in PLATFORMS:
        raise argparse.ArgumentTypeError(f"{name!r} is unknown: expected one of {', '.join(PLATFORMS)}")
    return PLATFORMS[name]


def is_possible(each: Platform) -> bool:
    """Whether its compiler is here; if not, a line says so."""
    if each.machine != machine():
        print(f"{each.name} is left out: this machine's compilers make code for {machine()}")
        return False
    found = shutil.which(each.compiler) is not None
    if not found:
        print(f"{each.name} is left out: no {each.compiler} here (Debian: apt-get install {each.package})")
    return found


def make(target: Target, sdist: Path, folder: Path, expected: Digests, tests: str) -> tuple[Wheel, Proof | None]:
    """No proof where nothing here runs the wheel; WheelError if its bits or its kernels are not those of the source build."""
    wheel = make_wheel(target, sdist, folder)
    if target.runner is None:
        return wheel, None
    proof = prove(wheel.path, target.runner, folder, tests)
    if proof.digests != expected:
        raise WheelError(f"{wheel.path.name}: trainings end with {proof.digests}, those of the source build with {expected}")
    return wheel, proof


def row(target: Target, wheel: Wheel, proof: Proof | None) -> tuple[str, ...]:
    built = (
        target.builder.tag,
        target.platform.tag,
        run(*shlex.split(target.compiler), "--version").splitlines()[0],
        ".".join(map(str, wheel.glibc)) if wheel.glibc else "none",
        f"{wheel.megabytes:.2f}",
    )
    if proof is None:
        return (*built, "", "not run: no such Python here", "", "")
    missing = "not tried" if proof.left_out is None else " ".join(proof.left_out) or "none"
    return (*built, " ".join(proof.digests), f"{proof.passed} passed", "equal", missing)


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
