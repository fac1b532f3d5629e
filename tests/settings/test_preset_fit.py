"""Risk: settings, columns or a target that were made for another environment are used because of its name."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings
from gymnasium import wrappers
from gymnasium.envs.classic_control import CartPoleEnv

from fastes import FastES
from fastes.cli.main import main
from fastes.envs.source import make_env_source
from fastes.errors import EnvironmentUnavailable
from fastes.settings.preset_fit import misfit
from fastes.settings.preset_loader import all_presets

OWN = sorted(name for name in all_presets() if re.search(r"-v\d+$", name))
SMALL: dict[str, Any] = {"n_workers": 0, "seed": 0}
KEPT = "Pendulum-v1"


class Bonus(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's own wrapper, with steps of its own."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, float(reward) + 10.0, *rest


class Shown(gymnasium.ObservationWrapper[Any, Any, Any]):
    """One that changes observations alone."""

    def observation(self, observation: Any) -> Any:
        return observation


class Odd:
    """An argument that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no truth value")

    __hash__ = None  # type: ignore[assignment]


class TakesAll(CartPoleEnv):
    """CartPole with a table among its arguments."""

    def __init__(self, table: Any = None, **named: Any) -> None:
        super().__init__(**named)


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def said_of(env: Any, **arguments: Any) -> tuple[str, FastES]:
    """What is said of a preset or a target, and the model."""
    vector = hasattr(env, "num_envs")
    with caught_warnings() as messages, FastES(env, **{**SMALL, "n_workers": None if vector else 0, **arguments}) as model:
        pass
    return "".join(message for message in messages if "all the same" in message), model


@pytest.mark.parametrize("name", OWN)
def test_an_id_as_it_is_has_its_preset(name: str) -> None:
    try:
        source = make_env_source(name)
        env = source()
    except EnvironmentUnavailable as error:  # Box2D
        pytest.skip(str(error))
    with env:  # type: ignore[attr-defined]
        assert misfit(name, source, env.observation_space, env.action_space) == ""
        assert source.reward_threshold == gymnasium.spec(name).reward_threshold


def cartpole(**named: Any) -> Any:
    return gymnasium.make("CartPole-v1", **named)


def vector(*around: Any, **named: Any) -> Any:
    env: Any = gymnasium.vector.SyncVectorEnv([partial(cartpole, **named)] * 2)
    for wrapper in around:
        env = wrapper(env)
    return env


def spec_with(**named: Any) -> Any:
    """As a user changes one: gymnasium.spec gives the registry's own."""
    spec = gymnasium.spec("CartPole-v1")
    spec.kwargs.update(named)
    return spec


FIT: dict[str, Any] = {
    "drawn": lambda: cartpole(render_mode="rgb_array"),
    "the default": lambda: cartpole(sutton_barto_reward=False, max_episode_steps=500),
    "statistics": lambda: wrappers.RecordEpisodeStatistics(cartpole()),
    "a limit again": lambda: wrappers.TimeLimit(wrappers.RecordEpisodeStatistics(cartpole()), 500),
    "spec": lambda: gymnasium.spec("CartPole-v1"),
    "vector": vector,
    "make_vec": lambda: gymnasium.make_vec("CartPole-v1", 2),
    "vector statistics": lambda: vector(gymnasium.wrappers.vector.RecordEpisodeStatistics),
}
UNFIT: dict[str, tuple[Any, str]] = {
    "option": (lambda: cartpole(sutton_barto_reward=True), r"sutton_barto_reward = True \(False as registered\)"),
    "limit": (lambda: cartpole(max_episode_steps=20), r"max_episode_steps = 20 \(500 as registered\)"),
    "no limit": (lambda: cartpole(max_episode_steps=-1), r"max_episode_steps = None \(500 as registered\)"),
    "spec": (lambda: spec_with(sutton_barto_reward=True), r"sutton_barto_reward = True \(False as registered\)"),
    "rewards": (lambda: wrappers.TransformReward(cartpole(), abs), "the wrapper TransformReward"),
    "own wrapper": (lambda: copied(), "the wrapper Bonus"),
    "vector": (lambda: vector(sutton_barto_reward=True), r"sutton_barto_reward = True \(False as registered\)"),
    "vector within": (
        lambda: gymnasium.vector.SyncVectorEnv([lambda: Bonus(cartpole())] * 2),
        "the wrapper Bonus",
    ),
    "unlike": (lambda: unlike(), "environments that differ"),
}


def copied() -> Any:
    return Bonus(cartpole())


def unlike() -> Any:
    return gymnasium.vector.SyncVectorEnv([cartpole, partial(cartpole, sutton_barto_reward=True)])


@pytest.mark.parametrize("kind", FIT)
def test_what_changes_nothing_keeps_the_preset(kind: str) -> None:
    if kind in ("statistics", "a limit again") and tuple(map(int, gymnasium.__version__.split(".")[:2])) < (1, 4):
        pytest.skip("before Gymnasium 1.4 this wrapper records no arguments: the environment is copied, and a warning says so")
    said, model = said_of(FIT[kind]())
    assert said == ""
    assert model.settings.policy == "LinearPolicy"
    assert model.settings.sigma == all_presets()["CartPole-v1"]["sigma"]
    assert model.settings.learning_rate == all_presets()["CartPole-v1"]["learning_rate"]
    assert model.target_return == 475.0


@pytest.mark.parametrize("kind", UNFIT)
def test_where_rewards_may_have_changed_recipes_race_and_there_is_no_target(kind: str, registry: None) -> None:
    made, difference = UNFIT[kind]
    kwargs = dict(gymnasium.spec("CartPole-v1").kwargs)
    try:
        said, model = said_of(made())
    finally:
        gymnasium.spec("CartPole-v1").kwargs = kwargs
    assert re.search(
        f"^CartPole-v1 has .*{difference}.*: recipes race, and their settings are used in place of its preset's", said
    )
    assert model.settings.learning_rate == all_presets()["linear"]["learning_rate"]
    assert model.target_return == math.inf
    not_one = "and its reward_threshold of 475 is not a target."
    assert f"{not_one} To use both all the same, train with preset='CartPole-v1' (--pre" in said


def test_what_is_asked_for_is_taken() -> None:
    kwargs = {"env_kwargs": {"sutton_barto_reward": True}}
    said, model = said_of("CartPole-v1", **kwargs, preset="CartPole-v1", target_return=0.0)
    assert said == ""
    assert model.settings.learning_rate == all_presets()["CartPole-v1"]["learning_rate"]
    said, model = said_of("CartPole-v1", **kwargs, preset="CartPole-v1")
    assert re.search(
        r"^CartPole-v1 has sutton_.*\): its reward_threshold of 475 is not a target. To use it .* train with target_return=475",
        said,
    )
    assert model.target_return == math.inf
    said, model = said_of("CartPole-v1", **kwargs, target_return=-1.0)
    assert said.endswith("To use it all the same, train with preset='CartPole-v1' (--preset CartPole-v1)")
    assert model.target_return == -1.0
    said, _ = said_of("CartPole-v1", **kwargs, policy="MlpPolicy", target_return="none")
    assert "recipes race, and their settings are used in place of" in said
    said, model = said_of("CartPole-v1", **kwargs, trials=1, target_return="none")
    assert "the settings of 'linear' are used in place of" in said
    assert len(model.selection.trials) == 1


def test_wrappers_of_observations_and_actions_leave_the_target() -> None:
    for made in (lambda: wrappers.TimeAwareObservation(cartpole()), lambda: wrappers.FrameStackObservation(cartpole(), 2)):
        said, model = said_of(made())
        assert "recipes race" in said
        assert "reward_threshold" not in said
        assert model.target_return == 475.0
    said, model = said_of(gymnasium.vector.SyncVectorEnv([lambda: Shown(cartpole())] * 2))
    assert "the wrapper Shown" in said
    assert model.target_return == 475.0


def test_arguments_that_cannot_be_compared(registry: None) -> None:
    gymnasium.register("Takes-v0", entry_point=TakesAll, kwargs={"table": Odd()}, reward_threshold=3.0)
    assert make_env_source("Takes-v0").reward_threshold == 3.0
    assert make_env_source("Takes-v0", {"table": Odd()}).reward_threshold == 3.0, "it holds the same"
    for table in (np.ones(3), None, math.nan):
        source = make_env_source("Takes-v0", {"table": table})
        assert source.reward_threshold is None
        assert "table = " in source.differences[0]


def test_an_id_that_was_registered_anew_is_another_environment(registry: None) -> None:
    gymnasium.register("CartPole-v1", entry_point=TakesAll, reward_threshold=7.0, max_episode_steps=500)
    said, model = said_of("CartPole-v1")
    assert f"CartPole-v1 made by {__name__}:TakesAll" in said
    assert model.target_return == 7.0, "the user's own"


def test_other_spaces_are_another_layout() -> None:
    pytest.importorskip("mujoco")
    said, model = said_of("Humanoid-v5", env_kwargs={"include_cinert_in_observation": False})
    assert "observations float64 (218,) (float64 (348,) as registered)" in said
    assert model.settings.obs_columns == "all"
    said, model = said_of("Hopper-v5", env_kwargs={"healthy_reward": 60, "healthy_z_range": [0.7, math.inf]})
    assert "healthy_reward = 60 (1.0 as registered): recipes race" in said
    assert model.target_return == math.inf
    with pytest.raises(ValueError, match="obs_columns"):
        FastES("Hopper-v5", preset="Humanoid-v5", n_workers=0)


def test_an_option_that_leaves_the_best_return_leaves_the_target() -> None:
    said, model = said_of("fastes/TMaze-v0", env_kwargs={"length": 4})
    assert said == ""
    assert model.target_return == 1.0


def test_episodes_that_a_setting_cuts_have_no_target() -> None:
    said, model = said_of("MountainCar-v0", max_episode_steps=50)
    assert said.startswith("MountainCar-v0 has max_episode_steps = 50 (200 as registered): its reward_threshold of -110 is no")
    assert model.target_return == math.inf, "50 steps of -1 would be better than -110"
    said, model = said_of("MountainCar-v0", max_episode_steps=200)
    assert (said, model.target_return) == ("", -110.0)


def test_another_environment_of_a_model_says_what_becomes_of_its_target(tmp_path: Path) -> None:
    with FastES("CartPole-v1", **SMALL) as model:
        model.save(tmp_path / "model")
        with pytest.warns(UserWarning, match=r"^CartPole-v1 has sutton_barto.*: its reward_threshold of 475 is not a target"):
            model.set_env(cartpole(sutton_barto_reward=True))
        assert model.target_return == math.inf
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.set_env(cartpole())
        assert model.target_return == 475.0
    with (
        pytest.warns(UserWarning, match="its reward_threshold of 475 is not a target"),
        FastES.load(tmp_path / "model", cartpole(max_episode_steps=9), 0) as model,
    ):
        assert model.target_return == math.inf


def test_sb3s_vector_environments() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecCheckNan, VecFrameStack, VecMonitor, VecNormalize

    for around in (VecMonitor, VecCheckNan, partial(VecNormalize, norm_reward=False)):
        said, model = said_of(around(make_vec_env("CartPole-v1", 2)))
        assert (said, model.target_return) == ("", 475.0)
    said, model = said_of(VecFrameStack(make_vec_env("CartPole-v1", 2), 2))
    assert "the wrapper VecFrameStack" in said
    said, model = said_of(make_vec_env("CartPole-v1", 2, env_kwargs={"sutton_barto_reward": True}))
    assert "sutton_barto_reward = True" in said
    assert model.target_return == math.inf


def test_the_command_says_so(tmp_path: Path) -> None:
    train = ["train", "CartPole-v1", "--workers", "0", "--quiet", "--runs", str(tmp_path), "--total-timesteps", "8"]
    with pytest.warns(UserWarning, match=r"CartPole-v1 has sutton_barto_reward = True \(False as registered\): recipes race"):
        assert main([*train, "--env-kwargs", "sutton_barto_reward=true", "--target-episodes", "1"]) == 0
