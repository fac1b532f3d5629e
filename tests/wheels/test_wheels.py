"""Risk: a wheel is uploaded that lacks a file, fits no Python, was proven beside a compiler, or has bits of its own."""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import fastes
from fastes import _core
from wheels import __main__ as command
from wheels import aarch64, build, prove, sdist, targets
from wheels.build import Wheel, WheelError, check_names
from wheels.targets import PLATFORMS, Platform, Python, Target, make_targets, python_at

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
GNU, MUSL = PLATFORMS["manylinux_x86_64"], PLATFORMS["musllinux_x86_64"]
PYTHON = Python(Path("python3.12"), "312", GNU.triplet)
NAME = "fastes-0.1.0-cp312-cp312-manylinux_2_17_x86_64.whl"
CORE = "fastes/_core.cpython-312-x86_64-linux-gnu.so"
INFO = "fastes-0.1.0.dist-info"
CONTENTS = {CORE, f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE", "fastes/include/fastes_env.h"}
CONTENTS |= {"fastes/__init__.py", "fastes/_core.pyi", "fastes/py.typed"}
CONTENTS |= {f"fastes/watch/page/{name}" for name in ("index.html", "uPlot.min.js", "uPlot.LICENSE")}


def wheel_of(folder: Path, names: set[str], name: str = NAME) -> Path:
    with ZipFile(folder / name, "w") as file:
        for each in sorted(names):
            file.writestr(each, "")
    return folder / name


def test_a_whole_wheel_is_taken(tmp_path: Path) -> None:
    assert check_names(wheel_of(tmp_path, CONTENTS | {"fastes/", f"{INFO}/licenses/"}), PYTHON, GNU) == CORE


@pytest.mark.parametrize("lost", sorted(CONTENTS - {"fastes/__init__.py"}))
def test_a_wheel_that_lacks_a_file_is_refused(lost: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=rf"missing \['{re.escape(lost)}'\]"):
        check_names(wheel_of(tmp_path, CONTENTS - {lost}), PYTHON, GNU)


@pytest.mark.parametrize(
    "more", ["tests/cli/test_cli.py", "benchmarks/__init__.py", "fastes/kernels.inc", "fastes/scalar.c", "a.so"]
)
def test_a_wheel_that_holds_more_than_the_package_is_refused(more: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=rf"not expected \['{re.escape(more)}'\]"):
        check_names(wheel_of(tmp_path, CONTENTS | {more}), PYTHON, GNU)


@pytest.mark.parametrize(
    "tags", ["cp313-cp313-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_36_x86_64", "cp312-cp312-linux_x86_64"]
)
def test_a_wheel_with_other_tags_is_refused(tags: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="tags cp312 and manylinux_2_17_x86_64 expected"):
        check_names(wheel_of(tmp_path, CONTENTS, f"fastes-0.1.0-{tags}.whl"), PYTHON, GNU)


def test_a_big_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_of(tmp_path, CONTENTS)
    monkeypatch.setattr(build, "MOST_BYTES", wheel.stat().st_size)
    with pytest.raises(WheelError, match=f"has {wheel.stat().st_size} bytes: expected less than"):
        build.check(wheel, PYTHON, GNU)


@pytest.mark.parametrize(
    ("platform", "needed", "fits"), [(GNU, (2, 17), True), (GNU, (2, 18), False), (MUSL, (2, 2, 5), False), (MUSL, None, True)]
)
def test_a_symbol_that_the_platform_does_not_promise_is_refused(
    platform: Platform, needed: tuple[int, ...] | None, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_of(tmp_path, CONTENTS)
    monkeypatch.setattr(build, "check_names", lambda *_: CORE)
    monkeypatch.setattr(build, "run", lambda *_: "")
    monkeypatch.setattr(build, "newest_glibc", lambda *_: needed)
    if fits:
        assert build.check(wheel, PYTHON, platform) == Wheel(wheel, CORE, needed)
    else:
        with pytest.raises(
            WheelError, match=rf"needs a symbol of glibc {'.'.join(map(str, needed or ()))}, which {platform.tag}"
        ):
            build.check(wheel, PYTHON, platform)


def test_a_glibc_wheel_whose_symbols_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_names", lambda *_: CORE)
    monkeypatch.setattr(build, "run", lambda *_: "")
    monkeypatch.setattr(build, "newest_glibc", lambda *_: None)
    with pytest.raises(WheelError, match="needs no symbol of glibc"):
        build.check(wheel_of(tmp_path, CONTENTS), PYTHON, GNU)


def test_the_symbols_of_a_core_are_read(tmp_path: Path) -> None:
    """This one was built by this machine's compiler, as wheels are."""
    pytest.importorskip("elftools")
    if not sysconfig.get_config_var("EXT_SUFFIX").endswith("-linux-gnu.so"):
        pytest.skip("no glibc here")
    with ZipFile(tmp_path / NAME, "w") as file:
        file.write(_core.__file__, CORE)
    newest = build.newest_glibc(tmp_path / NAME, CORE)
    assert newest is not None
    assert newest >= (2, 2, 5)


def test_an_interpreter_says_what_its_extensions_are_called(tmp_path: Path) -> None:
    found = python_at(Path(sys.executable))
    assert found is not None
    assert f".cpython-{found.digits}-{found.triplet}.so" == sysconfig.get_config_var("EXT_SUFFIX") or sys.platform == "darwin"
    no_python = tmp_path / "python3"
    no_python.write_text("#!/bin/sh\nexit 1\n")
    no_python.chmod(0o755)
    assert python_at(no_python) is None
    assert python_at(tmp_path / "gone") is None


def test_a_wheel_is_run_by_a_python_of_its_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets.platform, "machine", lambda: "x86_64")
    old, musl = Python(Path("python3.11"), "311", GNU.triplet), Python(Path("musl"), "312", MUSL.triplet)
    assert make_targets([old, PYTHON, musl], [GNU, MUSL]) == [
        Target(old, GNU, old),
        Target(old, MUSL, None),
        Target(PYTHON, GNU, PYTHON),
        Target(PYTHON, MUSL, musl),
    ]


def test_a_platform_is_left_out_where_no_compiler_makes_code_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(command, "machine", lambda: "x86_64")
    assert command.is_possible(MUSL)
    monkeypatch.setattr(command, "machine", lambda: "aarch64")
    assert not command.is_possible(MUSL)
    assert "make code for aarch64" in capsys.readouterr().out
    monkeypatch.setattr(command, "machine", lambda: "x86_64")
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert not command.is_possible(MUSL)
    assert "apt-get install musl-tools" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "no_wheel"),
    [
        ("hint: Wheels are required for `mujoco` because building from source is disabled for all packages", True),
        ("Because ale-py==0.12.0 has no wheels with a matching platform tag (e.g., `musllinux_1_2_x86_64`)", True),
        ("error: Failed to fetch: connection refused", False),
    ],
)
def test_an_extra_without_wheels_is_left_out_and_any_other_failure_is_one(
    said: str, no_wheel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise WheelError(said)

    monkeypatch.setattr(prove, "install", fail)
    if no_wheel:
        assert not prove.install_extra(Path("python"), Path("/a.whl"), "mujoco", {})
    else:
        with pytest.raises(WheelError, match=re.escape(said)):
            prove.install_extra(Path("python"), Path("/a.whl"), "mujoco", {})


@pytest.mark.parametrize(("given", "used"), [(None, "cc"), ("clang -v", "clang -v")])
def test_the_compiler_that_the_table_names_is_the_one_that_compiles(
    given: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    if given:
        monkeypatch.setenv("CC", given)
    for platform, compiler in ((GNU, used), (MUSL, "musl-gcc")):
        assert platform.build_env(PYTHON)["CC"] == Target(PYTHON, platform, None).compiler == compiler


def test_a_build_for_another_platform_says_so_to_setuptools() -> None:
    assert GNU.build_env(PYTHON).keys() == {"CC"}
    env = MUSL.build_env(PYTHON)
    assert env["SETUPTOOLS_EXT_SUFFIX"] == ".cpython-312-x86_64-linux-musl.so"
    assert env["CC"] == "musl-gcc"
    assert env["LDSHARED"].startswith("musl-gcc -shared")


def test_where_wheels_are_proven_no_compiler_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    compilers = {
        "cc",
        "gcc",
        "g++",
        "c99-gcc",
        "gcc-12",
        "x86_64-linux-gnu-gcc-12",
        "musl-gcc",
        "clang",
        "clang++-15",
        "zig",
        "ld",
        "as",
    }
    others = {"ls", "bash", "basename", "accept", "ldd", "git"}
    for name in compilers | others | {"python3", "python3.12", "fastes"}:
        (tools / name).touch()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("PYTHONPATH", "/source")
    env = prove.bare_env(tmp_path / "home", tmp_path / "programs")
    assert {path.name for path in (tmp_path / "programs").iterdir()} == others
    assert env["PATH"].split(":") == [str(tmp_path / "home" / "bin"), str(tmp_path / "programs")]
    assert env["CC"] == "/bin/false"
    assert "PYTHONPATH" not in env


def test_named_tests_are_there_and_mujoco_is_not_needed_without_it() -> None:
    for tests in ("golden", "quick"):
        assert all((ROOT / name).is_file() for name in prove.arguments_of(tests, ()))
    assert all((ROOT / "tests" / name).is_file() for name in prove.NEED_THE_SOURCE)
    lost = set(prove.arguments_of("quick", ())) - set(prove.arguments_of("quick", ("mujoco", "video")))
    assert lost == {"tests/test_determinism.py"}


@pytest.mark.parametrize(
    "found",
    [
        {"baseline": {"mlp": "1"}, "avx2": {"mlp": "2"}},  # other bits
        {"baseline": {"mlp": "1"}},  # a variant is never chosen
    ],
)
def test_other_bits_or_kernels_than_those_of_the_source_are_refused(
    found: prove.Digests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_source = {"baseline": {"mlp": "1"}, "avx2": {"mlp": "1"}}
    target, wheel = Target(PYTHON, GNU, PYTHON), Wheel(tmp_path / NAME, CORE, (2, 14))
    monkeypatch.setattr(command, "make_wheel", lambda *_: wheel)
    monkeypatch.setattr(command, "prove", lambda *_: prove.Proof(3, of_source, ()))
    assert command.make(target, tmp_path, tmp_path, of_source, "quick") == (wheel, prove.Proof(3, of_source, ()))
    monkeypatch.setattr(command, "prove", lambda *_: prove.Proof(3, found, ()))
    with pytest.raises(WheelError, match="those of the source build with"):
        command.make(target, tmp_path, tmp_path, of_source, "quick")


def test_a_command_that_fails_is_an_error_with_what_it_said() -> None:
    with pytest.raises(WheelError, match=r"failed with 3:\nwhy"):
        build.run(sys.executable, "-c", "print('why'); raise SystemExit(3)")


def test_a_command_whose_output_is_shown_fails_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WheelError, match=r"failed with 3:$"):
        build.run(sys.executable, "-c", "print('why'); raise SystemExit(3)", shown=True)
    assert capfd.readouterr().out.endswith("\nwhy\n")


def test_uv_takes_packages_from_where_pip_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "UV_DEFAULT_INDEX", "UV_INDEX", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    theirs = {"UV_DEFAULT_INDEX": "https://one/simple", "UV_INDEX": "https://two https://three", "SSL_CERT_FILE": "/some.pem"}
    assert not theirs.keys() & build.tool_env().keys()
    monkeypatch.setenv("PIP_INDEX_URL", theirs["UV_DEFAULT_INDEX"])
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", theirs["UV_INDEX"])
    monkeypatch.setenv("PIP_CERT", theirs["SSL_CERT_FILE"])
    assert theirs.items() <= build.tool_env().items()
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://for-uv/simple")
    assert build.tool_env()["UV_DEFAULT_INDEX"] == "https://for-uv/simple"


def test_builds_see_no_packages_of_the_environment_that_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/elsewhere")
    assert "/elsewhere" not in build.tool_env().values()


def test_lowest_versions_are_the_bounds() -> None:
    assert build.build_requirements() == project()["build-system"]["requires"]
    asked = [
        "numpy>=2.0",
        "gym[a]>=1.2 ; extra == 'x'",
        "numpy>=2.10",
        "cython>=3.1,<4",
        "tomli>=2; python_version < '3.11'",
        "x",
    ]
    assert sdist.pins(asked) == ["numpy==2.10", "gym==1.2; extra == 'x'", "cython==3.1", "tomli==2; python_version < '3.11'"]


def test_an_arm64_wheel_is_checked_as_any_other_and_proven_by_tests_that_are_there(tmp_path: Path) -> None:
    python = Python(Path("python"), "311", aarch64.PLATFORM.triplet)
    name, core = f"fastes-0.1.0-cp311-cp311-{aarch64.PLATFORM.tag}.whl", "fastes/_core.cpython-311-aarch64-linux-gnu.so"
    assert check_names(wheel_of(tmp_path, CONTENTS - {CORE} | {core}, name), python, aarch64.PLATFORM) == core
    with pytest.raises(WheelError, match=rf"missing \['{re.escape(core)}'\], not expected \['{re.escape(CORE)}'\]"):
        check_names(wheel_of(tmp_path, CONTENTS, name), python, aarch64.PLATFORM)
    assert all((ROOT / "tests" / name).is_file() for name in aarch64.TESTS)


def test_the_service_builds_and_tests_with_what_is_used_here() -> None:
    service = project()["tool"]["cibuildwheel"]
    tools = [each for each in project()["project"]["optional-dependencies"]["test"] if not each.startswith("fastes[")]
    assert service["test-requires"] == tools == list(prove.TEST_TOOLS)
    assert service["build"] == [f"cp{version.replace('.', '')}-*" for version in targets.VERSIONS]
    for name in re.findall(r"tests/\w+\.py", service["test-command"]):
        assert (ROOT / name).is_file()


# The version


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place() -> None:
    """fastes/__init__.py. CHANGELOG.md has a heading of it; what else shows it asks the package."""
    assert "version" not in project()["project"]
    assert project()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "fastes.__version__"}
    assert f"\n## {fastes.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    written = re.compile(rf"fastes\W{{1,4}}v?{re.escape(fastes.__version__)}", re.IGNORECASE)
    folders = ("fastes", "docs", "examples", "wheels", ".github")
    files = [
        path for name in folders for path in sorted((ROOT / name).rglob("*")) if path.is_file() and "dist" not in path.parts
    ]
    texts = [path for path in (*files, ROOT / "README.md") if path.suffix in (".py", ".md", ".yaml", ".yml", ".sh", ".toml")]
    assert len(texts) > 200
    assert [path.name for path in texts if written.search(path.read_text(encoding="utf-8"))] == []


def test_the_installed_package_has_that_version() -> None:
    assert metadata.version("fastes") == fastes.__version__
