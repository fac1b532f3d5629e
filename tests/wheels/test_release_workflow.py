"""Risk: a release is uploaded that was not tested, or under a version that its tag does not name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".github" / "workflows" / "release.yml"


def jobs() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8"))["jobs"])


def step_of(job: str, name: str) -> dict[str, Any]:
    return next(step for step in jobs()[job]["steps"] if step.get("name", "").startswith(name))


@pytest.mark.parametrize(("tag", "fits"), [("v0.1.0", True), ("v0.1.1", False), ("0.1.0x", False), ("v0.1", False)])
def test_a_tag_must_be_the_version_that_is_built(tag: str, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "fastes-0.1.0.tar.gz").touch()
    step = step_of("sdist", "Compare the tag")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, "TAG": tag},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode == 0) == fits, done.stderr
    assert fits or (tag in done.stderr and "fastes-0.1.0.tar.gz" in done.stderr)
    assert step["env"] == {"TAG": "${{ github.ref_name }}"}


def test_everything_is_tested_before_anything_is_uploaded() -> None:
    """And a run that was started by hand uploads nothing."""
    found = jobs()
    uploads = {
        name for name, job in found.items() for step in job["steps"] if step.get("uses", "").startswith("pypa/gh-action-pypi")
    }
    assert uploads == {"publish"}
    assert set(found["publish"]["needs"]) == set(found) - uploads
    assert found["publish"]["if"] == "github.event_name == 'push'"
    assert not any(step.get("continue-on-error") for job in found.values() for step in job["steps"])


def test_only_the_upload_may_write() -> None:
    everywhere = yaml.safe_load(FILE.read_text(encoding="utf-8"))["permissions"]
    assert everywhere == {}
    for name, job in jobs().items():
        writes = {scope for scope, level in job["permissions"].items() if level != "read"}
        assert writes == ({"attestations", "id-token"} if name == "publish" else set())
    assert "secrets." not in FILE.read_text(encoding="utf-8")


def test_what_wheels_are_built_and_tested_stands_in_pyproject_alone() -> None:
    assert "CIBW_" not in FILE.read_text(encoding="utf-8")
    assert "with" not in step_of("wheels", "Build the wheels")
