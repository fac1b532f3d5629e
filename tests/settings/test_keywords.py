"""Risk: an editor offers settings that there are not, or leaves some out; a type checker refuses a right call."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import pytest
from processes import environment

from fastes import EvolutionStrategy, FastES, Settings
from fastes.es.hyperparameters import Hyperparameters

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("function", "kind"),
    [(FastES.__init__, Settings), (FastES.load, Settings), (EvolutionStrategy.__init__, Hyperparameters)],
    ids=lambda given: getattr(given, "__qualname__", ""),
)
def test_keywords_are_the_fields_with_their_types(function: Callable[..., Any], kind: Any) -> None:
    """Those that are arguments of their own have to be in no other list: type checkers refuse names that are there twice."""
    parameters = inspect.signature(function).parameters
    (name,) = [name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.VAR_KEYWORD]
    (dictionary,) = get_type_hints(function)[name].__args__
    types = get_type_hints(kind)
    expected = {item.name: types[item.name] for item in fields(kind) if item.name not in parameters}
    if function is FastES.__init__:
        expected["population_scale"] = int  # no field: what it scales is written into others
    assert get_type_hints(dictionary) == expected
    assert not dictionary.__required_keys__


SCRIPT = """
from fastes import EvolutionStrategy, FastES
FastES("CartPole-v1", population_size=4, sigma="lin_0.1", learning_rate=0.1, net="x")  # unknown
FastES("CartPole-v1", population_size=4, sigma=lambda progress: 0.1, policy="LinearPolicy", target_return="none")
FastES("CartPole-v1", optimizer=3)  # wrong type
FastES.load("model.zip", learning_rate=0.1, sigma=0.1)
FastES.load("model.zip", population=4)  # unknown
EvolutionStrategy([0.0], shaping="nes", momentum=0.5)
EvolutionStrategy([0.0], trials=3)  # unknown
"""


@pytest.mark.slow
def test_a_type_checker_knows_them(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [*command, "--follow-imports", "silent", str(script)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == {number for number, line in enumerate(SCRIPT.splitlines(), 1) if "#" in line}, done.stdout


@pytest.mark.parametrize("module", ["fastes.es.keywords", "fastes.settings.keywords"])
def test_the_stub_is_made_from_the_fields(module: str) -> None:
    path = ROOT / "docs" / "scripts" / "make_keywords.py"
    spec = importlib.util.spec_from_file_location("make_keywords", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    of = importlib.import_module(module)
    stub = made.stub_path(of).read_text(encoding="utf-8")
    assert stub == made.stub_of(of), "run `make docs`"
    assert stub.count("class ") == sum(map(is_typeddict, vars(of).values())) > 0
