"""Risk: a wrong argument is met late, by a process, or with a message that helps nobody."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import AnySpaces, Toy
from gymnasium import spaces
from training import label

from fastes import CheckpointError, EnvironmentUnavailable, EvolutionStrategy, FastES, FastESError
from fastes.cli.main import main
from fastes.es.optimizers import OPTIMIZERS
from fastes.number_array import number_array
from fastes.settings.foreign_names import ANSWERS
from fastes.settings.settings import setting_names

pytestmark = pytest.mark.usefixtures("no_process")


def says(build: Callable[[], object], kind: type[Exception], *words: str) -> None:
    """build raises kind with a message that holds all words."""
    with pytest.raises(kind) as caught:
        build()
    assert type(caught.value) in (ValueError, TypeError, EnvironmentUnavailable, CheckpointError), repr(caught.value)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def make(*arguments: Any, **settings: Any) -> Callable[[], object]:
    return lambda: FastES(*(arguments or ("CartPole-v1",)), n_workers=settings.pop("n_workers", 2), **settings)


# --- environments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("CartPool-v1", ("CartPool-v1", "CartPole-v1")),
        ("cartpole-v1", ("cartpole-v1", "CartPole-v1")),
        ("HalfCheeta-v5", ("HalfCheeta-v5", "HalfCheetah-v5")),
        ("CartPole-v7", ("CartPole-v7", "CartPole-v1")),
        ("CartPole", ("CartPole", "CartPole-v1")),
        ("ALE/Pong-v5", ("ALE/Pong-v5", "atari", "pip install")),
        ("nonsense", ("nonsense", "module:")),
        ("", ("''",)),
        ("CartPole v1", ("CartPole v1",)),
        ("no_such_module:Env-v0", ("no_such_module",)),
        ("os:Env-v0", ("os:Env-v0",)),
    ],
)
def test_unknown_environment(env_id: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)  # it may be installed
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5", raising=False)
    says(make(env_id), EnvironmentUnavailable, *words)
    says(make(env_id), ValueError, *words)


def test_no_setting_is_answered_as_if_it_were_none() -> None:
    assert not set(ANSWERS) & set(setting_names())
    assert {"n_steps", "gamma", "zero_policy", "target_kl"} <= set(ANSWERS)


def test_a_suggestion_is_not_forced() -> None:
    with pytest.raises(EnvironmentUnavailable) as caught:
        make("Xyzzyplugh-v3")()
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "module", "words"),
    [
        ("LunarLander-v3", "Box2D", ("LunarLander-v3", "box2d", "pip install")),
        ("HalfCheetah-v5", "mujoco", ("HalfCheetah-v5", "[mujoco]", "pip install")),
    ],
)
def test_a_missing_extra_is_named(env_id: str, module: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == module or name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    says(make(env_id), EnvironmentUnavailable, *words)


@pytest.mark.parametrize("env", [5, None, 3.5, ["CartPole-v1"], {"id": "CartPole-v1"}, object()])
def test_environment_of_the_wrong_kind(env: Any) -> None:
    says(make(env), TypeError, type(env).__name__, "CartPole-v1", "EnvSpec", "function")


def test_an_instance_that_cannot_be_rebuilt() -> None:
    env = Toy()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    says(make(env), ValueError, "spec", "lock", "copied", "function", "lambda")
    wrapped = gymnasium.wrappers.TransformReward(env, lambda reward: reward)
    says(make(wrapped), ValueError, "function", "lambda")
    says(make(Toy(), env_kwargs={"length": 3}), ValueError, "length", "exists already")


def test_a_factory_that_makes_no_environment() -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make(lambda: 5)()
    assert "Env" in str(caught.value)
    assert "5" in str(caught.value) or "int" in str(caught.value)


class OldEnvironment:
    """As the old gym's: no gymnasium.Env."""

    def reset(self) -> Any:
        return 0.0

    def step(self, action: Any) -> Any:
        return 0.0, 0.0, False, {}


def test_an_environment_of_the_old_gym() -> None:
    for env in (OldEnvironment, OldEnvironment()):
        with pytest.raises(TypeError) as caught:
            FastES(env, preset="unbiased", n_workers=0)  # type: ignore[arg-type]
        for word in ("OldEnvironment", "expected", "gymnasium.Env", "(observation, info)", "truncated", "shimmy"):
            assert word in str(caught.value)


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def build(self) -> Toy:
        return Toy(length=20 if self.lock else 10)


def _unsendable() -> dict[str, tuple[Any, tuple[str, ...]]]:
    lock, locked = threading.Lock(), Locked()

    def make() -> Toy:
        return Toy(length=20 if lock else 10)

    def make_deeply() -> Toy:
        return make()

    def with_default(lock: Any = lock) -> Toy:
        return Toy(length=20 if lock else 10)

    return {
        "variable": (make, ("'make'", "its variable 'lock' is a _thread.lock")),
        "called function": (make_deeply, ("'make_deeply'", "its variable 'lock' of its variable 'make' is a _thread.lock")),
        "default": (with_default, ("'with_default'", "its default argument is a _thread.lock")),
        "method": (locked.build, ("'build'", "attribute 'lock' of its object is a _thread.lock")),
        "partial": (partial(Toy, marker=lock), ("'Toy'", "its argument 'marker' is a _thread.lock")),
        "generator": (partial(Toy, fail_seeds=(n for n in ())), ("'Toy'", "its argument 'fail_seeds' is a generator")),
    }


@pytest.mark.parametrize("name", _unsendable())
def test_a_factory_that_workers_cannot_be_given(name: str, no_process: None) -> None:
    """pickle says 'cannot pickle _thread.lock object', and neither where it is nor what to do."""
    factory, words = _unsendable()[name]
    with FastES(factory, preset="unbiased", n_workers=2, target_return="none") as model, pytest.raises(TypeError) as caught:
        model.learn(100)
    for word in (*words, "cannot be sent to workers", "n_workers=0"):
        assert word in str(caught.value)


def test_a_factory_with_a_variable_that_has_no_value_yet(no_process: None) -> None:
    lock = threading.Lock()

    def make() -> Toy:
        return Toy(length=20 if lock else later)

    with FastES(make, preset="unbiased", n_workers=2, target_return="none") as model, pytest.raises(TypeError) as caught:
        model.learn(100)
    assert "'make' cannot be sent to workers" in str(caught.value)
    assert "its variable 'lock' is a _thread.lock" in str(caught.value)
    later = 10


def test_arguments_that_workers_cannot_be_given(no_process: None) -> None:
    with (
        FastES(
            "Toy-v0", preset="unbiased", env_kwargs={"marker": threading.Lock()}, n_workers=2, target_return="none"
        ) as model,
        pytest.raises(TypeError, match=r"env_kwargs cannot be sent to workers: its item 'marker' is a _thread\.lock"),
    ):
        model.learn(100)


def test_a_factory_that_raises_shows_its_own_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        make(lambda: 1 / 0)()


def test_env_kwargs() -> None:
    says(make(Toy, env_kwargs={"length": 3}), ValueError, "length", "lambda")
    with pytest.raises(TypeError, match="no_such_argument"):
        make("CartPole-v1", env_kwargs={"no_such_argument": 3})()


TEXT = spaces.Text(5)
GRAPH = spaces.Graph(spaces.Discrete(2), None)
SEQUENCE = spaces.Sequence(spaces.Discrete(2))
BOX = spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize(
    ("observation_space", "action_space", "words"),
    [
        (BOX, spaces.Tuple([BOX, spaces.Discrete(2)]), ("action space", "Tuple", "Discrete", "MultiBinary", "Wrap")),
        (BOX, spaces.Dict({"a": BOX}), ("action space", "Dict", "Wrap")),
        (BOX, TEXT, ("action space", "Text", "expected")),
        (BOX, spaces.Box(0, 5, (2,), np.int64), ("action space", "int64", "MultiDiscrete")),
        (GRAPH, BOX, ("observation space", "Graph", "wrap")),
        (SEQUENCE, BOX, ("observation space", "Sequence", "wrap")),
        (spaces.Dict({"a": BOX, "b": SEQUENCE}), BOX, ("observation space", "Sequence", "wrap")),
        (spaces.Dict({}), BOX, ("observation space", "empty")),
        (spaces.Box(0, 1, (0,)), BOX, ("observation space", "empty")),
        (BOX, spaces.Box(-1, 1, (0,)), ("action space",)),
    ],
)
def test_unsupported_spaces(observation_space: Any, action_space: Any, words: tuple[str, ...]) -> None:
    says(make(lambda: AnySpaces(observation_space, action_space)), ValueError, *words)


def test_mappings_that_need_bounds() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    for mapping in ("squash", "bins"):
        env = make(lambda: AnySpaces(BOX, unbounded), policy_kwargs={"action_mapping": mapping})
        says(env, ValueError, mapping, "finite bounds", "clip")


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"population_size": 7}, ValueError, ("population_size", "7", "odd", "8")),
        ({"population_size": 0}, ValueError, ("population_size", "0", "from 2")),
        ({"population_size": -4}, ValueError, ("population_size", "-4", "from 2")),
        ({"population_size": 8.0}, TypeError, ("population_size", "8.0", "float", "int")),
        ({"population_size": "8"}, TypeError, ("population_size", "'8'", "str", "int")),
        ({"population_size": True}, TypeError, ("population_size", "True", "bool", "int")),
        ({"population_size": None}, TypeError, ("population_size", "None", "int")),
        ({"sigma": 0.0}, ValueError, ("sigma", "0.0", "positive")),
        ({"sigma": -0.1}, ValueError, ("sigma", "-0.1", "positive")),
        ({"sigma": math.nan}, ValueError, ("sigma", "nan", "finite")),
        ({"sigma": math.inf}, ValueError, ("sigma", "inf", "finite")),
        ({"sigma": "big"}, ValueError, ("sigma", "'big'", "lin_")),
        ({"sigma": "lin_0"}, ValueError, ("sigma", "positive")),
        ({"sigma": "lin_nan"}, ValueError, ("sigma", "positive")),
        ({"sigma": None}, TypeError, ("sigma", "None", "NoneType", "positive number")),
        ({"sigma": [0.1]}, TypeError, ("sigma", "[0.1]", "list", "positive number")),
        ({"sigma": True}, TypeError, ("sigma", "True", "bool")),
        ({"sigma": 1j}, TypeError, ("sigma", "complex")),
        ({"learning_rate": 0}, ValueError, ("learning_rate", "0", "positive")),
        ({"learning_rate": -1e-3}, ValueError, ("learning_rate", "-0.001", "positive")),
        ({"learning_rate": math.nan}, ValueError, ("learning_rate", "nan", "finite")),
        ({"learning_rate": "fast"}, ValueError, ("learning_rate", "'fast'", "lin_")),
        ({"learning_rate": "lin_1_2_3"}, ValueError, ("learning_rate", "lin_1_2_3")),
        ({"learning_rate": np.array([0.1])}, TypeError, ("learning_rate", "ndarray")),
        ({"policy": "MlpPolicyy"}, ValueError, ("MlpPolicyy", "MlpPolicy", "did you mean")),
        ({"policy": "mlppolicy"}, ValueError, ("mlppolicy", "MlpPolicy")),
        ({"policy": "CnnPolicy"}, ValueError, ("CnnPolicy needs images", "MlpPolicy")),
        ({"policy": 5}, TypeError, ("policy", "5", "MlpPolicy")),
        ({"popsize": 8}, TypeError, ("popsize", "population_size")),
        ({"learning_rte": 0.1}, TypeError, ("learning_rte", "learning_rate", "did you mean")),
        ({"gamma": 0.99}, TypeError, ("'gamma': it has no counterpart in ES: leave it out",)),
        ({"delta_std": 0.05}, TypeError, ("'delta_std': it is sigma here",)),
        (
            {"n_top": 4, "learning_rte": 0.1},
            TypeError,
            ("'n_top' (top_fraction is", "'learning_rte' (did you mean 'learning_rate'"),
        ),
        ({"lr": 0.1}, TypeError, ("lr", "learning_rate")),
        ({"optimizer": "no-such"}, ValueError, ("optimizer", "no-such", *OPTIMIZERS)),
        ({"optimizer": "Adam"}, ValueError, ("Adam", "adam")),
        ({"shaping": "ranks"}, ValueError, ("shaping", "ranks", "centered_ranks")),
        ({"episode_cap": "median"}, ValueError, ("episode_cap", "median", "mean")),
        ({"total_timesteps": 0}, ValueError, ("total_timesteps", "0", "expected an int")),
        ({"total_timesteps": 1e6}, TypeError, ("total_timesteps", "1000000.0", "int")),
        ({"target_return": "never"}, ValueError, ("target_return", "never", "none")),
        ({"target_return": None}, TypeError, ("target_return", "None", "auto")),
        ({"target_return": [1]}, TypeError, ("target_return", "[1]", "auto")),
        ({"target_return": math.nan}, ValueError, ("target_return", "nan")),
        ({"momentum": 1.0}, ValueError, ("momentum", "1.0", "[0, 1)")),
        ({"momentum": "0.9"}, TypeError, ("momentum", "'0.9'", "number")),
        ({"beta2": -0.1}, ValueError, ("beta2", "-0.1")),
        ({"weight_decay": -1}, ValueError, ("weight_decay", "-1")),
        ({"top_fraction": 0.0}, ValueError, ("top_fraction", "0.0", "(0, 1]")),
        ({"top_fraction": 1.01}, ValueError, ("top_fraction", "1.01")),
        ({"noise_table_size": -1}, ValueError, ("noise_table_size", "-1")),
        ({"noise_table_size": 10}, ValueError, ("table_size", "10", "parameters")),
        ({"episodes_per_candidate": 0}, ValueError, ("episodes_per_candidate", "0", "expected an int")),
        ({"eval_episodes": -1}, ValueError, ("eval_episodes", "-1")),
        ({"target_episodes": 0}, ValueError, ("target_episodes", "0")),
        ({"action_noise": -0.1}, ValueError, ("action_noise", "-0.1")),
        ({"alive_bonus": math.nan}, ValueError, ("alive_bonus", "nan")),
        ({"sample_actions": 1}, TypeError, ("sample_actions", "1", "True or False")),
        ({"normalize_obs": "yes"}, TypeError, ("normalize_obs", "yes", "True or False")),
        ({"max_episode_steps": -2}, ValueError, ("max_episode_steps", "-2")),
        ({"obs_clip": 0.0}, ValueError, ("obs_clip", "0.0")),
        ({"obs_std_floor": 0.0}, ValueError, ("obs_std_floor", "0.0")),
        ({"episode_cap_factor": 1.0}, ValueError, ("episode_cap_factor", "1.0")),
        ({"policy_kwargs": [64]}, TypeError, ("policy_kwargs", "[64]", "net_arch")),
        ({"policy_kwargs": {"net": [64]}}, ValueError, ("'net'", "net_arch")),
        ({"policy_kwargs": {"net_arch": [64, 0]}}, ValueError, ("net_arch", "0", "positive")),
        ({"policy_kwargs": {"net_arch": 64}}, (TypeError, ValueError), ("net_arch", "64", "list")),
        ({"policy_kwargs": {"net_arch": "64"}}, ValueError, ("net_arch", "'64'")),
        ({"policy_kwargs": {"net_arch": {"vf": [64]}}}, ValueError, ("net_arch", "{'vf': [64]}", "'pi'")),
        ({"policy_kwargs": {"net_arch": {"pi": [64], "q": [64]}}}, ValueError, ("net_arch", "'q'", "'pi'", "'qf'")),
        ({"policy_kwargs": {"net_arch": {"pi": [64, 0]}}}, ValueError, ("net_arch", "0", "positive")),
        ({"policy_kwargs": {"net_arch": [64, {"pi": [64]}]}}, ValueError, ("net_arch", "pi", "shares layers", "a list of")),
        ({"policy_kwargs": {"activation_fn": "sigmoid"}}, ValueError, ("activation_fn", "sigmoid", "tanh", "TorchPolicy")),
        ({"policy_kwargs": {"activation_fn": "TanH1"}}, ValueError, ("TanH1", "did you mean 'tanh'")),
        ({"policy_kwargs": {"activation_fn": None}}, ValueError, ("activation_fn", "None", "tanh")),
        ({"policy_kwargs": {"action_mapping": "clamp"}}, ValueError, ("action_mapping", "clamp", "clip")),
        ({"policy_kwargs": {"num_bins": "x", "action_mapping": "bins"}}, (TypeError, ValueError), ("num_bins", "x")),
        ({"policy_kwargs": {"num_bins": 1, "action_mapping": "bins"}}, ValueError, ("num_bins", "1", "at least 2")),
        ({"policy_kwargs": {"use_bias": "no"}}, (TypeError, ValueError), ("use_bias", "no")),
        ({"policy": "LinearPolicy", "policy_kwargs": {"net_arch": {"pi": [4]}}}, ValueError, ("LinearPolicy", "MlpPolicy")),
        ({"policy": "LinearPolicy", "policy_kwargs": {"net_arch": [4]}}, ValueError, ("LinearPolicy", "net_arch", "MlpPolicy")),
        ({"n_workers": -1}, ValueError, ("n_workers", "-1", "0")),
        ({"n_workers": 100_000}, ValueError, ("n_workers", "100000")),
        ({"n_workers": 2.0}, TypeError, ("n_workers", "2.0", "int")),
        ({"n_workers": "2"}, TypeError, ("n_workers", "'2'", "int")),
        ({"n_workers": True}, TypeError, ("n_workers", "True", "int")),
        ({"seed": 1.0}, TypeError, ("seed", "1.0", "float", "int")),
        ({"seed": "1"}, TypeError, ("seed", "'1'", "str", "int")),
        ({"seed": True}, TypeError, ("seed", "True", "int")),
        ({"seed": -1}, ValueError, ("seed", "-1", "0")),
        ({"seed": 2**64}, ValueError, ("seed", str(2**64))),
        ({"seed": np.random.default_rng(0)}, TypeError, ("seed", "Generator", "int")),
        ({"preset": "no-such"}, ValueError, ("preset", "no-such", "default")),
    ],
    ids=label,
)
def test_settings(settings: dict[str, Any], kind: Any, words: tuple[str, ...]) -> None:
    says(make("Pendulum-v1", **settings), kind, *words)


def test_order_of_arguments() -> None:
    says(make("MlpPolicy"), TypeError, "MlpPolicy", "FastES(env)")
    says(make("CartPole-v1", "NoPolicy"), ValueError, "NoPolicy", "MlpPolicy")
    says(make("NoPolicy", "CartPole-v1"), ValueError, "NoPolicy", "MlpPolicy")


@pytest.mark.parametrize(
    ("total", "kind"),
    [(-1, ValueError), (0, ValueError), (10**30, ValueError), (1e6 + 0.5, TypeError), ("100", TypeError), (True, TypeError)],
)
def test_total_timesteps_of_learn(total: Any, kind: type[Exception]) -> None:
    with FastES("CartPole-v1", n_workers=2) as model:
        says(lambda: model.learn(total), kind, "total_timesteps", repr(total))
        assert model.num_timesteps == model.generation == 0


def test_callbacks_of_the_wrong_kind() -> None:
    with FastES("CartPole-v1", n_workers=2) as model:
        says(lambda: model.learn(100, callback=5), TypeError, "callback", "5", "int", "function")  # type: ignore[arg-type]
        says(lambda: model.learn(100, callback=[5]), TypeError, "callback", "5", "function")


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"episodes": 0}, ValueError, ("episodes", "0", "at least 1")),
        ({"episodes": 2.0}, TypeError, ("episodes", "2.0", "int")),
        ({"first_seed": -1}, ValueError, ("first_seed", "-1")),
        ({"first_seed": 2**31}, ValueError, ("first_seed", str(2**31))),
        ({"first_seed": "0"}, TypeError, ("first_seed", "'0'", "int")),
    ],
    ids=label,
)
def test_evaluate(arguments: dict[str, Any], kind: type[Exception], words: tuple[str, ...]) -> None:
    with FastES("CartPole-v1", n_workers=2) as model:
        says(lambda: model.evaluate(**arguments), kind, *words)


# --- observations, parameters, checkpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "observation",
    [np.zeros(3), np.zeros(5), np.zeros((2, 5)), np.zeros((2, 2, 4)), np.zeros((0, 5)), 1.0, [], [1, 2], None],
)
def test_observation_of_the_wrong_shape(observation: Any) -> None:
    with FastES("CartPole-v1", n_workers=2) as model:
        says(lambda: model.predict(observation), ValueError, "observation", "(4,)", str(np.asarray(observation).shape))


@pytest.mark.parametrize("observation", ["abcd", ["a", "b", "c", "d"], {"x": 1}, object()])
def test_observation_of_the_wrong_type(observation: Any) -> None:
    with FastES("CartPole-v1", n_workers=2) as model, pytest.raises((ValueError, TypeError)):
        model.predict(observation)


def test_observation_outside_a_flattened_space() -> None:
    with FastES("FrozenLake-v1", preset="unbiased", n_workers=2) as model:
        says(lambda: model.predict(9.5), ValueError, "9.5", "Discrete(16)")
        says(lambda: model.predict("x"), ValueError, "'x'", "Discrete(16)")


def test_parameters() -> None:
    with FastES("CartPole-v1", policy="LinearPolicy", n_workers=2) as model:
        good = model.get_parameters()
        before = model.theta
        wrong_shape = {"policy": {"layers.0.weight": np.zeros((4, 3))}}
        says(lambda: model.set_parameters(wrong_shape), ValueError, "layers.0.weight", "(4, 3)", "(2, 4)")
        turned = {"policy": {"layers.0.weight": np.zeros((4, 2))}}
        says(lambda: model.set_parameters(turned), ValueError, "(4, 2)", "(2, 4)", "(outputs, inputs)", ".T")
        says(lambda: model.set_parameters({"policy": {}}), ValueError, "layers.0.weight")
        says(lambda: model.set_parameters({}), ValueError, "layers.0.weight", "policy")
        extra = {"policy": {**good["policy"], "bias": np.zeros(2)}}
        says(lambda: model.set_parameters(extra), ValueError, "bias", "layers.0.weight")
        says(lambda: model.set_parameters(extra, exact_match=False), ValueError, "bias", "layers.0.weight")
        says(lambda: model.set_parameters({**good, "optimizer": {}}), ValueError, "optimizer", "policy")
        nan = {"policy": {"layers.0.weight": np.full((2, 4), np.nan)}}
        says(lambda: model.set_parameters(nan), ValueError, "finite")
        assert model.theta is before
        with pytest.raises(ValueError, match="read-only"):
            model.theta[0] = 1.0
        with pytest.raises(AttributeError):
            model.theta = np.zeros(8)  # type: ignore[misc]


def test_load(tmp_path: Path) -> None:
    says(lambda: FastES.load(tmp_path / "none"), CheckpointError, str(tmp_path / "none"))
    (tmp_path / "text.zip").write_text("text")
    says(lambda: FastES.load(tmp_path / "text"), CheckpointError, "text.zip")
    with FastES("CartPole-v1", n_workers=2) as model:
        model.save(tmp_path / "m")
    says(lambda: FastES.load(tmp_path / "m", n_workers=-1), ValueError, "n_workers", "-1")
    says(lambda: FastES.load(tmp_path / "m", sigm=1), TypeError, "sigm", "sigma")
    says(lambda: FastES.load(tmp_path / "m", sigma=-1), ValueError, "sigma", "-1")
    says(lambda: FastES.load(tmp_path / "m", env="CartPool-v1"), EnvironmentUnavailable, "CartPole-v1")


# --- the strategy alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"theta0": []}, ValueError, ("theta", "(0,)")),
        ({"theta0": np.zeros((2, 2))}, ValueError, ("theta", "(2, 2)", "one dimension")),
        ({"theta0": 3.0}, ValueError, ("theta", "one dimension")),
        ({"theta0": [math.nan]}, ValueError, ("theta", "finite")),
        ({"theta0": [1e300]}, ValueError, ("theta", "finite")),
        ({"population_size": 3}, ValueError, ("population_size", "3", "odd", "4")),
        ({"sigma": 0}, ValueError, ("sigma", "0")),
        ({"learning_rate": -1}, ValueError, ("learning_rate", "-1")),
        ({"seed": None}, TypeError, ("seed", "None", "int")),
        ({"shaping": "rank"}, ValueError, ("shaping", "rank", "centered_ranks")),
        ({"optimizer": "addam"}, ValueError, ("optimizer", "addam", "adam")),
        ({"table_size": 1}, ValueError, ("table_size", "1", "2")),
        ({"table_size": -5}, ValueError, ("table_size", "-5")),
        ({"episodes": 0}, ValueError, ("episodes", "0")),
        ({"episodes": 1.5}, TypeError, ("episodes", "1.5")),
        ({"momentum": 1.5}, ValueError, ("momentum", "1.5")),
        ({"weight_decay": math.nan}, ValueError, ("weight_decay", "nan")),
        ({"top_fraction": 0}, ValueError, ("top_fraction", "0")),
        ({"top_fraction": 2}, ValueError, ("top_fraction", "2")),
    ],
    ids=label,
)
def test_strategy(arguments: dict[str, Any], kind: type[Exception], words: tuple[str, ...]) -> None:
    says(lambda: EvolutionStrategy(**{"theta0": np.zeros(2), **arguments}), kind, *words)


def test_tell() -> None:
    es = EvolutionStrategy(np.zeros(2), population_size=4, seed=0)
    with pytest.raises(FastESError, match="tell") as caught:
        es.tell([1, 2, 3, 4])
    assert "ask" in str(caught.value)
    says(lambda: es.ask(10), ValueError, "progress_remaining = 10", "num_pairs")
    says(lambda: es.ask(math.nan), ValueError, "progress_remaining = nan")
    says(lambda: es.ask(None), TypeError, "progress_remaining = None is a NoneType")  # type: ignore[arg-type]
    says(lambda: es.ask(num_pairs=0), ValueError, "num_pairs = 0")
    es.ask()
    says(lambda: es.tell([1, 2, 3]), ValueError, "3", "4")
    says(lambda: es.tell([1, 2, 3, 4, 5]), ValueError, "5", "4")
    says(lambda: es.tell(np.zeros((4, 1, 2))), ValueError, "8", "4")
    pairs = [(x, 1.0) for x in es.ask()]
    says(lambda: es.tell(pairs), ValueError, "(candidate, value) pairs", "es.tell([-value for _, value in solutions])")
    says(lambda: es.tell([[1, 2], [3]]), ValueError, "differ in shape", "4 candidates")
    for returns, said in (
        ("abcd", "are 'abcd', a str"),
        (None, "are None, a NoneType"),
        ([1, 2, "3", 4], "have '3' at 2, a str"),
        ([1, None, 2, 3], "have None at 1, a NoneType"),
        ([1j] * 4, "have 1j at 0, a complex"),
        ({1: 2}, "are {1: 2}, a dict"),
        ((i for i in range(4)), "a generator"),
        ([object()] * 4, "at 0, a object"),
    ):
        says(lambda returns=returns: es.tell(returns), TypeError, "tell()'s returns", said, "4 candidates")  # type: ignore[misc]
    assert es.generation == 0
    es.tell([1, 2, 3, 4])
    with pytest.raises(FastESError, match="ask"):
        es.tell([1, 2, 3, 4])


@pytest.mark.parametrize(
    "returns", [[1, 10**30, 2, 3], [Fraction(1, 3)] * 4, [True, False] * 2, [np.float16(1)] * 4], ids=label
)
def test_any_numbers_can_be_told(returns: list[Any]) -> None:
    es, floats = (EvolutionStrategy(np.zeros(2), population_size=4, seed=0) for _ in range(2))
    for each in (es, floats):
        each.ask()
    es.tell(returns)
    floats.tell([float(value) for value in returns])
    assert es.theta.tobytes() == floats.theta.tobytes()


def test_a_whole_number_beyond_floats_is_infinite() -> None:
    assert number_array("values", [-(10**400), 10**400, 1], "numbers").tolist() == [-math.inf, math.inf, 1.0]


def test_candidates_out_of_range() -> None:
    perturbations = EvolutionStrategy(np.zeros(2), population_size=4).ask()
    assert len(perturbations) == 4
    with pytest.raises(IndexError, match="4"):
        perturbations[4]
    with pytest.raises(IndexError, match="-5"):
        perturbations[-5]
    with pytest.raises(IndexError):
        perturbations["first"]
    assert len(list(perturbations)) == 4


def test_schedules_that_misbehave_change_nothing() -> None:
    es = EvolutionStrategy(np.zeros(2), sigma=lambda _: math.nan, population_size=4)
    with pytest.raises(ValueError, match="sigma"):
        es.ask()
    es = EvolutionStrategy(np.zeros(2), learning_rate=lambda _: "fast", population_size=4)  # type: ignore[arg-type,return-value]
    es.ask()
    with pytest.raises((ValueError, TypeError), match="learning_rate"):
        es.tell([1, 2, 3, 4])
    assert es.generation == 0
    assert (es.theta == 0).all()


# --- command line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train", ("train CartPole-v1", "--resume")),
        ("train CartPool-v1", ("CartPole-v1",)),
        ("train CartPole-v1 --population-size 7", ("odd", "8")),
        ("train CartPole-v1 --sigma -1", ("sigma", "-1")),
        ("train CartPole-v1 --sigma nan", ("sigma", "nan")),
        ("train CartPole-v1 --sigma wide", ("sigma", "wide")),
        ("train CartPole-v1 --learning-rate 0", ("learning_rate", "0")),
        ("train CartPole-v1 --policy NoPolicy", ("NoPolicy", "MlpPolicy")),
        ("train CartPole-v1 --total-timesteps -5", ("total_timesteps", "-5")),
        ("train CartPole-v1 --total-timesteps 1.5", ("1.5", "whole number")),
        ("train CartPole-v1 --total-timesteps inf", ("inf", "whole number")),
        ("train CartPole-v1 --total-timesteps nan", ("nan",)),
        ("train CartPole-v1 --total-timesteps many", ("many",)),
        ("train CartPole-v1 --total-timesteps 1e40", ("total_timesteps",)),
        ("train CartPole-v1 --workers -1", ("n_workers", "-1")),
        ("train CartPole-v1 --workers two", ("two",)),
        ("train CartPole-v1 --seed -1", ("seed", "-1")),
        ("train CartPole-v1 --seed one", ("one",)),
        ("train CartPole-v1 --seed 1.5", ("1.5",)),
        ("train CartPole-v1 --preset none-such", ("none-such",)),
        ("train CartPole-v1 --env-kwargs length", ("length", "KEY=VALUE")),
        ("train CartPole-v1 --checkpoint-seconds -1", ("checkpoint", "-1")),
        ("train CartPole-v1 --checkpoint-seconds nan", ("checkpoint", "nan")),
        ("train CartPole-v1 --populaton-size 8", ("--populaton-size",)),
        ("train --resume no/such/run", ("no/such/run",)),
        ("train --resume run --seed 3", ("--seed",)),
        ("eval no/such/run", ("no/such/run",)),
        ("eval no/such/run --episodes 0", ("--episodes", "0")),
        ("play no/such/run", ("no/such/run",)),
        ("play no/such/run --episodes -1", ("--episodes", "-1")),
        ("play no/such/run --max-frames 0", ("--max-frames", "0")),
        ("play no/such/run --video a.mp4 --render", ("--render",)),
        ("tran CartPole-v1", ("tran",)),
    ],
)
def test_command_line(
    arguments: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(arguments.split())
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    error = capsys.readouterr().err
    assert status == (1 if words == ("no/such/run",) else 2)
    assert [word for word in words if word not in error] == []
    assert "Traceback" not in error
    assert os.listdir(tmp_path) == [], "a wrong command leaves nothing behind"


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_run_folder_that_cannot_be_written(where: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert main(["train", "CartPole-v1", "--runs", str(tmp_path / where)]) == 1
    error = capsys.readouterr().err
    assert str(tmp_path / where) in error
    assert "--runs" in error
    assert os.listdir(tmp_path) == ["file"]


def test_an_empty_folder_is_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in (["train", "--resume"], ["eval"], ["play"]):
        assert main([*command, str(tmp_path)]) == 1
        assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        (
            "CartPole-v1",
            {"action_noise": 0.1},
            ("action_noise = 0.1", "are choices (Discrete or MultiDiscrete). ", "sample_actions"),
        ),
        (
            "Pendulum-v1",
            {"sample_actions": True},
            ("sample_actions = True", "the actions of this environment are numbers (Box). ", "action_noise"),
        ),
        ("Pendulum-v1", {"action_noise": 0.1, "policy_kwargs": {"action_mapping": "bins"}}, ("action_noise = 0.1", "'bins'")),
    ],
    ids=label,
)
def test_noise_that_cannot_reach_the_actions_is_refused(env: str, settings: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        FastES(env, preset="unbiased", n_workers=0, **settings)
    for word in words:
        assert word in str(caught.value)


def test_a_file_whose_noise_changed_nothing_still_loads(tmp_path: Path) -> None:
    """An edited one does no harm. What is passed beside the file is refused."""
    with FastES("CartPole-v1", n_workers=0) as model:
        model.training = model.training._replace(settings=model.settings.changed(action_noise=0.1))
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert model.settings.action_noise == 0.1
    with pytest.raises(ValueError, match=r"action_noise = 0\.2"):
        FastES.load(tmp_path / "m", n_workers=0, action_noise=0.2)


@pytest.mark.parametrize("callback", ["tensorbord", 5, [lambda: None, "nosuch"]])
def test_a_training_that_is_refused_leaves_the_model_as_it_was(callback: Any) -> None:
    with FastES("CartPole-v1", n_workers=0, seed=0, verbose=0, target_return="none") as model:
        model.learn(500)
        before = model.num_timesteps, model.budget
        with pytest.raises((TypeError, ValueError)):
            model.learn(2_000, callback=callback)
        assert (model.num_timesteps, model.budget) == before
