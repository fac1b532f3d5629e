"""Risk: a script that was written for one of SB3's algorithms reads, passes or plays something that FastES takes otherwise."""

from __future__ import annotations

import io
import json
import sys
import time
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
from training import assert_same, assert_same_records, learn, theta_of, train

from fastes import CheckpointError, CheckpointMismatch, FastES
from fastes.cli.main import main
from fastes.sb3 import logger as own_logger

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # Gymnasium before 1.3 has no other


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


def test_an_error_of_an_environment_behind_get_env_keeps_its_words() -> None:
    built = list[int]()

    def make() -> Any:
        built.append(0)
        if len(built) > 1:
            raise AttributeError("no simulator in this shell")
        return Toy()

    with FastES(make, preset="default", n_workers=0, **SETTINGS) as model:
        env = model.get_env()
        with pytest.raises(AttributeError, match="no simulator in this shell"):
            _ = env.envs


def test_get_env_becomes_a_vec_env_once_sb3_is_imported(tmp_path: Path) -> None:
    """A script may ask for it before: what was called on that holds on."""
    pytest.importorskip("stable_baselines3")
    script = run_script(
        """
        import sys
        from fastes import FastES

        with FastES("Pendulum-v1", preset="default", n_workers=0) as model:
            before = model.get_env()
            assert "stable_baselines3" not in sys.modules
            try:
                before.reset()
            except AttributeError as error:
                print(error)
            before.set_attr("max_torque", 1.5)
            from stable_baselines3.common.evaluation import evaluate_policy
            from stable_baselines3.common.vec_env import VecEnv
            after = model.get_env()
            assert isinstance(after, VecEnv) and model.get_env() is after
            assert after.get_attr("max_torque") == [1.5]
            evaluate_policy(model, after, 1)
            for _ in range(2):
                model.set_env(before)
            assert model.get_env().get_attr("max_torque") == [1.5]
        """,
        tmp_path,
    )
    assert script.returncode == 0, script.stderr
    assert "it is a VecEnv of SB3 only if stable_baselines3 is imported before get_env()" in script.stdout


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
    assert "trained 120" in done.stdout, done.stderr


def test_a_copy_that_differs_is_refused() -> None:
    env = Forgetful()
    FastES(env, preset="default", n_workers=0, **SETTINGS).close()
    env.observation_space = spaces.Box(-9.0, 9.0, env.observation_space.shape)
    with pytest.raises(ValueError, match=r"cannot be copied .*observation_space"):
        FastES(env, preset="default", n_workers=0, **SETTINGS)


def test_what_is_played_on_get_env_is_the_same_each_time() -> None:
    pytest.importorskip("stable_baselines3.common.vec_env")
    starts = []
    for seed in (3, 3, 4):
        with FastES("CartPole-v1", n_workers=0, seed=seed) as model:
            starts.append(model.get_env().reset().tolist())
    assert starts[0] == starts[1] != starts[2]


# --- policies and parameters -----------------------------------------------------------------------------------------


def test_multi_input_policy_flattens_what_is_no_image() -> None:
    first = train(lambda: Dictionary(Toy()), 1, policy="MultiInputPolicy", **SETTINGS)
    same = train(lambda: Dictionary(Toy()), 1, policy="MlpPolicy", **SETTINGS)
    assert_same_records(same.records, first.records)
    assert theta_of(same.state).tobytes() == theta_of(first.state).tobytes()


def test_parameters_that_are_not_named_stay() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
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
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        before = model.theta.copy()
        with pytest.raises(TypeError, match=rf"set_parameters\(\) {said}.*expected {{'policy'.*load\(path\)\.get_parameters"):
            model.set_parameters(parameters)
        assert (model.theta == before).all()


def test_a_model_with_a_new_seed_goes_on_like_its_saved_copy(tmp_path: Path) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
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
    with FastES(toy(), preset="default", n_workers=0, learning_rate=0.03, **SETTINGS) as model:
        assert model.learning_rate == 0.03
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        assert model.device == "cpu"
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=lambda name: SimpleNamespace(type=name)))
        assert model.policy.device.type == "cpu"


def test_statistics_are_means_of_the_last_episodes(tmp_path: Path) -> None:
    returns: list[float] = []
    with FastES(toy(), preset="default", n_workers=0, stats_window_size=11, **SETTINGS) as model:
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
        FastES(toy(), preset="default", n_workers=0, stats_window_size=0, **SETTINGS)


def test_a_logger_without_formats_that_was_set_is_told() -> None:
    class InMemory(own_logger.Logger):
        def dump(self, step: int = 0) -> None:
            dumped.append((step, dict(self.name_to_value)))

    dumped: list[tuple[int, dict[str, Any]]] = []
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        model.set_logger(InMemory(None, []))
        model.learn(100)
        assert [step for step, _ in dumped][-1] == model.num_timesteps
        assert {"time/fps", "rollout/ep_rew_mean"} <= set(dumped[-1][1])


# --- what a walk through SB3's scripts has found ---------------------------------------------------------------------


def test_get_env_draws_where_the_environment_can() -> None:
    pytest.importorskip("stable_baselines3")
    with FastES("MlpPolicy", gymnasium.make("CartPole-v1", render_mode="rgb_array"), preset="default", n_workers=0) as model:
        env = model.get_env()
        env.reset()
        assert env.render_mode == "rgb_array"
        assert env.render().ndim == 3


def test_monitors_that_a_function_makes_write_nothing_over_each_other(tmp_path: Path) -> None:
    Monitor = pytest.importorskip("stable_baselines3.common.monitor").Monitor
    with (
        caught_warnings() as messages,
        FastES(lambda: Monitor(Toy(), str(tmp_path / "log")), preset="default", n_workers=2, **SETTINGS) as model,
    ):
        learn(model, 2)
    assert any("FastES(Monitor(env, file))" in message for message in messages)
    assert len((tmp_path / "log.monitor.csv").read_text().splitlines()) == 2


class Endless(Toy):
    """Ends by no step."""

    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


def test_an_environment_that_never_ends_cannot_outlast_the_budget() -> None:
    with caught_warnings() as messages, FastES(Endless, preset="default", n_workers=0, **SETTINGS) as model:
        model.learn(8_000)
        assert {length for _, length in model.last_episodes} == {1_000}
        assert model.num_timesteps < 16_000
    assert any("after 1,000 steps" in message and "max_episode_steps" in message for message in messages)


def test_learning_what_is_solved_says_so() -> None:
    with FastES("fastes/CyclicMDP-v0", preset="unbiased", n_workers=0, seed=0, target_episodes=2) as model:
        with caught_warnings() as messages:
            model.learn(10**6)
        assert messages == []
        with pytest.warns(UserWarning, match="the parameters from before this training reach"):
            model.learn(10**6, reset_num_timesteps=False)
    with FastES("CartPole-v1", preset="default", n_workers=0, seed=0, target_return=1.0, target_episodes=2) as model:
        with caught_warnings() as messages:
            model.learn(10**6, lambda *_: False)  # as Ctrl-C ends it: the first evaluation comes with the end
        assert (model.generation, model.solved) == (1, True)
        (message,) = messages
        assert "from before this training reach target_return = 1 already, and are kept" in message


def test_arguments_of_other_algorithms_are_named_at_once() -> None:
    with pytest.raises(TypeError, match=r"'n_steps' \(it has no.*'batch_size' \(it.*'gamma' \(it has no counterpart[^;]*$"):
        FastES("MlpPolicy", "CartPole-v1", n_steps=2048, batch_size=64, gamma=0.99)
    with pytest.raises(TypeError, match="'MlpPolicy'"):
        FastES(type("ActorCriticPolicy", (), {}), "CartPole-v1", preset="unbiased")
    with pytest.raises(ValueError, match=r"CnnPolicy needs images, .*expected a Box of .* of shape"):
        FastES("CnnPolicy", "CartPole-v1")


def test_small_liberties_of_sb3() -> None:
    with FastES("MlpPolicy", "CartPole-v1", 0.03, n_workers=0, population_size=4, preset="default") as model:
        assert model.settings.learning_rate == 0.03
        model.learn(1e2)
        with pytest.raises(ValueError, match="callback = 'x' names no reporter: there are tensorboard, wandb, trackio"):
            model.learn(100, callback="x")
        with pytest.raises(CheckpointMismatch, match=r"actions with 3 choices from 0 on.*2 choices"):
            model.set_env("Acrobot-v1")


# --- what SB3's scripts pass, read and keep ----------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["FrozenLake-v1", TAXI, "CartPole-v1", "Pendulum-v1"])
def test_one_action_is_an_array_that_its_environment_takes(env: str) -> None:
    with FastES(env, preset="unbiased", n_workers=0, seed=0) as model:
        env_ = gymnasium.make(env)
        observation, _ = env_.reset(seed=0)
        action, state = model.predict(observation, deterministic=True)
        assert isinstance(action, np.ndarray)
        assert state is None
        assert action.shape == env_.action_space.shape
        assert action.dtype == env_.action_space.dtype
        assert env_.action_space.contains(action)
        env_.step(action)  # toy text's tables have the action as a key
        if action.ndim == 0:
            assert {action.item(): 1}[action] == 1
            assert type(action + 1) is np.int64


class Recording(Toy):
    """Writes down the types of the actions that it is given."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.action_space, self.path = spaces.Discrete(3), path

    def step(self, action: Any) -> Any:
        Path(self.path).write_text(type(action).__name__)
        return super().step(np.zeros(2))


@pytest.mark.parametrize("n_workers", [0, 1])
def test_environments_are_given_what_their_space_samples(n_workers: int, tmp_path: Path) -> None:
    with FastES(lambda: Recording(str(tmp_path / "kind")), preset="default", n_workers=n_workers, **SETTINGS) as model:
        learn(model, 1)
    assert (tmp_path / "kind").read_text() == "int64"


def test_save_takes_sb3s_arguments(tmp_path: Path) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        model.save(tmp_path / "all")
        model.save(tmp_path / "some", exclude=["replay_buffer", "env", "device", "logger"], include=["rollout_buffer", "seed"])
        assert (tmp_path / "all.zip").read_bytes() == (tmp_path / "some.zip").read_bytes()
        with pytest.raises(ValueError, match=r"exclude=\['policy'\].*always holds the whole training"):
            model.save(tmp_path / "none", exclude={"policy"})
        with pytest.raises(ValueError, match=r"include=\['env'\]\): a checkpoint cannot hold 'env'; pass env= to load"):
            model.save(tmp_path / "none", include=("env",))
        with pytest.raises(TypeError, match=r"exclude='env'\): expected a list of names"):
            model.save(tmp_path / "none", exclude="env")
        assert not (tmp_path / "none.zip").exists()


class OneWay(io.RawIOBase):
    """A stream that cannot go back."""

    def __init__(self, content: bytes) -> None:
        self.inner = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.inner.readinto(buffer)


def test_models_are_kept_in_open_files(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        model.save(buffer)
        model.save(tmp_path / "m")
        assert buffer.getvalue() == (tmp_path / "m.zip").read_bytes()
        with pytest.raises(TypeError, match=r"save\(\) got .*StringIO.*open for bytes"):
            model.save(io.StringIO())  # type: ignore[arg-type]
        with open(tmp_path / "m.zip", "rb") as file:
            for stream in (buffer, file, OneWay(buffer.getvalue())):
                with FastES.load(stream, env=toy(), n_workers=0) as copy:  # type: ignore[arg-type]
                    assert (copy.theta == model.theta).all()
                assert not stream.closed
    for wrong, kind, said in (
        (io.BytesIO(buffer.getvalue()[:-5]), CheckpointError, "BytesIO.*cut off"),
        (io.StringIO("x"), TypeError, r"load\(\) got .*StringIO.*open for bytes"),
        (5, TypeError, r"load\(\) got 5"),
    ):
        with pytest.raises(kind, match=said):
            FastES.load(wrong)  # type: ignore[arg-type]


def test_attributes_of_sb3_follow_the_training() -> None:
    with FastES(toy(), preset="default", n_workers=0, learning_rate="lin_0.2_0.1", **SETTINGS) as model:
        assert model._current_progress_remaining == 1.0
        learn(model, 3)
        assert model._total_timesteps == model.budget >= model.num_timesteps
        assert model._n_updates == model.generation == 3
        assert model._episode_num == model.num_episodes
        assert 0.0 <= model._current_progress_remaining < 1.0
        assert model.lr_schedule(0.5) == pytest.approx(0.15)
        assert abs(model.start_time / 1e9 - time.time()) < 60.0
        assert model._last_obs is model._last_episode_starts is model._vec_normalize_env is None
        assert (model.use_sde, model.sde_sample_freq, model._custom_logger) == (False, -1, False)
        assert model.policy_kwargs == model.settings.policy_kwargs
        assert not hasattr(model, "replay_buffer"), "CheckpointCallback asks"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gamma", "it has no counterpart in ES$"),
        ("n_steps", "it has no counterpart in ES$"),
        ("replay_buffer", "ES keeps no transitions"),
        ("action_noise", r"here it is the number model\.settings\.action_noise"),
        ("population_size", r"it is a setting, model\.settings\.population_size"),
        ("collect_rollouts", "inside SB3's algorithms"),
        ("frobnicate", "'FastES' object has no attribute 'frobnicate'"),
    ],
)
def test_attributes_that_are_absent_say_why(name: str, said: str) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.raises(AttributeError, match=said):
            getattr(model, name)
        assert getattr(model, name, None) is None


def test_a_new_environment_leaves_nothing_of_the_old_one() -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    several = vec_env.VecNormalize(vec_env.DummyVecEnv([Toy, Toy]))
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 1)
        before, theta = model.get_env(), model.theta
        model.set_env(several)
        assert model.get_env() is several is not before
        assert (model.n_envs, model._vec_normalize_env) == (2, several)
        model.set_env(toy(), force_reset=False)
        assert (model.n_envs, model.get_vec_normalize_env(), model._last_obs) == (1, None, None)
        assert model.get_env() not in (before, several)
        assert len(model.ep_info_buffer) == 8, "as in SB3"
        assert model.theta is theta


@pytest.mark.parametrize("name", ["eval_env", "eval_freq", "n_eval_episodes", "eval_log_path"])
def test_what_sb3_has_removed_from_learn_is_named(name: str) -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        with pytest.raises(TypeError, match=rf"learn\(\) got .* '{name}': SB3 2.0 has removed it: pass callback=EvalCallback"):
            model.learn(100, **{name: 3})
        with pytest.raises(TypeError, match=r"'sigma': it is a setting, an argument of FastES"):
            model.learn(100, sigma=3)
        with pytest.raises(TypeError, match=r"'calback'; did you mean 'callback'\?"):
            model.learn(100, calback=None)
        assert model.num_timesteps == 0
    with pytest.raises(TypeError, match=r"'create_eval_env': SB3 2\.0 has removed it"):
        FastES(toy(), preset="unbiased", create_eval_env=True)


def test_what_sb3_deprecates_warns() -> None:
    layers = {"pi": [5], "vf": [7]}
    with pytest.warns(UserWarning, match=r"dict in a list, which SB3 has deprecated.*pass the dict itself") as caught:
        model = FastES(
            "MlpPolicy", toy(), preset="default", n_workers=0, **{**SETTINGS, "policy_kwargs": {"net_arch": [layers]}}
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the user's line, and none of FastES's"
    with model:
        assert model.settings.policy_kwargs["net_arch"] == layers, "a file of it warns no more"
        assert next(iter(model.policy_spec.parameter_shapes().values())) == (3, 5)
        with pytest.warns(UserWarning, match=r"use model\.dump_logs"):
            model._dump_logs()


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"net_arch": [8, {"pi": [8]}]}, "shares layers with a critic, which SB3 has removed.*expected a list of layer sizes"),
        ({"ortho_init": False}, "'ortho_init'.*no counterpart here: leave it out"),
        ({"squash_output": True}, "it is action_mapping='squash' here"),
        ({"features_extractor_class": object}, r"fastes\.TorchPolicy\(module\)"),
    ],
)
def test_policy_kwargs_of_sb3_are_answered(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FastES("MlpPolicy", toy(), preset="default", n_workers=0, **{**SETTINGS, "policy_kwargs": kwargs})


@pytest.mark.parametrize(
    ("name", "said", "flag"),
    [
        ("n_delta", "population_size is twice that here", "--population-size is twice that"),
        ("delta_std", "it is sigma here", "it is --sigma here"),
        ("delta_schedule", "sigma takes a schedule", "sigma takes a schedule"),
        ("n_top", "top_fraction is n_top / n_delta here", "--top-fraction is n_top / n_delta here"),
        ("zero_policy", "LinearPolicy begins at zero", "LinearPolicy begins at zero"),
        ("alive_bonus_offset", "it is alive_bonus here, with the other sign", "it is --alive-bonus here"),
        ("lr", "it is learning_rate here", "it is --learning-rate here"),
        ("std", "it is sigma here", "it is --sigma here"),
        ("noise_std", "it is sigma here", "it is --sigma here"),
        ("popsize", "it is population_size here", "it is --population-size here"),
        ("l2_coeff", "it is weight_decay here", "it is --weight-decay here"),
        ("num_workers", "it is n_workers here", "it is --workers here"),
        ("n_envs", "n_workers processes play the episodes here", "--workers processes"),
        ("random_seed", "it is seed here", "it is --seed here"),
        ("reward_threshold", "it is target_return here", "it is --target-return here"),
        ("n_timesteps", "it is total_timesteps here", "it is --total-timesteps here"),
        ("progress_bar", "it is an argument of learn", "progress is shown anyway"),
        ("callback", "it is an argument of learn", "it is for Python, an argument of learn"),
        ("hidden_sizes", r"it is policy_kwargs=\{'net_arch'", "it is --net-arch here"),
    ],
)
def test_names_of_other_packages_are_answered(name: str, said: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError, match=f"'{name}': {said}"):
        FastES(toy(), preset="unbiased", **{name: 1})  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="2"):
        main(["train", "CartPole-v1", f"--{name.replace('_', '-')}", "1"])
    assert f"--{name.replace('_', '-')} 1: {flag}" in capsys.readouterr().err


def test_names_from_the_constructor_are_answered_in_learn() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        for name, said in {
            "seed": "it is an argument of FastES",
            "verbose": "it is an argument of FastES",
            "n_workers": "it is an argument of FastES",
            "lr": "it is learning_rate here, an argument of FastES",
            "timesteps": "it is total_timesteps here",
            "sigma": "it is a setting, an argument of FastES",
        }.items():
            with pytest.raises(TypeError, match=f"{name!r}: {said}"):
                model.learn(10, **{name: 1})


def test_layers_beside_policy_kwargs_are_answered() -> None:
    for name, said in (("net_arch", r"policy_kwargs=\{'net_arch': \[64, 64\]\}"), ("activation_fn", "policy_kwargs=")):
        with pytest.raises(TypeError, match=f"{name!r}: it is {said}"):
            FastES(toy(), preset="unbiased", n_workers=0, **{name: [8]})  # type: ignore[arg-type]
