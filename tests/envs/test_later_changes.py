"""Risk: what a script sets in an environment after the model was made reaches nothing in silence; or playing looks so."""

from __future__ import annotations

import gc
import random
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import SETTINGS
from gymnasium import spaces

from fastes import FastES

Change = Callable[[gymnasium.Env[Any, Any]], object]
TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # Gymnasium before 1.3 has no other
TELLING = "was changed after the model was made"


class Level(gymnasium.Env[Any, Any]):
    """Has parts that its episodes change in each way that there is, the last ones after more steps than a look at it takes."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self) -> None:
        self.level, self.config, self.table, self.goal = 1, {"speed": 1.0}, np.zeros(3), 0.0
        self.wins, self.marks, self.counts, self.board = 0, [0], {"ends": 0}, np.zeros(3)
        self.steps, self.queue, self.luck = 0, [0], random.Random(1)

    def set_level(self, level: int) -> None:
        self.level = level

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.goal = 0, float(self.np_random.random())
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 8:
            self.ended()
        return np.zeros(1, np.float32), self.level * self.config["speed"] + self.table[0], self.steps == 8, False, {}

    def ended(self) -> None:
        self.wins += 1
        self.marks.append(self.steps)
        self.counts["ends"] += 1
        self.board[0] = self.wins
        fill(self.queue)
        self.luck.random()


def fill(items: list[int]) -> None:
    items[0] += 1


def told(work: Callable[[], object]) -> list[str]:
    """The warnings of later changes that it gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught if TELLING in str(warning.message)]


def learn(model: FastES) -> list[str]:
    return told(lambda: model.learn(40))


def play(env: gymnasium.Env[Any, Any], steps: int = 30) -> None:
    env.reset(seed=3)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


def made(env: Any, n_workers: int = 0) -> FastES:
    return FastES(env, "MlpPolicy", n_workers=n_workers, preset="default", **SETTINGS)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_later_change_is_told_once_with_what_to_do(n_workers: int) -> None:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=10)
    with made(env, n_workers) as model:
        assert learn(model) == []
        env.unwrapped.g = 2.0  # type: ignore[attr-defined]
        (text,) = learn(model)
        assert "env.unwrapped.g is 2.0, and 10.0 in those that play" in text
        assert "model.set_env(env)" in text
        assert "model.get_env().set_attr('g', value)" in text
        assert learn(model) == []
        env.unwrapped.g = 3.0  # type: ignore[attr-defined]
        assert "g is 3.0, and 10.0" in told(lambda: model.evaluate(1))[0]
        model.set_env(env)
        assert learn(model) == []
        model.env.unwrapped.g = 4.0
        assert "model.env.unwrapped.g is 4.0, and 3.0" in learn(model)[0]
        assert learn(model) == []
        model.env.unwrapped.g = 5.0
        model.get_env().set_attr("g", 5.0)
        assert learn(model) == []


def test_nothing_is_told_where_workers_get_the_same() -> None:
    env = gymnasium.make("Pendulum-v1", max_episode_steps=10)
    with made(env) as model:
        env.unwrapped.g = 2.0  # type: ignore[attr-defined]
        model.get_env().set_attr("g", 2.0)
        assert learn(model) == []


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "InvertedPendulum-v5"])
def test_a_robot_changed_later_is_told(env_id: str) -> None:
    env = gymnasium.make(env_id, max_episode_steps=10)
    with made(env) as model:
        play(env)
        env.unwrapped.model.opt.gravity[2] = -2.0  # type: ignore[attr-defined]
        (text,) = told(lambda: model.evaluate(1))
        assert "env.unwrapped.model.opt.gravity is [0.0, 0.0, -2.0]" in text
        assert "set_attr" not in text


CHANGES: dict[str, tuple[Change, str]] = {
    "plain": (lambda env: setattr(env, "level", 2), "env.unwrapped.level is 2, and 1"),
    "method": (lambda env: env.set_level(3), "env.unwrapped.level is 3, and 1"),  # type: ignore[attr-defined]
    "dict": (lambda env: env.config.update(speed=4.0), "env.unwrapped.config['speed'] is 4.0, and 1.0"),  # type: ignore[attr-defined]
    "array": (lambda env: env.table.fill(5.0), "env.unwrapped.table is [5.0, 5.0, 5.0]"),  # type: ignore[attr-defined]
    "new": (lambda env: setattr(env, "bonus", 6), "env.unwrapped.bonus is 6, and missing"),
}


@pytest.mark.parametrize("played", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_each_kind_of_change_is_told(name: str, played: bool) -> None:
    env, (change, words) = Level(), CHANGES[name]
    with made(env) as model:
        if played:
            play(env)
        change(env)
        (text,) = learn(model)
        assert words in text
        assert text.count(" in those that play") == 1


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", TAXI, "HalfCheetah-v5", "LunarLander-v3", "level"])
def test_playing_is_no_change(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_id.startswith("Lunar"):
        pytest.importorskip("Box2D")
    drawn: dict[str, Any] = {"render_mode": "rgb_array"} if env_id in ("CartPole-v1", "Pendulum-v1", TAXI) else {}
    env = Level() if env_id == "level" else gymnasium.make(env_id, max_episode_steps=20, **drawn)
    with made(env) as model:
        build = model.evaluator.build
        model.env.reset()
        built: list[Any] = []

        def counted() -> Any:
            built.append(build())
            return built[-1]

        monkeypatch.setattr(model.evaluator, "build", counted)
        for one in (env, model.env):
            play(one)
            if drawn and one is env:
                env.render()
            assert told(lambda: model.evaluate(1)) == []
            observation, _ = one.reset()
            model.predict(observation)
            assert told(lambda: model.evaluate(1)) == []
        if env_id in ("CartPole-v1", "level"):
            evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
            told(lambda: evaluation.evaluate_policy(model, env, 1, warn=False))
            assert told(lambda: model.evaluate(1)) == []
        assert built == []


def test_what_is_trained_is_the_same() -> None:
    thetas = []
    for change in (False, True):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=10)
        with made(env) as model:
            if change:
                play(env)
                env.unwrapped.g = 2.0  # type: ignore[attr-defined]
            assert len(learn(model)) == change
            thetas.append(model.theta)
    np.testing.assert_array_equal(thetas[0], thetas[1])


def test_the_object_is_not_kept_alive() -> None:
    env = gymnasium.make("CartPole-v1")
    alive = weakref.ref(env.unwrapped)
    with made(env) as model:
        del env
        gc.collect()
        assert alive() is None
        assert learn(model) == []
