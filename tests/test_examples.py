"""Risk: an example does not run, or does not do what it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOWN = {  # script -> the packages that it needs, and its output as a pattern
    "black_box": ((), r"found \[[\d. ]+\] value -0\.0\d+"),
    "black_box_with_cmaes": (("cmaes",), r"loss \d\.\de-0[3-9] of FastES, \d\.\de-\d\d of CMA-ES"),
    "cluster/one_machine": (("ray",), r"return 500\.0 the same parameters: True"),
    "native/train": ((), r"return 500\.0 after 1\d{5} timesteps\nfirst action [01] reward 1\.0"),
    "own_environment": ((), r"return -(1\d|2[0-3])\.\d \+- \d+\.\d after \d+ timesteps"),
    "pixels": ((), r"return 0\.\d\d before, (1\.00|0\.9\d) after \d+ timesteps"),
    "resume": ((), r"the same parameters: True after 3\d{4} timesteps"),
    "sb3_callbacks": (
        ("stable_baselines3",),
        r"generation 1: mean return \d+\.\d, .*best mean return: [45]\d\d",
    ),
    "torch_policy": (("torch",), r"return (500|49\d) after \d+ timesteps.*its first weights \[-?\d"),
}


def test_every_script_is_tried() -> None:
    assert {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.py")} == set(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_does_what_it_shows(name: str, tmp_path: Path) -> None:
    needed, shown = SHOWN[name]
    for package in needed:
        pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(shown, done.stdout, re.DOTALL), done.stdout
