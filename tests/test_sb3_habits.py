"""Risk: a script that was written for one of SB3's algorithms reads, passes or plays something that FastES takes otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, toy
from gymnasium import spaces
from gymnasium.utils import EzPickle
from processes import run_script
from training import assert_same, assert_same_state, learn, train

from fastes import CheckpointMismatch, FastES
from fastes.sb3 import logger as own_logger


class Dictionary(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"place": env.observation_space, "kind": spaces.Discrete(3)})

    def observation(self, observation: Any) -> Any:
        return {"place": observation, "kind": 1}


class Forgetful(EzPickle, Toy):
    """Its copies are made anew from its arguments."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Toy.__init__(self)


# --- environments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_object_without_a_spec_is_copied(n_workers: int) -> None:
    given = Toy(length=12)
    result = train(given, 2, n_workers, **SETTINGS)
    expected = train(toy(length=12), 2, **SETTINGS)
    expected.state.data["env_name"] = "Toy"
    assert_same(expected, result)
    assert given._np_random is None  # never reset


def test_an_object_of_a_scripts_class_reaches_the_workers(tmp_path: Path) -> None:
    done = run_script(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "from fastes import FastES\n"
        "class Mine(PendulumEnv): ...\n"
        "env = gymnasium.wrappers.TimeLimit(Mine(), 20)\n"
        "with FastES('MlpPolicy', env, n_workers=1, population_size=4) as model:\n"
        "    model.learn(50)\n"
        "    print('trained', model.num_timesteps)\n",
        tmp_path,
    )
    assert "trained 80" in done.stdout, done.stderr


def test_a_copy_that_differs_is_refused() -> None:
    env = Forgetful()
    FastES(env, n_workers=0, **SETTINGS).close()
    env.observation_space = spaces.Box(-9.0, 9.0, env.observation_space.shape)
    with pytest.raises(ValueError, match=r"cannot be copied .*observation_space"):
        FastES(env, n_workers=0, **SETTINGS)


def test_what_is_played_on_get_env_is_the_same_each_time() -> None:
    pytest.importorskip("stable_baselines3.common.vec_env")
    starts = []
    for seed in (3, 3, 4):
        with FastES("CartPole-v1", n_workers=0, seed=seed) as model:
            starts.append(model.get_env().reset().tolist())
    assert starts[0] == starts[1] != starts[2]


# --- policies and parameters -----------------------------------------------------------------------------------------


def test_multi_input_policy_flattens() -> None:
    first = train(lambda: Dictionary(Toy()), 1, policy="MultiInputPolicy", **SETTINGS)
    assert_same_state(train(lambda: Dictionary(Toy()), 1, policy="MlpPolicy", **SETTINGS).state, first.state)
    with FastES("MultiInputPolicy", lambda: Dictionary(Toy()), n_workers=0, **SETTINGS) as model:
        assert model.settings.policy == "MlpPolicy"


def test_parameters_that_are_not_named_stay() -> None:
    with FastES(toy(), n_workers=0, **SETTINGS) as model:
        before = model.get_parameters()["policy"]
        bias = np.ones_like(before["layers.0.bias"])
        with pytest.raises(ValueError, match=r"layers\.1"):
            model.set_parameters({"policy": {"layers.0.bias": bias}})
        model.set_parameters({"policy": {"layers.0.bias": bias}}, exact_match=False)
        after = model.get_parameters()["policy"]
        assert (after.pop("layers.0.bias") == bias).all()
        assert all((after[name] == before[name]).all() for name in after)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("x.zip", "got 'x.zip', a str"),
        (Path("x.zip"), r"got PosixPath\('x.zip'\), a PosixPath"),
        (None, "got None, a NoneType"),
        ([1.0], r"got \[1.0\], a list"),
        ({"policy": np.zeros(2)}, r"got array\(\[0., 0.\]\), a ndarray"),
        ({"policy": None}, "got None, a NoneType"),
    ],
)
def test_what_holds_no_parameters_is_said(parameters: Any, said: str) -> None:
    with FastES(toy(), n_workers=0, **SETTINGS) as model:
        before = model.theta.copy()
        with pytest.raises(TypeError, match=rf"set_parameters\(\) {said}.*expected {{'policy'.*load\(path\)\.get_parameters"):
            model.set_parameters(parameters)
        assert (model.theta == before).all()


def test_a_model_with_a_new_seed_goes_on_like_its_saved_copy(tmp_path: Path) -> None:
    with FastES(toy(), n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        model.set_random_seed(9)
        model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", n_workers=0, env=toy()) as copy:
            assert copy.seed == 9
            learn(copy, 4)
            learn(model, 4)
            assert (model.theta == copy.theta).all()
            assert model.last_episodes == copy.last_episodes


def test_a_pair_from_reset_is_named() -> None:
    with FastES("CartPole-v1", n_workers=0) as model, pytest.raises(ValueError, match="mixing Gym API"):
        model.predict(model.env.reset())


# --- names -----------------------------------------------------------------------------------------------------------


def test_device_and_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    with FastES(toy(), n_workers=0, learning_rate=0.03, **SETTINGS) as model:
        assert model.learning_rate == 0.03
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        assert model.device == "cpu"
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=lambda name: SimpleNamespace(type=name)))
        assert model.policy.device.type == "cpu"


def test_figures_are_means_of_the_last_episodes(tmp_path: Path) -> None:
    returns: list[float] = []
    with FastES(toy(), n_workers=0, stats_window_size=11, **SETTINGS) as model:
        model.set_logger(own_logger.configure(tmp_path, ["json"]))
        learn(model, 3, on_record=lambda _: returns.extend(r for r, _ in model.last_episodes))
        model.logger.close()
        assert [info["r"] for info in model.ep_info_buffer] == returns[-11:]
    rows = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    windows = [returns[max(0, end - 11) : end] for end in (8, 16, 24)]
    assert len(returns) == 24
    assert len(set(returns)) > 11
    assert [row["rollout/ep_rew_mean"] for row in rows] == pytest.approx([sum(w) / len(w) for w in windows])
    with pytest.raises(ValueError, match="stats_window_size = 0"):
        FastES(toy(), n_workers=0, stats_window_size=0, **SETTINGS)


def test_a_logger_without_formats_that_was_set_is_told() -> None:
    class InMemory(own_logger.Logger):
        def dump(self, step: int = 0) -> None:
            dumped.append((step, dict(self.name_to_value)))

    dumped: list[tuple[int, dict[str, Any]]] = []
    with FastES(toy(), n_workers=0, **SETTINGS) as model:
        model.set_logger(InMemory(None, []))
        model.learn(100)
        assert [step for step, _ in dumped][-1] == model.num_timesteps
        assert {"time/fps", "rollout/ep_rew_mean"} <= set(dumped[-1][1])


# --- what a walk through SB3's scripts has found ---------------------------------------------------------------------


def test_get_env_draws_where_the_environment_can() -> None:
    pytest.importorskip("stable_baselines3")
    with FastES("MlpPolicy", gymnasium.make("CartPole-v1", render_mode="rgb_array"), n_workers=0) as model:
        env = model.get_env()
        env.reset()
        assert env.render_mode == "rgb_array"
        assert env.render().ndim == 3


def test_monitors_that_a_function_makes_write_nothing_over_each_other(tmp_path: Path) -> None:
    Monitor = pytest.importorskip("stable_baselines3.common.monitor").Monitor
    with caught_warnings() as messages, FastES(lambda: Monitor(Toy(), str(tmp_path / "log")), n_workers=2, **SETTINGS) as model:
        learn(model, 2)
    assert any("FastES(Monitor(env, file))" in message for message in messages)
    assert len((tmp_path / "log.monitor.csv").read_text().splitlines()) == 2


class Endless(Toy):
    """Ends by no step."""

    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


def test_an_environment_that_never_ends_cannot_outlast_the_budget() -> None:
    with caught_warnings() as messages, FastES(Endless, n_workers=0, **SETTINGS) as model:
        model.learn(12_000)
        assert {length for _, length in model.last_episodes} == {12_000}
        assert model.generation == 1
    assert any("after 12,000 steps" in message and "max_episode_steps" in message for message in messages)


def test_learning_what_is_solved_says_so() -> None:
    with FastES("fastes/CyclicMDP-v0", n_workers=0, seed=0, target_episodes=2) as model:
        with caught_warnings() as messages:
            model.learn(10**6)
        assert messages == []
        with pytest.warns(UserWarning, match="nothing was trained"):
            model.learn(10**6, reset_num_timesteps=False)


def test_arguments_of_other_algorithms_are_named_at_once() -> None:
    with pytest.raises(TypeError, match=r"'n_steps' \(it has no.*'batch_size' \(it.*'gamma' \(it has no counterpart[^;]*$"):
        FastES("MlpPolicy", "CartPole-v1", n_steps=2048, batch_size=64, gamma=0.99)
    with pytest.raises(TypeError, match="'MlpPolicy'"):
        FastES(type("ActorCriticPolicy", (), {}), "CartPole-v1")
    with pytest.raises(ValueError, match="TorchPolicy"):
        FastES("CnnPolicy", "CartPole-v1")


def test_small_liberties_of_sb3() -> None:
    with FastES("MlpPolicy", "CartPole-v1", 0.03, n_workers=0, population_size=4, preset="default") as model:
        assert model.settings.learning_rate == 0.03
        model.learn(1e2)
        with pytest.raises(TypeError, match="callback = 'x'"):
            model.learn(100, callback="x")
        with pytest.raises(CheckpointMismatch, match=r"actions with 3 choices from 0 on.*2 choices"):
            model.set_env("Acrobot-v1")
