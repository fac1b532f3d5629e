"""Risk: hard starts depend on the workers or on a stop, are not the hardest, or stay when the policy or the task is another."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from training import Result, assert_same, assert_same_state, learn

from fastes import FastES
from fastes.checkpoints.writer import write_checkpoint
from fastes.training.evaluation import Evaluation
from fastes.training.hard_starts import WINDOW, HardStarts, are_fields

TOTAL = 2000
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "adaptive population": {"population_size": 4, "generation_timesteps": 150, "max_population_size": 16},
    "several episodes": {"episodes_per_candidate": 3, "hard_starts": 0.3},
    "trials": {"trials": 2, "trials_fraction": 0.4},
}


def model(n_workers: int = 0, **changes: Any) -> FastES:
    settings = {"population_size": 8, "policy_kwargs": {"net_arch": [5]}, "target_return": "none", "eval_lag": 2}
    return FastES(
        Toy, preset="default", seed=9, n_workers=n_workers, **{**settings, "hard_starts": 0.5, "eval_episodes": 8, **changes}
    )


def whole(kind: str, n_workers: int = 0) -> Result:
    with model(n_workers, **KINDS[kind]) as trained:
        records = learn(trained, 1000, TOTAL)
        return Result(trained.snapshot(), records)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_change_no_bit(kind: str) -> None:
    assert_same(whole(kind), whole(kind, n_workers=3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_changes_no_bit(kind: str, tmp_path: Path) -> None:
    """At every third generation, from a file."""
    expected, resumed = whole(kind), model(**KINDS[kind])
    ends = range(3, 1000, 3)
    for end in ends:
        with resumed:
            learn(resumed, end, TOTAL)
            resumed.save(tmp_path / "m")
            left, state = resumed.num_timesteps < TOTAL, resumed.snapshot()
        if not left:
            break
        resumed = FastES.load(tmp_path / "m", Toy, n_workers=0)
    assert_same_state(expected.state, state)


def test_part_of_the_pairs_begins_where_evaluations_returned_least() -> None:
    with model(hard_starts=0.5) as trained:
        learn(trained, 1000, TOTAL)
        training = trained.training
        known = training.hard_starts
        assert known is not None
        assert len(known.episodes) > 100
        assert training.progress_remaining < 0.5
        hardest = sorted(known.episodes, key=lambda episode: episode[1])[: int(0.08 * len(known.episodes))]
        drawn, asked = training.strategy.ask(training.progress_remaining, 40), training.ask(40)
        begins_hard = np.isin(asked.env_seed[:, 0], [seed for seed, _ in hardest])
        assert begins_hard.tolist() == [False, True] * 20
        assert len(np.unique(asked.env_seed[begins_hard])) > 3
        assert (asked.env_seed[~begins_hard] == drawn.env_seed[~begins_hard]).all()
        assert (asked.noise_index == drawn.noise_index).all()
        assert (training.ask(10).env_seed == asked.env_seed[:10]).all(), "whatever number of pairs follows"


def test_the_first_half_of_a_budget_has_none() -> None:
    with model(hard_starts=1.0) as hard, model(hard_starts=0.0) as plain:
        assert hard.learn(TOTAL, callback=lambda model, _: model.num_timesteps < TOTAL // 2).theta.tolist() == (
            plain.learn(TOTAL, callback=lambda model, _: model.num_timesteps < TOTAL // 2).theta.tolist()
        )
        assert hard.learn(TOTAL).theta.tolist() != plain.learn(TOTAL).theta.tolist()


def test_episodes_of_another_policy_or_task_are_forgotten() -> None:
    with model() as trained:
        learn(trained, 1000, TOTAL)
        before = trained.training.hard_starts
        trained.set_theta(np.zeros(trained.num_params))
        assert trained.training.hard_starts == HardStarts(0.5)
        trained.training = trained.training._replace(hard_starts=before)
        trained.use_env(Toy)
        assert trained.training.hard_starts == HardStarts(0.5)


def test_the_window_is_bounded_and_has_finite_returns() -> None:
    starts = HardStarts(0.5)
    for first in range(0, 1000, 100):
        returns = np.where(np.arange(100) % 10 == 0, np.nan, 1.0)
        starts = starts.after(Evaluation(returns, np.ones(100, np.int64), np.arange(first, first + 100)))
    assert len(starts.episodes) == WINDOW
    assert starts.episodes[-1] == (999, 1.0)
    assert all(math.isfinite(value) for _, value in starts.episodes)


def test_a_checkpoint_from_before_the_setting_is_read(tmp_path: Path) -> None:
    with model(hard_starts=0.0) as trained:
        learn(trained, 3, TOTAL)
        snapshot = trained.snapshot()
    assert snapshot.data["trainings"][0].pop("hard_starts", 0) is None
    write_checkpoint(tmp_path / "m", snapshot)
    with FastES.load(tmp_path / "m", Toy, n_workers=0, hard_starts=0.5) as loaded:
        assert loaded.training.hard_starts == HardStarts(0.5)
        assert loaded.learn(TOTAL).training.hard_starts.episodes


@pytest.mark.parametrize(
    "odd", [[[1, 10**400]], [[1, math.nan]], [[1, None]], [[2**31, 1.0]], [[-1, 1.0]], [[1]], [1], {"a": 1}]
)
def test_an_edited_record_is_known(odd: Any) -> None:
    assert not are_fields(odd)
    assert are_fields([[1, 2.5]])
