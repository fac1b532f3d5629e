"""Risk: the benchmark of clusters times the local pool while Ray's processes run, or compares trainings that differ."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from processes import environment

from benchmarks.speed import cluster


def test_a_local_stretch_starts_without_ray() -> None:
    given = {"env": "CartPole-v1", "workers": 1, "generations": 1, "on_ray": False}
    code = (
        "import sys; from benchmarks.speed.cluster_stretch import stretch\n"
        f"said = stretch({given!r}); assert said['seconds'] > 0.0\nprint('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("differs", [False, True])
def test_stretches_alternate_and_have_to_agree(monkeypatch: pytest.MonkeyPatch, differs: bool) -> None:
    asked = list[bool]()

    def answer(_: str, given: dict[str, Any], *more: object) -> Iterator[dict[str, Any]]:
        json.dumps(given)
        asked.append(given["on_ray"])
        yield {"seconds": float(len(asked)), "theta": str(differs and given["on_ray"])}

    monkeypatch.setattr(cluster, "records_of", answer)
    if differs:
        with pytest.raises(AssertionError, match="results differ"):
            cluster.measure("CartPole-v1", 1, 1, 2)
    else:
        assert cluster.measure("CartPole-v1", 1, 1, 2) == ([1.0, 3.0], [2.0, 4.0])
        assert asked == [False, True, False, True]
