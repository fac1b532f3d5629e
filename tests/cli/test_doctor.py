"""Risk: `fastes doctor` fails where it is needed: on a machine that lacks something, crashes, or hides what is broken."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import environment, wait_until

import fastes
from fastes import _core
from fastes.cli import doctor, doctor_tries
from fastes.cli.doctor import Row
from fastes.cli.extras import Package, Part
from fastes.cli.main import main

COMMAND = [sys.executable, "-m", "fastes", "doctor"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a machine like a slim container: no compiler, home, terminal or stdin, and a stdout that takes ASCII alone."""
    bare = {name: environment()[name] for name in ("PYTHONPATH", "PATH")}
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "CC": "/bin/false"}
    folder = tmp_path_factory.mktemp("here")
    shell = ["/bin/sh", "-c", f"exec {shlex.join(COMMAND)} <&-"]
    done = subprocess.run(shell, cwd=folder, env={**bare, **plain}, capture_output=True, timeout=200)
    assert done.stderr == b""
    assert done.returncode == 0, done.stdout
    assert not list(folder.iterdir()), "it leaves nothing"
    return done.stdout.decode("ascii")


def row_of(report: str, name: str) -> str:
    (text,) = re.findall(rf"^  {re.escape(name)}  +(.*)$", report, re.MULTILINE)
    return str(text)


def test_it_says_what_there_is(report: str) -> None:
    assert report.startswith(f"FastES {fastes.__version__} in ")
    assert row_of(report, "numpy") == np.__version__
    assert row_of(report, "Python").startswith(sys.version.split()[0])
    assert int(row_of(report, "cores").split()[0]) >= 1
    assert row_of(report, "core").startswith(f"built from sources {_core.SOURCE_HASH}")
    assert row_of(report, "kernels").split(",")[0] in _core.available_variants()
    assert row_of(report, "training") == "CartPole-v1, with the same bits in a worker process as without one"
    assert row_of(report, "classic control").startswith("works: a frame of 600 x 400")
    assert re.match(r"works: ffmpeg \S+ encodes H.264", report[report.index("works: ffmpeg") :])
    assert "pip install" in row_of(report, "torch") or row_of(report, "torch")[0].isdigit()
    assert report.endswith("All that training needs works.\n")


def test_columns_are_aligned(report: str) -> None:
    for section in report.split("\n\n")[1:-1]:
        _, *rows = section.splitlines()
        assert len(rows) > 2
        starts = {re.match(r"  (?:\S+ )*?\S+ {2,}", row).end() for row in rows}  # type: ignore[union-attr]
        assert len(starts) == 1, section


class Tries:
    """What came of tries, as said: works or not, and what."""

    def __init__(self, *, works: bool, text: str = "ok") -> None:
        self.found = works, text
        self.processes = dict.fromkeys(("MuJoCo, egl", "MuJoCo, osmesa", "classic control", "video"))

    told = doctor.Tries.told

    def result(self, _: str) -> tuple[bool, str]:
        return self.found


def drawing(tries: Any, monkeypatch: pytest.MonkeyPatch, has_libraries: bool) -> dict[str, str]:
    monkeypatch.setattr(doctor, "find_spec", lambda _: True)
    monkeypatch.setattr(doctor, "has_libraries", lambda _: has_libraries)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    rows = list(doctor.drawing(tries))
    assert not any(row.broken for row in rows), "training draws nothing"
    return {row.name: row.text for row in rows}


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a slim container PyOpenGL says that None has no eglQueryString."""
    tries = Tries(works=False, text="AttributeError: 'NoneType' object has no attribute 'eglQueryString'")
    rows = drawing(tries, monkeypatch, has_libraries=False)
    assert rows["MuJoCo, egl"] == "no: its libraries are not there: apt-get install libegl1 libopengl0 libgl1-mesa-dri"
    assert rows["MuJoCo, osmesa"] == "no: its libraries are not there: apt-get install libosmesa6"


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawing(Tries(works=False, text="no device"), monkeypatch, has_libraries=True)
    packages = "libegl1 libopengl0 libgl1-mesa-dri"
    assert rows["MuJoCo, egl"] == f"no: no device; it may lack a driver: apt-get install {packages}"


def test_what_works_and_what_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawing(Tries(works=True), monkeypatch, has_libraries=True)
    assert list(rows) == ["MuJoCo, egl", "MuJoCo, osmesa", "classic control", "video"], "GLFW would need a screen"
    assert rows["MuJoCo, egl"] == "works: ok"
    assert rows["MuJoCo, osmesa"] == "works: ok; MUJOCO_GL=osmesa chooses it"


def test_mujoco_gl_that_is_set_is_tried_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(doctor, "find_spec", lambda _: True)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "elg")
    assert doctor.ways_to_draw()[-1] == ("MuJoCo, elg (MUJOCO_GL)", "elg")
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert ("MuJoCo, glfw (MUJOCO_GL)", "glfw") in doctor.ways_to_draw()


def test_without_packages_that_draw_it_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    with doctor.Tries("/") as tries:
        tries.result("training")
        texts = [row.text for row in doctor.drawing(tries)]
    assert ["[mujoco]" in texts[0], *("[video]" in text for text in texts[1:])] == [True] * 3
    assert all(text.startswith("needs ") for text in texts)


@pytest.fixture
def tries_that(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Tries whose processes run this code instead."""
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    opened: list[doctor.Tries] = []

    def run(code: str) -> doctor.Tries:
        monkeypatch.setattr(doctor, "BOOT", code.replace("{", "{{").replace("}", "}}"))
        opened.append(doctor.Tries("/"))
        return opened[-1]

    yield run
    for tries in opened:
        tries.__exit__()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "the process that tried it ended with SIGABRT"),
        ("import sys; sys.exit('no such driver')", "the process that tried it ended with exit status 1 (no such driver)"),
        ("print('[1, 2]')", "the process that tried it ended with exit status 0"),
        ("print(b'\\xff')", "the process that tried it ended with exit status 0"),
    ],
)
def test_a_process_that_crashes_ends_nothing(code: str, said: str, tries_that: Any) -> None:
    assert tries_that(code).result("training") == (False, said)


def test_a_process_that_hangs_is_ended(tries_that: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 0.0)
    tries = tries_that("import signal; signal.pause()")
    works, said = tries.result("training")
    assert (works, said) == (False, "it has not ended after 0 s")
    processes = list(tries.processes.values())
    tries.__exit__()
    wait_until(lambda: all(process.poll() is not None for process in processes), "the processes end")


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "training       BROKEN: no process could be started to try it: [Errno 11] Resource temporarily unavailable" in text
    assert "libraries are not there" not in text, "looking for them starts processes, too"
    assert text.endswith("Broken: kernels, shared memory, training\n")


def test_what_a_library_prints_is_not_the_answer(tries_that: Any) -> None:
    answer = "from fastes.cli import doctor_tries as t; t.TRIES['x'] = lambda: print('hello', end='') or 'found'; t.answer('x')"
    assert tries_that(f"import sys; sys.path[:] = {sys.path!r}; {answer}").result("training") == (True, "found")


def test_an_error_of_a_try_is_one_line(tries_that: Any) -> None:
    answer = "from fastes.cli import doctor_tries as t; t.TRIES['x'] = lambda: int('1\\n2'); t.answer('x')"
    works, said = tries_that(f"import sys; sys.path[:] = {sys.path!r}; {answer}").result("training")
    assert not works
    assert said == "ValueError: invalid literal for int() with base 10: '1\\n2'"


def test_kernels_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    perturb = _core.perturb
    monkeypatch.setattr(_core, "use_variant", used.append)
    monkeypatch.setattr(_core, "available_variants", lambda: ["baseline", "avx2", "avx512"])
    assert doctor_tries.kernels().startswith(_core.variant())

    def other_bits(out: Any, *arguments: Any) -> None:
        perturb(out, *arguments)
        out[7] = np.nextafter(out[7], np.inf, dtype=np.float32) if used[-1] == "avx2" else out[7]

    monkeypatch.setattr(_core, "perturb", other_bits)
    with pytest.raises(RuntimeError, match=r"^avx2 and baseline give other bits: set FASTES_KERNELS=baseline"):
        doctor_tries.kernels()


def test_workers_that_train_otherwise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = fastes.FastES

    def other(*arguments: Any, **kwargs: Any) -> Any:
        made.append(kwargs)
        return original(*arguments, **{**kwargs, "seed": len(made)})

    monkeypatch.setattr("fastes.model.FastES", other)
    with pytest.raises(RuntimeError, match="CartPole-v1 to other parameters"):
        doctor_tries.training()


def test_a_frame_of_one_colour_is_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", lambda _: np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(RuntimeError, match="nothing is drawn"):
        doctor_tries.classic_control()


@pytest.mark.skipif(not (Path(doctor.package_root()) / "setup.py").is_file(), reason="no checkout beside the package")
def test_a_core_of_other_sources_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own core is not one: make build."""
    root = Path(doctor.package_root())
    assert doctor.check_sources() == Row("core", f"built from sources {_core.SOURCE_HASH}, as they are in {root}")
    monkeypatch.setattr(_core, "SOURCE_HASH", "12345678")
    row = doctor.check_sources()
    assert row.broken
    assert row.text.startswith(f"built from sources 12345678, and those in {root} are ")


def test_an_installed_core_has_no_sources_to_be_compared_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "package_root", lambda: str(tmp_path))
    assert doctor.check_sources() == Row("core", f"built from sources {_core.SOURCE_HASH}")


def test_packages_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [Package("numpy", ">=2.0", "1.26.4"), Package("tqdm", ">=4.66", ""), Package("gymnasium", ">=1.0", "1.2.0")]
    monkeypatch.setattr(doctor, "needed", lambda: packages)
    assert list(doctor.versions())[2:] == [
        Row("numpy", "1.26.4 is there, >=2.0 is needed: pip install 'numpy>=2.0'", broken=True),
        Row("tqdm", "missing: pip install 'tqdm>=4.66'", broken=True),
        Row("gymnasium", "1.2.0"),
    ]


def test_optional_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(Package(f"p{number}", "", "1") for number in range(6))
    parts = [
        Part("mujoco", (Package("mujoco", ">=3.1", "2.3"), Package("imageio", ">=2.1", ""))),
        Part("video", (Package("imageio-ffmpeg", ">=0.5", "0.6"),)),
        Part("zoo", many),
    ]
    monkeypatch.setattr(doctor, "optional_parts", lambda: parts)
    monkeypatch.setattr(doctor, "install_command", lambda extra: f"pip install 'fastes[{extra}]'")
    _, mujoco, video, zoo = list(doctor.optional())
    assert mujoco == Row("mujoco", "missing mujoco>=3.1, imageio: pip install 'fastes[mujoco]'")
    assert video == Row("video", "imageio-ffmpeg 0.6")
    assert zoo.text == "p0 1, p1 1, p2 1, p3 1 and 2 more"


def test_numbers_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 1.5)
    monkeypatch.setattr(doctor, "affinity_cpus", lambda: 8)
    monkeypatch.setattr(doctor, "available_cpus", lambda: 2)
    monkeypatch.setattr(doctor, "available_memory", lambda: 3 * 10**9)
    monkeypatch.setattr(doctor, "memory_limit", lambda: 4 * 10**9)
    monkeypatch.setattr("os.access", lambda *_: False)
    rows = {row.name: row.text for row in doctor.machine()}
    assert rows["cores"] == "2 allowed: 8 in the affinity mask, a quota of 1.5 of the container"
    assert rows["memory"] == "3 GB left, of 4 GB that the container may have"
    assert "--runs" in rows["this folder"]


def test_a_package_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    """Other commands show the error as it is."""
    (tmp_path / "numpy.py").write_text("raise ImportError('libopenblas.so: cannot open shared object file')\n")
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    done = subprocess.run(COMMAND, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stderr
    assert "BROKEN: ImportError: libopenblas.so: cannot open shared object file" in done.stdout
    assert done.stdout.endswith("Broken: core, kernels, shared memory, training\n")
    assert done.stderr == ""
    other = subprocess.run([*COMMAND[:-1], "eval", "runs"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert other.returncode == 1
    assert "libopenblas.so" in other.stderr


def test_it_needs_no_folder_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryDirectory", none)
    with doctor.folder_to_write() as folder:
        assert folder == "/"
