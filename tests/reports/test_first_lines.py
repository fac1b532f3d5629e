"""Risk: the first lines of a training say something wrong of the task, play episodes of their own, or are said twice."""

from __future__ import annotations

import io
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from gymnasium import spaces
from training import assert_same_state

from fastes import Callback, FastES
from fastes.reports.console_log import ConsoleLog
from fastes.reports.task_in_words import (
    leaves_its_space,
    lengths_in_words,
    nothing_to_climb,
    returns_in_words,
    space_in_words,
)
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.system.digits import duration_in_words, number_in_words

SMALL: dict[str, Any] = {"preset": "default", "population_size": 4, "n_workers": 0, "seed": 0, "target_return": "none"}


def lines_of(env: Any, timesteps: int = 300, **changes: Any) -> list[str]:
    file = io.StringIO()
    with FastES(env, **{**SMALL, **changes}) as model:
        model.learn(timesteps, ConsoleLog(file))
    return file.getvalue().splitlines()


def test_the_task_and_its_first_episodes_come_first() -> None:
    task, limit, first, header, *rows = lines_of(Toy)
    assert task == (
        "observations Box(3,) of float64; actions Box(2,) of float32 from -1 to 1; steps in Python: Toy is not known in C; "
        "preset 'default': MlpPolicy, 4,546 parameters"
    )
    assert "no limit of steps that is known" in limit
    assert re.fullmatch(r"first 4 episodes: \d+ to \d+ steps, return -?[\d.]+ to -?[\d.]+, mean -?[\d.]+ \+- [\d.]+", first)
    assert header.split()[0] == "gen"
    assert all(row.split()[0].isdigit() for row in rows)


class ReadsInfos(Callback):
    reads_infos = True


def other_spaces() -> Any:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.unwrapped.observation_space = gymnasium.spaces.Box(-9.0, 9.0, (4,), np.float64)
    env.unwrapped.action_space = gymnasium.spaces.Discrete(2, start=1)
    return env


@pytest.mark.parametrize(
    ("env", "more", "callbacks", "words"),
    [
        ("CartPole-v1", {}, [], "in C"),
        ("CartPole-v1", {"native": "off"}, [], "in Python: native = 'off'"),
        ("CartPole-v1", {}, [ReadsInfos()], "in Python: a callback reads infos"),
        (other_spaces, {}, [], "in Python: its policy or its spaces are not those of C"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), {}, [], "in Python: it is a vector environment"),
        ("FrozenLake-v1", {}, [], "in Python: FrozenLakeEnv is not known in C"),
    ],
)
def test_the_line_says_what_the_workers_do(env: Any, more: dict[str, Any], callbacks: list[Any], words: str) -> None:
    """What they refuse with native='on' is what the line says."""
    file = io.StringIO()
    given = env() if "vector" in words else env
    with FastES(given, **{**SMALL, **more}) as model:
        model.learn(100, [ConsoleLog(file), *callbacks])
    assert f"; steps {words}; " in file.getvalue().splitlines()[0]
    if words != "in C" and not more and "vector" not in words:
        with FastES(env, **SMALL, native="on") as model, pytest.raises(ValueError, match=words.partition(": ")[2]):
            model.learn(100, callbacks)


def test_its_own_preset_and_a_race_are_named() -> None:
    task, *_ = lines_of("CartPole-v1", preset="auto")
    assert task.endswith("actions Discrete(2); steps in C; its preset: LinearPolicy, 8 parameters")
    task, race, first, *_ = lines_of(lambda: gymnasium.make("CartPole-v1"), preset="auto", timesteps=50_000)
    assert task == "observations Box(4,) of float32; actions Discrete(2); steps in C"
    assert "up to 5 recipes race; they train on 35% of the budget, and scoring takes more of it (linear as trial 1" in race
    assert first.startswith("first 4 episodes"), "all of them race"
    _, _, few, *_ = lines_of(lambda: gymnasium.make("CartPole-v1"), preset="auto", timesteps=5000)
    assert few == "the budget is large enough for 3 of them: linear, unbiased, sampled"


def test_a_race_names_the_policy_that_the_user_gave_and_a_preset_that_does_not_fit() -> None:
    _, race, *_ = lines_of(lambda: gymnasium.make("CartPole-v1"), preset="auto", policy="MlpPolicy", timesteps=5000)
    assert "recipes race, all of them with MlpPolicy; they train on 35%" in race
    with pytest.warns(UserWarning, match="used in place of its preset's"):
        _, race, *_ = lines_of("CartPole-v1", preset="auto", env_kwargs={"sutton_barto_reward": True}, timesteps=5000)
    assert race.startswith("CartPole-v1 has no preset as it is here: up to 5 recipes race; ")


def test_a_model_that_learns_again_tells_nothing_of_first_episodes() -> None:
    file = io.StringIO()
    with FastES("CartPole-v1", **SMALL) as model:
        model.learn(100).learn(100, ConsoleLog(file))
    assert "first" not in file.getvalue()
    assert "actions" not in file.getvalue()


class Flat(Toy):
    """Every step is worth nothing, and the last value leaves its space."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = spaces.Discrete(2)
        self.observation_space = spaces.Box(-2.0, 3.0, (2,), np.float64)

    def step(self, action: Any) -> Any:
        _, _, ended, truncated, info = super().step(np.zeros(2))
        return np.array([1.0, -40.0]), 0.0, ended, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.zeros(2), {}


def test_nothing_to_climb_and_a_left_space_are_said_at_once() -> None:
    _, _, first, odd, *_ = lines_of(Flat)
    assert "return 0: nothing to climb yet. sample_actions=True" in first
    assert re.fullmatch(r"observation\[1\] leaves its space, whose values are at most 3: its root mean square is 3\d\.\d+", odd)


def test_a_second_learn_says_it_anew_only_if_it_begins_anew() -> None:
    file = io.StringIO()
    with FastES(Toy, **SMALL) as model:
        model.learn(200, ConsoleLog(file))
        model.learn(200, ConsoleLog(file), reset_num_timesteps=False)
        assert file.getvalue().count("observations Box") == file.getvalue().count("first 4 episodes") == 1


def test_the_lines_change_no_bit() -> None:
    states = []
    for callback in (None, ConsoleLog(io.StringIO())):
        with FastES(Toy, **SMALL) as model:
            states.append(model.learn(400, callback).snapshot())
    assert_same_state(*states)


def test_the_pace_is_said_once_if_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        return now

    def later(model: Any, record: Any) -> None:
        nonlocal now
        now += 1.0
        steps.append(model.num_timesteps)

    monkeypatch.setattr("fastes.reports.console_log.time.monotonic", clock)
    for budget, expected in ((5000, 1), (300, 0)):
        steps, file = list[int](), io.StringIO()
        with FastES(Toy, **SMALL) as model:
            model.learn(budget, [ConsoleLog(file), later])
        said = re.findall(r"about ([\d,]+) steps/s: the ([\d,]+) steps that are left take (.+)", file.getvalue())
        assert len(said) == expected
        if said:
            pace, left = (int(number.replace(",", "")) for number in said[0][:2])
            assert pace == round((steps[2] - steps[0]) / 2.0)
            assert left == budget - steps[2]
            assert said[0][2] == duration_in_words(left / ((steps[2] - steps[0]) / 2.0))


def test_numbers_in_words() -> None:
    assert [number_in_words(value) for value in (0.0, -0.123456, 12345.6, 1e15)] == ["0", "-0.1235", "12,346", "1e+15"]
    assert [duration_in_words(seconds) for seconds in (0.5, 42.0, 150.0, 7200.0, 3e5, 3e8)] == [
        "0.5 s", "42 s", "2.5 minutes", "2 hours", "3.5 days", "3,472 days",
    ]  # fmt: skip
    assert lengths_in_words(np.array([1, 1])) == "1 step"
    assert lengths_in_words(np.array([9, 1200])) == "9 to 1,200 steps"
    assert returns_in_words(np.array([1.0, np.nan, 1.0])) == "1"
    assert returns_in_words(np.array([np.nan])) == "none of them finite"
    assert returns_in_words(np.array([1.0, 3.0])) == "1 to 3, mean 2 +- 1"
    assert [nothing_to_climb(np.array(x)) for x in ([0.0, 0.0], [0.0, 1.0], [0.0], [np.nan, np.nan])] == [
        True,
        False,
        False,
        False,
    ]
    assert space_in_words(spaces.Discrete(3)) == "Discrete(3)"
    assert space_in_words(spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(0, 9, (), np.float32))) == (
        "Dict of a: Discrete(3), b: Box() of float32 from 0 to 9"
    )
    assert space_in_words(spaces.Box(0, 255, (8, 8, 3), np.uint8)) == "Box(8, 8, 3) of uint8 from 0 to 255"


def test_only_what_has_left_its_space_for_certain_is_said() -> None:
    box = spaces.Box(np.array([-1.0, -5.0]), np.array([1.0, 2.0]), dtype=np.float64)

    def after(*rows: list[float]) -> ObsNormalizer:
        normalizer, seen = ObsNormalizer(2), np.array(rows)
        normalizer.merge(np.array([[seen.sum(0), (seen**2).sum(0)]]), np.array([len(rows)]))
        return normalizer

    assert leaves_its_space(after([1.0, -5.0], [-1.0, 2.0]), box) == ""
    assert leaves_its_space(after([1.0, -5.0], [-1.0, 2.0]), spaces.Discrete(2)) == ""
    assert leaves_its_space(ObsNormalizer(2), box) == ""
    assert leaves_its_space(ObsNormalizer(3), box) == ""
    said = leaves_its_space(after([1.0, -7.0], [-1.0, -7.0]), box)
    assert said == "observation[1] leaves its space, whose values are at most 5: its root mean square is 7"
