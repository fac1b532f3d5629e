"""Risk: a generation counts, scores or resumes with another number of episodes than it played."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium.vector import SyncVectorEnv
from training import assert_same_records, assert_same_state, learn, theta_of, train
from uneven import Uneven, assert_same_results, settings

from fastes import FastES, Settings
from fastes.rollout.batch import Batch
from fastes.training.fitness import fitness_of

BUDGET = 2500
SCHEDULE: dict[str, Any] = settings(
    episodes_per_candidate="lin_1_3",
    alive_bonus=0.1,
    episode_cap="share",
    episode_cap_start=5,
    episode_cap_factor=1.1,
)


def run(env: Any, n_workers: int = 0, **changes: Any) -> Any:
    with FastES(env, preset="default", n_workers=n_workers, **{**SCHEDULE, **changes}) as model:
        records = learn(model, 10**6, BUDGET)
        return model.snapshot(), records


# episodes_per_candidate


def test_each_generation_has_its_own_number() -> None:
    told: list[int] = []
    with FastES(Uneven, preset="default", n_workers=0, **SCHEDULE) as model:
        records = learn(model, 10**6, BUDGET, lambda _: told.append(len(model.last_episodes)))
        most = model.evaluator.needs()[0].episodes
    begun = [0, *(record.timesteps for record in records[:-1])]
    numbers = [int(1.0 + 2.0 * timesteps / BUDGET + 0.5) for timesteps in begun]
    assert set(numbers) == {1, 2, 3}
    assert most == 3
    candidates = SCHEDULE["population_size"]
    played = np.diff([0, *(record.episodes for record in records)])
    assert (played == candidates * np.array(numbers)).all()
    assert told == played.tolist(), "callbacks hear of as many"
    steps = np.diff([0, *(record.timesteps for record in records)])
    assert (steps / played == [record.episode_length for record in records]).all()


@pytest.mark.slow
def test_workers_lanes_and_a_pause_change_no_bit(tmp_path: Path) -> None:
    state, records = run(Uneven)
    for n_workers in (2, 0):
        with FastES(Uneven, preset="default", n_workers=n_workers, **SCHEDULE) as model:
            learn(model, len(records) // 2, BUDGET)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", Uneven, n_workers=n_workers) as model:
            assert_same_records(learn(model, 10**6, BUDGET), records[len(records) // 2 :])
            assert_same_state(model.snapshot(), state)


def test_a_vector_environment_plays_as_many() -> None:
    own = settings(episodes_per_candidate="lin_2_4", max_episode_steps=15)  # two, where there is room for four
    env = SyncVectorEnv([Uneven] * 3)
    expected, found = train(Uneven, 2, **own), train(env, 2, **own)
    env.close()
    assert_same_results(expected, found)
    assert expected.records[0].episodes == 2 * own["population_size"]


@pytest.mark.parametrize(("schedule", "number"), [("lin_2_2", 2), ("exp_3_3", 3), ("lin_1.6_4", 2)])
def test_what_is_drawn_and_learned_is_what_that_number_gives(schedule: str, number: int) -> None:
    first, second = (train(Uneven, 2, **settings(episodes_per_candidate=each)) for each in (schedule, number))
    assert (theta_of(first.state) == theta_of(second.state)).all()
    assert_same_records(first.records, second.records)


def test_the_bonus_is_for_each_of_the_episodes_that_were_played() -> None:
    returns, lengths = np.array([[10.0, 20.0]]), np.array([[30, 60]])
    batch = Batch(returns, lengths, returns, 0 * lengths, np.zeros((2, 2, 1)), 0.0, 0, "", per_candidate=3)
    fitness = fitness_of(batch, Settings(alive_bonus=1.0, episodes_per_candidate="lin_1_5"), 1, 1.0)
    assert fitness.tolist() == [[0.0, 0.0]]


def test_the_cap_follows_the_length_of_one_episode() -> None:
    own = settings(episodes_per_candidate="lin_3_1", episode_cap="mean", episode_cap_factor=1.5)
    for record in train(Toy, 3, **own).records:
        assert record.episode_cap == pytest.approx(1.5 * record.episode_length, abs=2.0)


def test_a_replay_plays_the_running_number(tmp_path: Path) -> None:
    with FastES(Toy, preset="default", n_workers=0, **settings(episodes_per_candidate="lin_1_3")) as model:
        lengths = [model.replay(1, 0).length]
        learn(model, 10**6, BUDGET)
        model.save(tmp_path / "m")
        lengths.append(model.replay(model.generation + 1, 0).length)
    assert lengths[0] <= 20 < 24 <= lengths[1], "episodes have 8 to 20 steps"


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("lin_4", ValueError, "does not stay between 1 and"),
        ("lin_1_0.5", ValueError, "'lin_1_0.5' does not stay between 1 and"),
        ("many", ValueError, "is not a schedule: expected a whole number of at least 1, 'lin_1_4'"),
        (2.5, TypeError, "2.5 is a float: expected an int, or a schedule such as 'exp_1_4'"),
        (lambda _: 2, TypeError, "is a function: expected a whole number"),
    ],
)
def test_what_is_no_number_of_episodes_is_refused(value: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"episodes_per_candidate = .*(?:{message})"):
        Settings(episodes_per_candidate=value)


# episode_cap


def test_every_episode_of_a_candidate_counts_for_the_share_that_is_cut() -> None:
    changes: dict[str, Any] = {"episodes_per_candidate": 4, "episode_cap_start": 9}
    with FastES(Uneven, preset="default", n_workers=0, **{**SCHEDULE, **changes}) as model:
        records = learn(model, 12, BUDGET)
        episodes = 4 * SCHEDULE["population_size"]
        grown = [after.episode_cap > before.episode_cap for before, after in pairwise(records)]
        assert grown == [record.episodes_cut >= 0.5 * episodes for record in records[1:]]
        assert len(set(grown)) == 2


@pytest.mark.parametrize("trials", [1, 3])
def test_a_cap_that_a_training_goes_on_with_begins_where_it_is_set(trials: int, tmp_path: Path) -> None:
    none = settings(episode_cap="none", trials=trials, rungs=2)
    with FastES(Uneven, preset="default", n_workers=0, **none) as model:
        model.learn(BUDGET, lambda m, _: m.generation < 3 or (trials > 1 and m.selection.rung < 1))
        assert len(model.selection.trials) == min(trials, 2)
        model.save(tmp_path / "m")
    grow = {"episode_cap": "grow", "episode_cap_start": 4, "episode_cap_factor": 1.001}
    with FastES.load(tmp_path / "m", Uneven, n_workers=0, **grow) as model:
        caps = [record.episode_cap for record in learn(model, 10**6, BUDGET)]
        assert caps[0] == 5, "the next generation's"
        assert max(caps) <= 4 + len(caps)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", Uneven, n_workers=0) as model:
        assert model.training.cap.steps == caps[-1] > 5, "and goes on from there"
