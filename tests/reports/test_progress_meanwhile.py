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
from fastes.models.one_pool import one_pool
from fastes.pools.pool import run_to_end, side_by_side
from fastes.reports.callbacks import Callback
from fastes.reports.progress_bar import SeedsBar
from fastes.seeds import make_models

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


class CountsOnce(Callback):
    """Looks when nothing is played. seen: of what it was told then."""

    def __init__(self) -> None:
        self.seen = set[str]()

    def _look(self, model: Any, what: str) -> None:
        self.seen.add(what)
        assert model.steps_played() == (model.num_timesteps, model.eval_timesteps), what

    def on_generation(self, model: Any, record: Any) -> None:
        self._look(model, "generation")

    def on_rung(self, model: Any, rung: Any) -> None:
        self._look(model, "rung")

    def on_final_selection(self, model: Any, result: Any) -> None:
        self._look(model, "final selection")


def test_no_step_is_counted_twice() -> None:
    """Of the last trial in a rung, whose generations end when no other trial plays, and of a final selection."""
    looks = CountsOnce()
    with FastES(lambda: Toy(noisy=True), n_workers=0, trials=3, rungs=2, archive_size=2, eval_lag=0, **TINY) as model:
        model.learn(600, looks)
    assert looks.seen == {"generation", "rung", "final selection"}


def test_steps_that_no_training_counts_are_not_those_of_others() -> None:
    """Of the proof that one is solved, and of the generation that was played meanwhile."""
    settings = {**TINY, "target_return": -1e9, "target_episodes": 2, "eval_lag": 0}
    models = make_models(lambda seed: FastES(lambda: Toy(), **{**settings, "seed": seed}, n_workers=2), range(2))
    bar = SeedsBar(2, judging=2)
    with one_pool(models):
        run_to_end(side_by_side(*[model.learn_async(400, [bar]) for model in models]))
        dropped = [model.dropped_steps for model in models]
        assert all(steps.candidates > 0 and steps.evaluations > 0 for steps in dropped), dropped
        progress = bar.progress()
        counted = sum(sum(model.steps_played()) for model in models)
        assert progress.rate * progress.seconds == pytest.approx(counted), "none is counted beside the trainings' own"
        bar.close()
    for model in models:
        model.close()
