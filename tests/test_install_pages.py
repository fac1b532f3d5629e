"""Risk: what the pages say of installing is not what pyproject.toml and CI do."""

from __future__ import annotations

import re
from pathlib import Path

from fastes.settings.preset_loader import tomllib
from fastes.system.drawing_libraries import packages_command

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_block(text: str) -> list[str]:
    """The lines of a page's first bash block."""
    found = re.search(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_the_table_of_extras_has_each_once() -> None:
    table = re.search(r"^\| extra \|.*\n\|[-|]+\n((?:\|.*\n)+)", text_of("docs/install.md"), re.MULTILINE)
    assert table is not None
    named = [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(EXTRAS)


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
