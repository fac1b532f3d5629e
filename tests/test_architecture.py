"""Risk: layers grow together, importing gets slow, a setting is undocumented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from processes import environment

import fastes
from fastes.settings.presets import all_presets, load_preset, tomllib
from fastes.settings.settings import Settings

PACKAGE = Path(fastes.__file__).parent
ROOT = Path(__file__).parents[1]
GROUPS: tuple[tuple[str, ...], ...] = (
    ("errors", "_core", "reference"),
    ("noise", "normalizer", "shaping", "optim", "schedules", "policies"),
    ("strategy", "rollout"),
    ("parallel",),
    ("agent",),
    ("cli", "train_command", "zoo"),
)


def module_files() -> dict[str, Path]:
    """Module name without 'fastes.' -> file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _import_nodes(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """Every import that can run, also inside of functions."""
    found: list[ast.Import | ast.ImportFrom] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        elif not _only_for_types(node):
            found += _import_nodes(node)
    return found


@cache
def imports_of(name: str) -> frozenset[str]:
    """Modules that a module imports: those of the package without 'fastes.', others by their top name with a colon."""
    modules = module_files()
    found: set[str] = set()
    for node in _import_nodes(ast.parse(modules[name].read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{name} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        for target in targets:
            top, _, rest = target.partition(".")
            if top != "fastes":
                found.add(f":{top}")
            elif rest in modules or rest == "_core":
                found.add(rest)
            elif (parent := rest.rpartition(".")[0]) in modules or parent == "_core":
                found.add(parent)
    return frozenset(found - {name, ""})


@cache
def reach_of(name: str) -> frozenset[str]:
    """Everything that is imported with a module, directly or not."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        module = waiting.pop()
        for target in imports_of(module) if module in module_files() else ():
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return frozenset(seen)


def belongs(module: str, group: str) -> bool:
    return module == group or module.startswith(group + ".")


def modules_of(group: str) -> list[str]:
    return [name for name in module_files() if belongs(name, group)]


def test_the_walk_sees_imports() -> None:
    assert "strategy" in imports_of("agent")
    assert "_core" in imports_of("strategy")
    assert "parallel.worker" in imports_of("parallel.pool")
    assert ":numpy" in imports_of("noise")
    assert {"strategy", "noise", "optim"} <= reach_of("cli")
    assert len(modules_of("parallel")) >= 5


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} reaches {target}"
        for low, group in enumerate(GROUPS)
        for layer in group
        for module in modules_of(layer)
        for higher in GROUPS[low + 1 :]
        for above in higher
        for target in reach_of(module)
        if belongs(target, above)
    ]
    assert wrong == []


def test_no_import_cycles() -> None:
    """A package's own __init__ may import its parts."""
    cycles = [name for name in module_files() if name in reach_of(name) and not (PACKAGE / name.replace(".", "/")).is_dir()]
    assert [name for name in cycles if not any(belongs(name, package) for package in ("parallel", "policies"))] == []


def test_a_worker_knows_no_strategy_and_no_optimiser() -> None:
    forbidden = ("strategy", "optim", "agent", "shaping", "settings", "schedules", "checkpoint", "presets", "cli")
    for module in ("rollout", *modules_of("parallel")):
        met = [target for target in reach_of(module) if any(belongs(target, name) for name in forbidden)]
        assert met == [], module


def test_a_strategy_knows_no_process_and_no_environment() -> None:
    reach = reach_of("strategy") | imports_of("strategy")
    names = ("parallel", "rollout", "envs", "policies", "agent", "settings")
    assert [target for target in reach if any(belongs(target, name) for name in names)] == []
    assert not reach & {":gymnasium", ":multiprocessing", ":subprocess", ":cloudpickle", ":mujoco"}


def test_only_the_reference_is_for_tests() -> None:
    assert [name for name in module_files() if "reference" in imports_of(name)] == []


def test_nothing_imports_torch_or_ray() -> None:
    heavy = {":torch", ":ray", ":stable_baselines3", ":cv2", ":scipy"}
    found = {name: sorted(imports_of(name) & heavy) for name in module_files() if imports_of(name) & heavy}
    assert found == {
        "sb3.interface": [":stable_baselines3"],  # only where SB3 is in use already
        "policies.torch_module": [":torch"],  # in functions: the user has made a module
    }


def test_no_file_collects_everything() -> None:
    words = ("util", "helper", "misc", "manager", "common")
    assert [name for name in module_files() if any(word in name.lower() for word in words)] == []


def test_files_hold_one_idea() -> None:
    """House style: a file that has grown past its idea is split."""
    assert {name: lines for name, path in module_files().items() if (lines := len(path.read_text().splitlines())) > 450} == {}


def _loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-I", "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


HEAVY = {"torch", "matplotlib", "ray", "pygame", "mujoco", "imageio_ffmpeg", "scipy", "cv2", "stable_baselines3"}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import fastes", HEAVY | {"gymnasium", "numpy", "tqdm"}),
        ("from fastes import EvolutionStrategy", HEAVY | {"gymnasium", "cloudpickle", "tqdm"}),
        ("from fastes import FastES", HEAVY),
        ("from fastes.cli.main import main", HEAVY),
        ("from fastes.pools.processes.worker import main", HEAVY | {"safetensors", "tqdm"}),
    ],
)
def test_imports_load_little(statement: str, absent: set[str]) -> None:
    loaded = _loaded_by(statement)
    assert "fastes" in loaded
    assert loaded & absent == set()


def test_public_names() -> None:
    for name in fastes.__all__:
        assert getattr(fastes, name).__doc__, f"{name} has no docstring"
        assert name in dir(fastes)
    with pytest.raises(AttributeError, match="no_such_name"):
        fastes.no_such_name  # noqa: B018
    assert isinstance(fastes.__version__, str)
    assert (PACKAGE / "py.typed").exists()


def test_every_module_and_public_class_has_a_docstring() -> None:
    missing = []
    for name, path in module_files().items():
        tree = ast.parse(path.read_text())
        if path.read_text().strip() and not ast.get_docstring(tree):
            missing.append(name)
        for node in tree.body:
            public = isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
            if public and isinstance(node, ast.ClassDef) and not ast.get_docstring(node):
                missing.append(f"{name}.{node.name}")
    assert missing == []


def test_no_assert_checks_an_argument() -> None:
    """Contract 4: never assert for an argument. What is asserted here has to be impossible."""
    allowed = 8
    found = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, path in module_files().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert len(found) <= allowed, found
    assert [line for line in found if not any(word in line for word in ("is not None", "callable", "isinstance"))] == []


@pytest.mark.parametrize("item", fields(Settings), ids=lambda item: item.name)
def test_every_setting_is_documented(item: object) -> None:
    metadata = item.metadata  # type: ignore[attr-defined]
    assert len(metadata["help"]) > 10
    assert metadata["group"]


def test_presets_are_valid_settings_with_a_source() -> None:
    assert "default" in all_presets()
    for name, preset in all_presets().items():
        settings = Settings().changed(**load_preset(name))
        assert settings.population_size % 2 == 0
        if name != "default":
            assert len(str(preset.get("source", ""))) > 10, f"{name} does not say where its numbers come from"
        if "-v" in name:
            for part in ("on seeds ", "python -m benchmarks.", f"--env {name}, Gymnasium ", " steps on seeds "):
                assert part in preset["source"], (
                    f"{name}'s source lacks {part!r}: seeds tuned on, score, seeds, command, versions"
                )


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5", "Swimmer-v5"]
)
def test_the_environments_of_the_first_issue_have_presets(name: str) -> None:
    assert name in all_presets()


def test_loading_a_preset_gives_a_copy() -> None:
    load_preset("default")["sigma"] = -1.0
    assert load_preset("default").get("sigma") != -1.0


def test_the_package_lists_all_its_packages() -> None:
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    packages = {
        "fastes",
        *(f"fastes.{p.parent.relative_to(PACKAGE)}".replace("/", ".") for p in PACKAGE.rglob("*/__init__.py")),
    }
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_documents_name_tests_and_files_that_exist() -> None:
    """docs/reliability.md is worth what its proofs are worth."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:tests/)?(test_\w+|\w+\.py)", text))
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*.py")}
    functions = {name for source in sources.values() for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 40
    assert sorted(name for name in named if name not in functions and name + ".py" not in sources and name not in sources) == []
