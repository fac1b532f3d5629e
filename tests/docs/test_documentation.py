"""Risk: what README and the site tell readers to type does not run."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import fastes
from fastes.cli.main import build_parser
from fastes.policies.policy_keywords import KEYS
from fastes.setting_fields import described
from fastes.settings.preset_loader import all_presets, load_preset
from fastes.settings.settings import Settings, setting_names

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "scripts"


def script(name: str) -> Any:
    """A script of docs/scripts as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # dataclasses and NamedTuples look there
    spec.loader.exec_module(module)
    return module


run_blocks = script("run_blocks")

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_BLOCKS = [page for page in PAGES if any(block.run for block in run_blocks.blocks_of(page.read_text(encoding="utf-8")))]


def test_make_pictures_draws_every_picture() -> None:
    """A page's picture that nothing draws cannot be brought up to date. Benchmarks draw those of what they measure."""
    shown = {path.name for path in (ROOT / "docs").rglob("*") if path.suffix in (".svg", ".gif", ".png")}
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\npictures:")[2].partition("\n\n")[0]
    scripts = set(re.findall(r"docs/scripts/\w+\.py", recipe))
    scripts |= {f"{name.replace('.', '/')}.py" for name in re.findall(r"-m (benchmarks\.[\w.]+)", recipe)}
    texts = [recipe, *((ROOT / path).read_text(encoding="utf-8") for path in scripts)]
    drawn = {name for name in shown if any(name in text for text in texts)}
    assert {"HalfCheetah-v5.gif", "Humanoid-v5.gif", "architecture.svg"} <= drawn
    assert shown - drawn <= {"watch.png"}, "a screenshot"


def test_the_colours_of_readmes_robots_change_nothing_that_a_policy_sees() -> None:
    pytest.importorskip("mujoco")
    plain = gymnasium.make("HalfCheetah-v5")
    light = script("light_robot").LightRobot(gymnasium.make("HalfCheetah-v5"))
    assert (light.unwrapped.model.geom_rgba != plain.unwrapped.model.geom_rgba).any()  # type: ignore[attr-defined]
    action = np.full(6, 0.3, dtype=np.float32)
    for env in (plain, light):
        env.reset(seed=0)
    for _ in range(100):
        ours, theirs = light.step(action), plain.step(action)
        assert (ours[0] == theirs[0]).all()
        assert ours[1:4] == theirs[1:4]


def test_blocks_are_found() -> None:
    text = (
        "a\n\n```python\nx = 1\n```\n<!-- not run: long -->\n```bash\nls\n```\n\n<!-- not run: long -->\n\n```bash\nls\n```\n"
    )
    found = [(block.line, block.language, block.code, block.run) for block in run_blocks.blocks_of(text)]
    assert found == [(4, "python", "x = 1\n", True), (8, "bash", "ls\n", False), (14, "bash", "ls\n", False)]


def test_what_a_program_prints_is_compared_with_what_the_page_shows(tmp_path: Path) -> None:
    (block,) = run_blocks.blocks_of("\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\n2\n```\n")
    assert block.output == "1\n"
    shown = "return -92 before, -28 after\n"
    assert run_blocks.prints_as_shown(shown, "return -95 before,  -27.5 after\n")
    for other in ("return -92 before, -18 after\n", "return -92 before\n", "", shown + shown, "score -92 before, -28 after\n"):
        assert not run_blocks.prints_as_shown(shown, other)
    for said, alike in (("1\n2\n3\n4\n", True), ("1\n4\n", True), ("4\n", False), ("1\n2\n3\n", False)):
        assert run_blocks.prints_as_shown("1\n...\n4\n", said) == alike
    for said, alike in (("1\n3\n4\n", True), ("1\n2\n3\n2\n4\n", True), ("1\n2\n4\n", False), ("1\n3\n3\n", False)):
        assert run_blocks.prints_as_shown("1\n...\n3\n ...\n4\n", said) == alike
    assert run_blocks.prints_as_shown("1\n...\n4\n", "1\n", whole=False)
    assert not run_blocks.prints_as_shown("1\n...\n4\n", "3\n4\n", whole=False)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "run_blocks.py"), str(page)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode
    assert "page.md, line 2: it printed\n1\nand not\n3" in done.stderr


def test_only_what_depends_on_the_machine_may_be_any_number() -> None:
    row = "    1      4000     -26.9       0.8         -     -    88%        0     2.01       inf     250    {:>5}   {:>2}%\n"
    assert run_blocks.prints_as_shown(row.format(11258, 29), row.format(400, 3))
    assert not run_blocks.prints_as_shown(row.format(11258, 29), row.replace("4000", "9000").format(11258, 29))
    line = "{} timesteps in 328 generations, 2 workers, {} s\n"
    assert run_blocks.prints_as_shown(line.format(2000, 86.8), line.format(2000, 400.1).replace("2 workers", "16 workers"))
    assert not run_blocks.prints_as_shown(line.format(2000, 86.8), line.format(3000, 86.8))
    line = "speed  {} steps/s in one process: {} steps take about {} on {} cores\n"
    assert run_blocks.prints_as_shown(line.format("1,200", "5,000", "21 s", 2), line.format("90", "5,000", "2.1 days", 64))
    assert not run_blocks.prints_as_shown(line.format("1,200", "5,000", "21 s", 2), line.format("90", "7,000", "2.1 days", 64))


def test_a_sample_behind_a_command_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for shown, ok in (("1\n...\n9", True), ("2\n...\n9", False)):
        page.write_text(f"```bash\necho 1; echo 3\n```\n\n```text\n{shown}\n```\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "run_blocks.py"), str(page)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode == 0) == ok, done.stderr


def test_a_block_that_is_a_file_can_be_imported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: own_words.py -->\n```python\nWORD = 'said'\n```\n\n```python\nimport own_words\nprint(own_words.WORD)\n"
        "```\n\n```text\nsaid\n```\n",
        encoding="utf-8",
    )
    command = [sys.executable, str(SCRIPTS / "run_blocks.py"), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    page.write_text(page.read_text().replace("<!-- file: own_words.py -->\n", ""))
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).returncode


def test_blocks_that_fail_are_seen(tmp_path: Path) -> None:
    failing = (("python", "print(1)\nnot_there", 5), ("bash", "false\ntrue", 4), ("bash", "fastes eval not_there.zip\ntrue", 4))
    for name, code, line in failing:
        page = tmp_path / f"{name}.md"
        page.write_text(f"# Page\n\n```{name}\n{code}\n```\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "run_blocks.py"), str(page)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode
        assert f"{name}.md" in done.stderr
        assert f"line {line}" in done.stderr


def test_every_block_is_python_or_bash_or_says_what_it_shows() -> None:
    """A block without a language, or indented, would never be run."""
    for page in PAGES:
        inside = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                language = line.strip("`")
                inside = not inside
                assert not inside or language, f"{page}:{number}: a block without a language"
                assert language not in ("sh", "console", "py", "shell"), f"{page}:{number}: fence it as bash or python"
            assert inside or not line.startswith("    $ ") or page.name == "README.md", f"{page}:{number}: fence it as bash"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    if missing := run_blocks.missing_modules(page.read_text(encoding="utf-8")):
        pytest.skip(f"needs {', '.join(missing)}")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "run_blocks.py"), str(page)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_the_page_of_the_api_names_what_there_is() -> None:
    """Every public name, and no member that is gone or has no docstring."""
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    directives = re.findall(r"^\.\. auto(\w+):: (\S+)\n((?:   .*\n)*)", text, re.MULTILINE)
    assert {name.removeprefix("fastes.") for _, name, _ in directives} >= set(fastes.__all__)
    for kind, path, options in directives:
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(module), name)
        assert thing.__doc__
        found = re.search(r":members: ((?:[\w, ]|\n(?!   :))+)", options)
        for member in found[1].replace("\n", " ").split(",") if found else ():
            assert kind == "class"
            assert getattr(thing, member.strip()).__doc__ or ":undoc-members:" in options, f"{path}.{member.strip()}"
        assert ":inherited-members:" not in options, "it lists every member, those for other modules too"


@pytest.mark.parametrize("name", ["settings.md", "preset-settings.md", "command-line.md"])
def test_reference_pages_follow_the_code(name: str) -> None:
    made = script("make_reference")
    assert (made.REFERENCE / name).read_text(encoding="utf-8") == made.PAGES[name](), "run `make docs`"


def test_flags_of_policy_kwargs_are_on_the_page_of_settings() -> None:
    made = script("make_reference")
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    flags = [action for action in commands.choices["train"]._actions if action.dest in KEYS]
    assert {action.option_strings[0] for action in flags} == {key.flag for key in KEYS.values()}
    assert {action.dest for action in flags} == set(KEYS)
    rows = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)` \|", made.settings_page(), re.MULTILINE)
    assert rows == [(key.name, key.flag) for key in KEYS.values()]


def test_a_flag_with_a_bar_does_not_break_its_table() -> None:
    made, parser = script("make_reference"), argparse.ArgumentParser()
    assert made._usage(parser.add_argument("--cnn", metavar="NAME|JSON")) == r"`--cnn NAME\|JSON`"
    for name in made.PAGES:
        tables = re.findall(r"(?:^\|.*\n)+", (made.REFERENCE / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert tables
        for table in tables:
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
            assert len(cells) == 1, table


def test_settings_without_a_measured_gain_are_apart() -> None:
    """No preset of an environment sets one of them; what is listed as measured is a setting, and its tasks have presets."""
    made = script("make_reference")
    head, _, apart = made.settings_page().partition("## Policy keywords")[0].partition("## No measured gain yet")
    without = set(re.findall(r"^\| `(\w+)`", apart, re.MULTILINE))
    assert "perturbed_fraction" in without
    assert without | set(re.findall(r"^\| `(\w+)`", head, re.MULTILINE)) == set(setting_names())
    told = {item.name: described(item) for item in fields(Settings)}
    measured = {name for name, each in told.items() if each.gain}
    other_ends = {name for name, each in told.items() if not each.affects_learning}
    assert {name for name, each in told.items() if each.first} <= measured | other_ends
    assert without == set(told) - measured - other_ends
    assert not measured & other_ends
    assert set(re.findall(r"\w+-v\d", " ".join(each.gain for each in told.values()))) <= set(all_presets())
    for name in all_presets():
        assert "-v" not in name or not without & set(load_preset(name)), f"{name} changes what has no measured gain"
