"""A wheel in use: in a fresh environment, where no compiler and no source can be found, beside a build from source."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from wheels.build import ROOT, TOOLS, WheelError, run, tool_env
from wheels.targets import Python

_GOLDEN = ("test_golden_trainings.py", "src/test_kernel_golden.py")
Digests = dict[str, dict[str, str]]  # by kernel variant and training
TESTS = {
    "golden": _GOLDEN,
    "quick": (
        *_GOLDEN,
        "src/test_kernel_parity.py",
        "src/test_kernel_rows.py",
        "test_determinism.py",
        "checkpoints/test_frozen_checkpoint.py",
        "checkpoints/test_checkpoint.py",
        "cli/test_cli.py",
    ),
    "all": (),
}
EXTRAS = ("mujoco", "plots", "tensorboard", "video")  # that tests use
TEST_TOOLS = ("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "pyte>=0.8")
NEED_MUJOCO = ("test_determinism.py",)
NEED_THE_SOURCE = (  # what they are about is the repository
    "test_architecture.py",
    "benchmarks/test_benchmark_folders.py",
    "system/test_extras.py",
    "docs/test_index_page.py",
    "docs/test_install_pages.py",
    "system/test_installation.py",
    "wheels/test_release_workflow.py",
    "wheels/test_wheels.py",
)
_NO_WHEEL = re.compile("has no (usable )?wheels|building from source is disabled")  # as uv says it
_COMPILER = re.compile(r"(.*-)?(cc|c89|c99|gcc|g\+\+|c\+\+|cpp|clang|clang\+\+|tcc|icx|zig|ld|as)([-.][\d.]+)?|python.*|fastes")


class Proof(NamedTuple):
    """passed: tests. digests: of trainings. left_out: extras that lack a wheel of a package; None if not tried."""

    passed: int
    digests: Digests
    left_out: tuple[str, ...] | None


def bare_env(home: Path, programs: Path) -> dict[str, str]:
    """An environment without a compiler or the source: `programs` becomes a folder of this machine's commands but compilers."""
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in folder.iterdir() if folder.is_dir() else ():
            if not _COMPILER.fullmatch(command.name) and not (programs / command.name).is_symlink():
                (programs / command.name).symlink_to(command)
    kept = {name: value for name, value in tool_env().items() if not name.startswith(("PYTHON", "FASTES"))}
    nothing = dict.fromkeys(("CC", "CXX", "LDSHARED"), "/bin/false")
    return {**kept, **nothing, "PATH": f"{home / 'bin'}{os.pathsep}{programs}"}


def make_environment(python: Python, home: Path, *packages: str | Path, env: dict[str, str], wheels_only: bool) -> Path:
    """A new environment's interpreter. packages: also options of `uv pip install`."""
    run(TOOLS / "uv", "venv", "--python", python.path, home, env=env)
    install(home / "bin" / "python", *packages, env=env, wheels_only=wheels_only)
    return home / "bin" / "python"


def install(python: Path, *packages: str | Path, env: dict[str, str], wheels_only: bool) -> None:
    only = ["--only-binary", ":all:"] if wheels_only else []
    run(TOOLS / "uv", "pip", "install", *only, "--python", python, *packages, env=env)


def copy_tests(place: Path) -> Path:
    """The tests and what they read, away from the source."""
    place.mkdir()
    for name in ("tests", "benchmarks", "docs", "examples", "README.md", "CHANGELOG.md", "pyproject.toml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place / name)
    shutil.copy(ROOT / "wheels" / "digests.py", place / "tests")
    return place


def digests(python: Path, place: Path, env: dict[str, str]) -> Digests:
    """What short trainings end with."""
    return dict(
        json.loads(
            run(
                python, place / "tests" / "digests.py", env={**env, "PYTHONPATH": str(place / "tests" / "helpers")}, cwd=place
            ).splitlines()[-1]
        )
    )


def digests_of_source(python: Path, folder: Path) -> Digests:
    """Of an interpreter that has FastES built from source, beside test tools."""
    return digests(python, copy_tests(folder), tool_env())


def source_build(python: Python, sdist: Path, folder: Path) -> Path:
    """An interpreter with FastES as pip builds it, with this machine's compiler, where there is no wheel."""
    return make_environment(python, folder, sdist, *TEST_TOOLS, env=tool_env(), wheels_only=False)


def prove(wheel: Path, python: Python, folder: Path, tests: str) -> Proof:
    """Install it and run it; WheelError for a test that fails. tests: a key of TESTS."""
    home = folder / "env"
    env = bare_env(home, folder / "programs")
    made = make_environment(python, home, wheel, *TEST_TOOLS, env=env, wheels_only=True)
    left_out = None
    if tests != "golden":
        left_out = tuple(extra for extra in EXTRAS if not install_extra(made, wheel, extra, env))
    place = copy_tests(folder / "away")
    return Proof(run_tests(made, place, env, arguments_of(tests, left_out or ())), digests(made, place, env), left_out)


def install_extra(python: Path, wheel: Path, extra: str, env: dict[str, str]) -> bool:
    """Whether all of it has wheels for this Python; WheelError if it cannot be installed for another reason."""
    try:
        install(python, f"fastes[{extra}] @ {wheel.as_uri()}", env=env, wheels_only=True)
    except WheelError as error:
        if not _NO_WHEEL.search(str(error)):
            raise
        return False
    return True


def arguments_of(tests: str, left_out: tuple[str, ...]) -> list[str]:
    """What pytest is called with."""
    if tests == "all":
        return ["tests", *(f"--ignore=tests/{name}" for name in NEED_THE_SOURCE)]
    return [f"tests/{name}" for name in TESTS[tests] if not ("mujoco" in left_out and name in NEED_MUJOCO)]


def run_tests(python: Path, place: Path, env: dict[str, str], tests: list[str]) -> int:
    """How many passed; WheelError with what pytest says if one did not."""
    said = run(python, "-m", "pytest", "-q", *tests, env=env, cwd=place)
    passed = re.search(r"(\d+) passed", said)
    if passed is None:
        raise WheelError(f"no test ran:\n{said}")
    return int(passed[1])
