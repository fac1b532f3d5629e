"""Risk: a text names a command that is gone; benchmarks of one kind begin to need those of another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("speed", "learning", "reliability")
TEXTS = [*ROOT.glob("*.md"), ROOT / "Makefile", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
TEXTS += (ROOT / "fastes").rglob("*.toml")


def imported_folders(path: Path) -> set[str]:
    """The folders of benchmarks that a file imports from; '' for files beside them."""
    modules = re.findall(r"^\s*from benchmarks\.([\w.]+) import", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {module.partition(".")[0] if (ROOT / "benchmarks" / module.partition(".")[0]).is_dir() else "" for module in modules}


@pytest.mark.parametrize("folder", FOLDERS)
def test_benchmarks_of_one_kind_stand_alone(folder: str) -> None:
    files = list((ROOT / "benchmarks" / folder).rglob("*.py"))
    assert files
    for path in files:
        assert imported_folders(path) <= {folder, "peers", ""}, path


def test_what_benchmarks_share_knows_none_of_them() -> None:
    for path in [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "benchmarks" / "peers").glob("*.py")]:
        assert not imported_folders(path) & set(FOLDERS), path


def test_commands_that_texts_name_exist() -> None:
    named = {(path, name) for path in TEXTS for name in re.findall(r"\bbenchmarks\.([a-z_\d.]*\w)", path.read_text("utf-8"))}
    assert len({name for _, name in named}) > 10
    for path, name in named:
        module = ROOT / "benchmarks" / name.replace(".", "/")
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), f"{path.name} names benchmarks.{name}"
