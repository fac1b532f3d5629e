"""Risk: processes that FastES begins run another Python than the script: other modules, other flags, other results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment

SCRIPT = """
import json, subprocess, sys
from fastes.system.child_python import python_command
sys.path.append("added")
told = "import json; print(json.dumps([sys.flags.optimize, sys.warnoptions, sys.path, sys.argv[1:]]))"
print(subprocess.run(python_command(told, "a b", "c"), check=True, capture_output=True, text=True).stdout)
"""
TRAINING = """
from fastes import FastES
from checked import Checked
with FastES(Checked, preset="default", population_size=4, seed=0, n_workers=1) as model:
    model.learn(20)
"""
CHECKED = """
from gymnasium.envs.classic_control import CartPoleEnv
class Checked(CartPoleEnv):
    def step(self, action):
        assert False
        return *super().step(action)[:2], True, False, {}
"""


def test_a_child_has_the_flags_and_the_path(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-W", "error::FutureWarning", "-c", SCRIPT]
    found = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    optimize, warnings, path, arguments = json.loads(found.stdout)
    assert (optimize, warnings, arguments) == (1, ["error::FutureWarning"], ["a b", "c"])
    assert path[-1] == "added"


@pytest.mark.parametrize(("flags", "status"), [(["-O"], 0), ([], 1)])
def test_workers_leave_out_assertions_if_the_script_does(flags: list[str], status: int, tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(CHECKED)
    (tmp_path / "script.py").write_text(TRAINING)
    command = [sys.executable, *flags, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert ended.returncode == status, ended.stderr
    assert ("AssertionError" in ended.stderr) == bool(status)
