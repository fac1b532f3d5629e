"""Risk: layers grow together, importing gets slow, a setting is undocumented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from processes import environment

import fastes
from fastes.setting_fields import described
from fastes.settings.preset_loader import all_presets, load_preset, tomllib
from fastes.settings.settings import Settings

PACKAGE = Path(fastes.__file__).parent
ROOT = Path(__file__).parents[1]
OF_THE_DOOR = ("__version__", "import_home")  # what any module may import from the package itself
# private names of the package that tests may use
OF_SB3 = {  # scripts that were written for it read them on a model, so the adapter has them on purpose
    "_current_progress_remaining",
    "_custom_logger",
    "_dump_logs",
    "_episode_num",
    "_last_episode_starts",
    "_last_obs",
    "_n_updates",
    "_total_timesteps",
    "_vec_normalize_env",
}
OF_PYTHON_AND_GYMNASIUM = {"_actions", "_np_random", "_replace"}  # of argparse, environments and named tuples, too
OF_IPYTHON = {"_repr_html_", "_repr_png_"}  # it calls them on any object that a cell gives
LONGEST_CHAIN = 20
LAYER = re.compile(r"^\| (`[\w./]+`(?:, `[\w./]+`)*) \| ([^|]+) \|$", re.MULTILINE)


@cache
def rows() -> tuple[tuple[str, ...], ...]:
    """The rows of the table in docs/architecture.md, lowest first: folders and modules of the package, '' for the door."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = [re.findall(r"`([\w./]+)`", names) for names, _ in reversed(LAYER.findall(text))]
    return tuple(tuple(n.removesuffix("/").removesuffix(".py").replace("__init__", "") for n in names) for names in found)


@cache
def layers() -> dict[str, int]:
    """Folder or module of the package -> the rank of its row, from 0 for the lowest."""
    return {name: rank for rank, names in enumerate(rows()) for name in names}


def layer_of(module: str) -> str:
    """The folder or module of the table that has a module; KeyError if the table does not have it."""
    top = module.partition(".")[0]
    if top not in layers():
        raise KeyError(f"docs/architecture.md has no layer for fastes.{module}")
    return top


@cache
def module_files() -> dict[str, Path]:
    """Module name without 'fastes.' -> file."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _import_nodes(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """Every import: inside of functions, and for types alone, too."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]


@cache
def imports_of(name: str) -> frozenset[str]:
    """Modules that a module imports: those of the package without 'fastes.', others by their top name with a colon."""
    modules = module_files()
    found: set[str] = set()
    for node in _import_nodes(tree_of(modules[name])):
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
            elif rest not in OF_THE_DOOR and ((parent := rest.rpartition(".")[0]) in modules or parent == "_core"):
                found.add(parent)  # '' for a public name, which only what is above the door may import
    return frozenset(found - {name})


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


@cache
def longest_chain_from(name: str) -> int:
    """Modules in the longest chain of imports that begins with a module."""
    return 1 + max((longest_chain_from(each) for each in imports_of(name) if each in module_files()), default=0)


def belongs(module: str, group: str) -> bool:
    return module == group or module.startswith(group + ".")


def modules_of(group: str) -> list[str]:
    return [name for name in module_files() if belongs(name, group)]


def test_the_walk_sees_imports() -> None:
    assert "es.strategy" in imports_of("training.training")
    assert "_core" in imports_of("es.strategy")
    assert "pools.processes.worker_process" in imports_of("pools.processes.worker")
    assert ":numpy" in imports_of("es.perturbations")
    assert ":torch" in imports_of("policies.torch_policy"), "for types, and in functions"
    assert {"es.strategy", "es.noise_table", "es.optimizers"} <= reach_of("cli.main")
    assert len(modules_of("pools")) >= 5


def test_every_file_has_a_layer() -> None:
    assert {layer_of(module) for module in module_files()} == set(layers())
    assert len(layers()) == sum(map(len, rows()))


def test_the_layers_do_not_grow() -> None:
    """A change that needs one more, or a longer chain of imports, is to reshape something first."""
    assert len(rows()) <= 14
    assert max(map(longest_chain_from, module_files())) <= LONGEST_CHAIN


def test_imports_point_one_way() -> None:
    """To the rows below in the table of layers; `from fastes import` of a public name is one of the door's."""
    rank = layers()
    wrong = [
        f"{module} imports {target}"
        for module in module_files()
        for target in imports_of(module)
        if not target.startswith(":") and target != "_core" and rank[layer_of(target)] > rank[layer_of(module)]
    ]
    assert wrong == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [name for name in module_files() if name in reach_of(name)] == []


def test_no_module_reaches_into_another() -> None:
    """A private name of an object, a class or a module is used only in the file that has it."""
    found = []
    for name, path in module_files().items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastes."):
                found += [f"{name} imports {each.name}" for each in node.names if _is_private(each.name)]
    assert found == []


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_core"


def _private_names_made_in(tree: ast.AST) -> set[str]:
    """Private functions, classes, variables and attributes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if name != "_" and _is_private(name)}


def _private_names_used_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each that is imported, or is an attribute; in strings too, which name what is patched or are scripts.

    What a file makes itself, its objects may use on `self`.
    """
    own = _private_names_made_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_own = node.attr in own and ast.unparse(node.value) in ("self", "cls", "super()")
            yield from [] if is_own else [(node.lineno, node.attr)]
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, name) for name in re.findall(r"[\w)\]]\.(_\w+)", node.value))
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("setattr", "getattr", "delattr"):
            names = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
            yield from ((node.lineno, str(name)) for name in names)


def _name_of(function: ast.expr) -> str:
    """The last part of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def test_no_test_reaches_into_a_private_name() -> None:
    """What a test needs is public, or it is tested through what is: private names may change without a test."""
    private = {name for path in module_files().values() for name in _private_names_made_in(tree_of(path))}
    private -= OF_SB3 | OF_PYTHON_AND_GYMNASIUM | OF_IPYTHON
    assert len(private) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in _private_names_used_in(ast.parse(path.read_text(encoding="utf-8")))
        if name in private
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "pool._hidden",
        "pool._hidden[0].x = 1",
        "from fastes.pools.block_pool import _hidden",
        "patch.setattr('fastes.pools.block_pool._hidden', 1)",
        "monkeypatch.setattr(pool, '_hidden', 1)",
        "run_script('print(pool._hidden)')",
        "class Own(BlockPool):\n    def look(self): return self._hidden",
    ],
)
def test_the_look_for_private_names_finds_them(source: str) -> None:
    assert "_hidden" in {name for _, name in _private_names_used_in(ast.parse(source))}


def test_the_loop_knows_no_stable_baselines3() -> None:
    """Delete fastes/sb3 and the one import of it, and everything but SB3's names is there."""
    above = {"sb3", "model", "seeds", "porting", "env_check", "cli", "zoo", "", "__main__"}
    for module in module_files():
        if layer_of(module) not in above:
            assert [target for target in reach_of(module) if belongs(target, "sb3")] == [], module
    assert [name for name in module_files() if "sb3.adapter" in imports_of(name)] == ["model"]


def test_the_picture_is_drawn_from_the_layers() -> None:
    drawn = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "scripts" / "draw_architecture.py"), "-"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert drawn.stdout == (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8"), "run `make docs`"


def test_a_worker_knows_no_strategy_and_no_optimiser() -> None:
    forbidden = (
        "es.strategy",
        "es.optimizers",
        "es.fitness_shaping",
        "es.schedules",
        "es.hyperparameters",
        "es.sigma_adaptation",
        "models",
        "agent",
        "settings",
        "checkpoints",
        "cli",
    )
    for module in (*modules_of("rollout"), *modules_of("pools")):
        met = [target for target in reach_of(module) if any(belongs(target, name) for name in forbidden)]
        assert met == [], module


def test_a_strategy_knows_no_process_and_no_environment() -> None:
    reach = reach_of("es.strategy") | imports_of("es.strategy")
    names = ("pools", "rollout", "envs", "policies", "agent", "settings")
    assert [target for target in reach if any(belongs(target, name) for name in names)] == []
    assert not reach & {":gymnasium", ":multiprocessing", ":subprocess", ":cloudpickle", ":mujoco"}


def test_nothing_imports_torch_or_ray() -> None:
    heavy = {":torch", ":ray", ":stable_baselines3", ":cv2", ":scipy"}
    found = {name: sorted(imports_of(name) & heavy) for name in module_files() if imports_of(name) & heavy}
    assert found == {
        "pools.cluster.connection": [":ray"],
        "sb3.training_envs": [":stable_baselines3"],  # only where SB3 is in use already
        "policies.torch_policy": [":torch"],  # in functions: the user has made a module
        "weights.torch_module": [":torch"],  # of policy.to_torch(), which is asked for
    }
    assert not [name for name in module_files() if "envs.atari.game" in imports_of(name)]


def test_no_file_collects_everything() -> None:
    words = ("util", "helper", "misc", "manager", "common")
    assert [name for name in module_files() if any(word in name.lower() for word in words)] == []


def test_the_tests_of_a_folder_are_in_a_folder_of_its_name() -> None:
    """Of the package, or of the repository, as src/ is; what several test files share is in helpers/."""
    tests = ROOT / "tests"
    folders = {str(path.parent.relative_to(tests)) for path in tests.rglob("*.py")}
    of_the_repository = {"src", "benchmarks", "docs", "wheels"}
    assert {"es", "pools/cluster", *of_the_repository} < folders
    others = folders - of_the_repository - {"helpers", "helpers/twins", "."}
    assert sorted(name for name in others if not (PACKAGE / name).is_dir()) == []


def test_no_test_file_imports_another() -> None:
    """Scripts for other processes, which are strings in them, may import the file that they are in."""
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^\s*(?:from|import) (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if name != path.stem
    ]
    assert found == []


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
        (
            "from fastes.pools.processes.worker_messages import report_errors_to_parent",
            HEAVY | {"numpy", "gymnasium", "cloudpickle"},
        ),
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
        tree = tree_of(path)
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
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assert)
    ]
    assert len(found) <= allowed, found
    assert [line for line in found if not any(word in line for word in ("is not None", "callable", "isinstance"))] == []


@pytest.mark.parametrize("item", fields(Settings), ids=lambda item: item.name)
def test_every_setting_is_documented(item: Field[Any]) -> None:
    told = described(item)
    assert len(told.help) > 10
    assert told.group


def test_presets_are_valid_settings_with_a_source() -> None:
    assert "default" in all_presets()
    for name, preset in all_presets().items():
        settings = Settings().changed(**load_preset(name))
        assert settings.population_size % 2 == 0
        if name != "default":
            assert len(str(preset.get("source", ""))) > 10, f"{name} does not say where its numbers come from"
        if "-v" in name:
            is_long = name == "Humanoid-v5"  # trained as users train
            command = f"fastes train {name} --seed" if is_long else f"--env {name}, Gymnasium "
            measured = "fastes eval" if is_long else "python -m benchmarks."
            for part in ("on seeds ", measured, command, "Gymnasium ", " steps on seeds "):
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
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        assert package in packages
        folder = PACKAGE.parent / package.replace(".", "/")
        assert all(list(folder.glob(pattern)) for pattern in patterns), f"{package} ships nothing"


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/design/extending.md", "CONTRIBUTING.md"])
def test_maps_name_files_that_exist(page: str) -> None:
    """By their paths in the package, the core or the repository: a map that leads nowhere makes readers hunt."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.(?:py|pyi|pyx|pxi|toml|inc))`", text))
    roots = (ROOT, ROOT / "fastes", ROOT / "src")
    assert len(named) > 3
    assert sorted(name for name in named if not any((root / name).is_file() for root in roots)) == []


def test_documents_name_tests_and_files_that_exist() -> None:
    """docs/reliability.md is worth what its proofs are worth."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:tests/)?(test_\w+|\w+\.py)", text))
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    functions = {name for source in sources.values() for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 40
    assert sorted(name for name in named if name not in functions and name + ".py" not in sources and name not in sources) == []
