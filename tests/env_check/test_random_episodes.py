"""Risk: random episodes are miscounted, so that an environment is called odd, or its fault is not seen."""

from __future__ import annotations

import itertools
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import AnySpaces
from gymnasium import spaces

from fastes.env_check.random_episodes import compared, play_random, random_episode


class Walk(gymnasium.Env[Any, Any]):
    """A number that the actions move: ten steps, rewarded at the last."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.at = 0, float(self.np_random.uniform(-0.1, 0.1))
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.steps, self.at = self.steps + 1, self.at + 0.01 * float(action[0])
        return self.seen(), self.reward(), self.is_over(), False, {}

    def seen(self) -> Any:
        return np.array([self.at, 0.0], np.float32)

    def reward(self) -> Any:
        return float(self.steps == 10)

    def is_over(self) -> Any:
        return self.steps == 10


def test_ends_lengths_and_rewards_are_counted() -> None:
    played = play_random(Walk(), range(5), 100, 60.0)
    assert played.returns.tolist() == [1.0] * 5
    assert played.lengths.tolist() == [10] * 5
    assert (played.terminated, played.truncated, played.cut) == (5, 0, 0)
    assert played.rewarded == pytest.approx(0.1)
    assert (played.outside, played.odd_rewards, played.odd_observations, played.is_late) == ((), 0, 0, False)
    limited = play_random(gymnasium.wrappers.TimeLimit(Walk(), 4), range(5), 100, 60.0)
    assert (limited.terminated, limited.truncated, limited.cut) == (0, 5, 0)
    assert (limited.rewarded, limited.returns.tolist()) == (0.0, [0.0] * 5)
    cut = play_random(Walk(), range(5), 3, 60.0)
    assert (cut.terminated, cut.truncated, cut.cut) == (0, 0, 5)


def test_time_ends_the_play(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()  # a second per call: one per step
    monkeypatch.setattr("fastes.env_check.random_episodes.time.monotonic", lambda: float(next(clock)))
    played = play_random(Walk(), range(40), 100, 25.0)
    assert played.is_late
    assert played.lengths.tolist() == [10, 10], "the third is left out"
    first = play_random(Walk(), range(40), 100, 4.0)
    assert first.is_late
    assert len(first.lengths) == first.cut == 1
    assert 0 < first.lengths[0] < 10


class Wide(Walk):
    def seen(self) -> Any:
        return np.array([0.5, -0.5 * self.steps], np.float32)


def test_the_value_that_leaves_its_space_farthest_is_found() -> None:
    (found,) = play_random(Wide(), range(2), 100, 60.0).outside
    assert found == ("observation[1]", -5.0, -1.0, "from -1 to 1")


class InADict(Walk):
    observation_space = spaces.Dict(a=spaces.Box(0.0, 1.0, (), np.float64), b=spaces.Tuple([spaces.Discrete(3)]))

    def seen(self) -> Any:
        return {"a": 1.0 + 1e-9, "b": (self.steps,)}


def test_parts_of_dicts_are_named_and_rounding_is_no_fault() -> None:
    (found,) = play_random(InADict(), range(2), 100, 60.0).outside
    assert (found.where, found.space) == ("observation['b'][0]", "Discrete(3)")
    assert math.isnan(found.bound)


def test_spaces_of_all_kinds_are_judged_as_they_judge_themselves() -> None:
    box = spaces.Box(-1.0, 1.0, (3,), np.float32)
    for space in (box, spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4), spaces.Dict(a=box)):
        assert play_random(AnySpaces(space, spaces.Discrete(2)), range(3), 100, 60.0).outside == ()


class Odd(Walk):
    def seen(self) -> Any:
        return np.array([math.nan if self.steps == 5 else 0.0, 0.0], np.float32)

    def reward(self) -> Any:
        return math.inf if self.steps == 3 else 0.0


def test_numbers_that_are_not_finite_are_counted() -> None:
    played = play_random(Odd(), range(3), 100, 60.0)
    assert (played.odd_observations, played.odd_rewards, played.outside) == (3, 3, ())


class Forgetful(Walk):
    """Starts as the seed says, then draws from a generator of its own."""

    def seen(self) -> Any:
        drawn = np.random.default_rng().normal() if self.steps else 0.0
        return np.array([self.at, drawn], np.float32)


class Unseeded(Walk):
    def seen(self) -> Any:
        return np.random.default_rng().normal(size=2).astype(np.float32)


class Buffered(Walk):
    """Returns the same array, which it changes."""

    def seen(self) -> Any:
        self.buffer = getattr(self, "buffer", np.zeros(2, np.float32))
        self.buffer[0] = self.at
        return self.buffer


class BufferedAndUnseeded(Buffered):
    """The first episode's array holds the second one's values at the end."""

    def seen(self) -> Any:
        self.at = float(np.random.default_rng().normal())
        return super().seen()


class DrawnWhenBuilt(Walk):
    """Another task in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.goal = float(np.random.default_rng().normal())

    def reward(self) -> Any:
        return -abs(self.at - self.goal)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Walk, (True, True)),
        (Buffered, (True, True)),
        (Forgetful, (True, False)),
        (Unseeded, (False, False)),
        (BufferedAndUnseeded, (False, False)),
    ],
)
def test_an_episode_that_is_played_again(kind: Any, expected: tuple[bool, bool]) -> None:
    env = kind()
    assert compared(*(random_episode(env, 3, 100) for _ in range(2))) == expected


def test_an_episode_that_is_played_in_two_environments() -> None:
    for kind, is_same in ((Walk, True), (DrawnWhenBuilt, False)):
        assert compared(*(random_episode(kind(), 3, 100) for _ in range(2))) == (True, is_same)


class Numbers(Walk):
    def reward(self) -> Any:
        return np.ones(3)


def test_errors_are_those_of_an_episode() -> None:
    with pytest.raises(TypeError, match="expected one number"):
        play_random(Numbers(), range(3), 100, 60.0)
