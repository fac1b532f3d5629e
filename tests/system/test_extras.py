"""Risk: a hint or a page names an extra that there is not, or an extra that most people take brings gigabytes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from fastes.envs.advice import EXTRAS
from fastes.settings.preset_loader import tomllib

ROOT = Path(__file__).parents[2]
DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
_NAMED = re.compile(r"(?:\bfastes|[' \"]\.)\[([a-z\d]+(?:,[a-z\d]+)*)\]")  # fastes[a,b] or .[a,b]
_FOLDERS = ("docs", "benchmarks", "examples", "wheels")
_PAGES = [ROOT / "Makefile", ROOT / ".ci" / "run", *ROOT.glob("*.md")]
_PAGES += [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.*") if path.suffix in (".md", ".yaml")]


def hinted() -> set[str]:
    """What the package hands to install_command."""
    found = set(EXTRAS.values())
    for path in (ROOT / "fastes").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "install_command":
                found |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def brought(extra: str) -> set[str]:
    """Names of all packages that an extra asks for, those of its extras too."""
    names: set[str] = set()
    for requirement in DECLARED[extra]:
        if own := re.match(r"fastes\[(.+?)\]", requirement):
            names |= set().union(*map(brought, own[1].split(",")))
        else:
            names |= set(re.findall(r"^[\w-]+", requirement))
    return names


def test_hints_name_extras_that_are_declared() -> None:
    assert {"mujoco", "box2d", "atari", "video", "plots", "zoo", "hub", "ray", "tensorboard", "onnx"} <= hinted()
    assert hinted() <= set(DECLARED)


def test_pages_name_extras_that_are_declared() -> None:
    named = {
        (str(path.relative_to(ROOT)), extra)
        for path in _PAGES
        for found in _NAMED.findall(path.read_text(encoding="utf-8"))
        for extra in found.split(",")
    }
    assert len(named) > 10
    assert {(page, extra) for page, extra in named if extra not in DECLARED} == set()


def test_all_is_free_of_torch_and_has_what_most_want() -> None:
    assert {"mujoco", "ale-py", "opencv-python-headless", "imageio-ffmpeg", "matplotlib"} <= brought("all")
    heavy = {"torch", "stable-baselines3", "sb3-contrib", "rl_zoo3", "huggingface-sb3", "ray"}
    assert not heavy & brought("all")
    assert heavy <= brought("zoo") | brought("hub") | brought("ray") | brought("bench")


def test_dev_has_what_a_change_needs() -> None:
    assert brought("test") | brought("docs") | {"ruff", "mypy"} <= brought("dev")
