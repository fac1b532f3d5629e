"""Risk: what the pages say of installing is not what pyproject.toml and CI do."""

from __future__ import annotations

import re
from pathlib import Path

from fastes.settings.preset_loader import tomllib
from fastes.system.installation import packages_command

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_block(text: str) -> list[str]:
    """The lines of a page's first bash block."""
    found = re.search(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def rows_of(first: str) -> list[list[str]]:
    """The cells of docs/install.md's table whose first column is called so."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text_of("docs/install.md"), re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def test_the_table_of_extras_has_each_once() -> None:
    named = [name for row in rows_of("extra") for name in re.findall(r"`([\w-]+)`", row[0])]
    assert sorted(named) == sorted(PYPROJECT["project"]["optional-dependencies"])


def test_the_quick_start_is_two_commands_that_other_pages_and_ci_repeat() -> None:
    readme = text_of("README.md")
    train, test = first_block(readme)
    assert train.endswith(" && fastes train HalfCheetah-v5")
    assert first_block(text_of("docs/quickstart.md")) == [train, test]
    assert train.split(" && ")[0] in text_of("docs/install.md").splitlines()
    assert f"pip install --quiet {test.removeprefix('pip install ')}" in text_of(".ci/run").splitlines()
    from_index = train.replace("'.[", "'fastes[")
    assert from_index in readme.splitlines()
    assert from_index.split(" && ")[0] in text_of("docs/install.md").splitlines()


def test_the_page_names_the_packages_that_errors_name() -> None:
    lines = text_of("docs/install.md").splitlines()
    for command in packages_command("egl", {}).split("; "):
        install, _, distribution = command.rstrip(")").partition(" (")
        assert any(line.split("#")[0].rstrip() == install and line.endswith(f"# {distribution}") for line in lines), command


def test_the_wheels_that_are_promised_are_those_that_the_release_builds() -> None:
    promised = {(row[0].split()[0], name) for row in rows_of("system") for name in row[1].split(", ")}
    platforms = re.findall(r"- platform: (\w+)-(\w+)$", text_of(".github/workflows/release.yml"), re.MULTILINE)
    systems, processors = {"linux": "Linux", "macos": "macOS"}, {"x86_64": "x86-64", "aarch64": "arm64", "arm64": "arm64"}
    assert promised == {(systems[system], processors[processor]) for system, processor in platforms}
    pythons = [f"3.{name[3:-2]}" for name in PYPROJECT["tool"]["cibuildwheel"]["build"]]
    assert f"CPython {pythons[0]} to {pythons[-1]}" in text_of("docs/install.md")
