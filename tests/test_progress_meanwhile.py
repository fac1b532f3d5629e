"""Risk: a training with long episodes looks hung, since nothing moves before a generation is over."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from envs_for_tests import Toy

from fastes import FastES

TINY: dict[str, Any] = {"population_size": 4, "seed": 5, "preset": "default", "target_return": "none"}
BOUND = 60.0  # seconds; reached by a failure alone


class Waiting(Toy):
    """Toy whose fifth step returns once a file exists."""

    def __init__(self, go: str) -> None:
        super().__init__()
        self.go = go

    def step(self, action: Any) -> Any:
        end = time.monotonic() + BOUND
        while self.steps == 4 and not Path(self.go).exists() and time.monotonic() < end:
            time.sleep(0.005)
        return super().step(action)


def _once(happens: Callable[[], bool], go: Path) -> threading.Thread:
    """Makes the file when something happens, within the bound or not at all."""

    def watch() -> None:
        end = time.monotonic() + BOUND
        while time.monotonic() < end:
            if happens():
                go.touch()
                return
            time.sleep(0.005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["no workers", "workers", "vector"])
def test_steps_of_episodes_that_go_on_are_seen(kind: str, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def make() -> Any:
        return Waiting(str(go))

    env = gymnasium.vector.SyncVectorEnv([make, make]) if kind == "vector" else make
    with FastES(env, n_workers=None if kind == "vector" else 2 * (kind == "workers"), **TINY) as model:
        watch = _once(lambda: model.steps_played().candidates >= 5, go)
        model.learn(60)
        watch.join()
        assert go.exists()
        assert model.steps_played() == (model.num_timesteps, model.eval_timesteps)


def test_the_bar_moves_within_a_generation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stream, go = io.StringIO(), tmp_path / "go"
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with FastES(lambda: Waiting(str(go)), n_workers=0, **TINY) as model:
        watch = _once(lambda: "5 of 100 steps" in stream.getvalue(), go)
        model.learn(100, progress_bar=True)
        watch.join()
    assert go.exists()
