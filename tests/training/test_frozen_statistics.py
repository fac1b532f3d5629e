"""Risk: statistics that were to stay go on, or begin again with a checkpoint; or they stay when nothing was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faults import SETTINGS
from training import assert_same, learn, train
from uneven import Uneven

from fastes import FastES

FROZEN: dict[str, Any] = {**SETTINGS, "obs_freeze_after": 100}


def test_statistics_stay_from_the_generation_that_reaches_the_number() -> None:
    counts = []
    with FastES(Uneven, preset="default", n_workers=0, **FROZEN) as model:
        for _ in range(6):
            learn(model, 1)
            counts.append(model.normalizer.count)
            mean = model.normalizer.mean.copy()
        learn(model, 1)
        assert (model.normalizer.mean == mean).all()
        steps = model.num_timesteps
    assert counts == sorted(counts)
    reached = [count for count in counts if count >= 100]
    assert len(reached) >= 2, "there are generations after it"
    assert set(reached) == {reached[0]}
    assert reached[0] < steps, "steps go on"


def test_without_it_every_generation_counts() -> None:
    with FastES(Uneven, preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 6)
        assert model.normalizer.count == model.num_timesteps > 100


def test_workers_and_a_checkpoint_change_no_bit(tmp_path: Path) -> None:
    expected = train(Uneven, 6, **FROZEN)
    assert_same(expected, train(Uneven, 6, 2, **FROZEN))
    with FastES(Uneven, preset="default", n_workers=0, **FROZEN) as model:
        learn(model, 5)
        frozen = model.normalizer.count
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Uneven, n_workers=0) as model:
        learn(model, 1)
        assert model.normalizer.count == frozen < model.num_timesteps
        assert (model.theta == expected.state.arrays["trainings"]["0.theta"]).all()
