"""Risk: a hint installs another package than the one that is there, or a checkout hides the package that pip has installed."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fastes
from fastes import _core
from fastes.system import installation

_ROOT = Path(__file__).parents[2]
_IGNORED = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'fastes[box2d]'"),
        ({"url": "file://HERE", "dir_info": {}}, "pip install '.[box2d]'"),
        ({"url": "file://HERE/with%20space", "dir_info": {}}, "pip install 'HERE/with space[box2d]'"),
        ({"url": "file://HERE/gone", "dir_info": {}}, "pip install 'fastes[box2d]'"),
        (
            {"url": "file:///x/fastes-0.1-py3.whl", "archive_info": {}},
            "pip install 'fastes[box2d] @ file:///x/fastes-0.1-py3.whl'",
        ),
        (
            {"url": "https://host/f.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'fastes[box2d] @ git+https://host/f.git@abc'",
        ),
        ([], "pip install 'fastes[box2d]'"),
    ],
)
def test_a_hint_fits_how_the_package_came(origin: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with space").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "lib" / "fastes" / "system" / "installation.py"))
    for folder in (tmp_path / "fastes.egg-info", info := tmp_path / "lib" / "fastes-0.1.0.dist-info"):
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Name: fastes\nVersion: 0.1.0\n")  # a build leaves one in the checkout, too
    monkeypatch.syspath_prepend(tmp_path)
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin).replace("HERE", str(tmp_path)))
    assert installation.install_command("box2d") == command.replace("HERE", str(tmp_path))


def test_a_hint_for_a_checkout_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "fastes" / "system" / "installation.py"))
    monkeypatch.chdir("/")
    assert installation.install_command("sb3") == f"pip install -e '{tmp_path}[sb3]'"
    monkeypatch.chdir(tmp_path)
    assert installation.install_command("sb3") == "pip install -e '.[sb3]'"


def python(folder: Path, *command: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """-S: an editable install would lend the checkout a core. The other packages are there without FastES."""
    others = folder.parent / "others"
    if not others.is_dir():
        others.mkdir()
        for installed in Path(np.__file__).parents[1].iterdir():
            if not installed.name.lower().startswith(("fastes", "__editable__")):
                (others / installed.name).symlink_to(installed)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), str(others)])}
    return subprocess.run([sys.executable, "-S", *command], cwd=folder, capture_output=True, text=True, env=env, timeout=100)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Source without a core, beside the installed package, which has one: the parent has `site/fastes`."""
    package = Path(fastes.__path__[0])
    shutil.copytree(package, tmp_path / "checkout" / "fastes", ignore=_IGNORED)
    (tmp_path / "checkout" / "src").mkdir()
    (tmp_path / "checkout" / "src" / "kernels.c").touch()
    shutil.copytree(package, tmp_path / "site" / "fastes", ignore=shutil.ignore_patterns("__pycache__"))
    for core in (tmp_path / "site" / "fastes").glob("_core.*.so"):
        os.utime(core)  # pip writes it when it installs
    return tmp_path / "checkout"


TRAIN = """
from fastes import FastES, _core
import fastes.agent
with FastES("CartPole-v1", preset="default", n_workers=1, seed=0, population_size=4) as model:
    model.learn(100)
print(fastes.agent.__file__, _core.__file__)
"""


def test_the_installed_package_works_in_a_checkout(checkout: Path) -> None:
    site = checkout.parent / "site"
    done = python(checkout, "-c", TRAIN, path=site)
    assert done.returncode == 0, done.stderr
    assert all(path.startswith(str(site / "fastes")) for path in done.stdout.split())
    assert python(checkout, "-m", "fastes", "--version", path=site).stdout == f"fastes {fastes.__version__}\n"


def test_source_that_is_not_what_is_installed_says_so(checkout: Path) -> None:
    """It was changed, it has a file more, its core's source is newer, or nothing is installed at all."""
    site, source = checkout.parent / "site", checkout / "fastes"
    core = max(path.stat().st_mtime for path in (site / "fastes").glob("_core.*"))

    def says(text: str, path: Path | None = site) -> None:
        for command in (["-c", "from fastes import FastES"], ["-m", "fastes", "--version"]):
            done = python(checkout, *command, path=path)
            assert done.returncode == 1
            assert f"ImportError: {text}" in done.stderr

    says(f"{source} is FastES's source, without its compiled core: install it", None)
    os.utime(checkout / "src" / "kernels.c", (core + 10, core + 10))
    says(f"{checkout / 'src' / 'kernels.c'} is not as pip has installed it in {site / 'fastes'}")
    (source / "es" / "more.py").touch()
    says(f"{source / 'es' / 'more.py'} is not as pip has installed it")


def hash_of(source: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What setup.py would compile into the core, in a folder with it and `src`; nothing is built."""
    made: list[dict[str, Any]] = []
    setuptools = SimpleNamespace(Extension=lambda _, **arguments: made.append(arguments), setup=lambda **_: None)
    with monkeypatch.context() as patch:
        patch.chdir(source)
        patch.setitem(sys.modules, "setuptools", setuptools)
        patch.setitem(sys.modules, "setuptools.command.build_ext", SimpleNamespace(build_ext=object))
        patch.setitem(sys.modules, "Cython.Build", SimpleNamespace(cythonize=lambda *_, **__: None))
        runpy.run_path("setup.py", run_name="__main__")
    return str(dict(made[0]["define_macros"])["FASTES_SOURCE_HASH"]).strip('"')


def test_the_core_says_which_sources_it_was_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of them, and the compiler's flags; nothing else that lies there."""
    for folder in ("src", "fastes/include"):
        shutil.copytree(_ROOT / folder, tmp_path / folder)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(_ROOT / name, tmp_path)
    assert hash_of(tmp_path, monkeypatch) == _core.SOURCE_HASH, "the core is not built from src/: make build"
    (tmp_path / "src" / "notes.txt").touch()
    assert hash_of(tmp_path, monkeypatch) == _core.SOURCE_HASH
    found = {_core.SOURCE_HASH}
    for path in sorted((tmp_path / "src").iterdir()):
        if path.name != "notes.txt":
            path.write_text(path.read_text() + "\n")
            found.add(hash_of(tmp_path, monkeypatch))
    assert len(found) == len(list((tmp_path / "src").iterdir()))
    setup = tmp_path / "setup.py"
    setup.write_text(setup.read_text().replace("-ffp-contract=off", "-ffp-contract=fast"))
    assert hash_of(tmp_path, monkeypatch) not in found
