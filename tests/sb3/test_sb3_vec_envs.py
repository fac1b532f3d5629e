"""Risk: an SB3 VecEnv is not driven as it is: its wrappers, its normalisation, its environments, its way of counting."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings
from training import learn, train
from uneven import Dictionary, TellsSuccess, Uneven, assert_same_results, assert_spec_stays, settings

from fastes import FastES
from fastes.envs.source import vector_env_of

vec = pytest.importorskip("stable_baselines3.common.vec_env")
callbacks = pytest.importorskip("stable_baselines3.common.callbacks")


class Whole(Uneven):
    """With rewards that float32 holds exactly, as SB3 keeps them."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, round(8 * reward), terminated, truncated, info


def monitored(cls: Any = Whole) -> Any:
    from stable_baselines3.common.monitor import Monitor

    return Monitor(cls())


@pytest.mark.parametrize("episodes", [1, 2])
@pytest.mark.parametrize("num_envs", [1, 3, 11])
@pytest.mark.parametrize("stacked", [False, True])
def test_vector_envs_change_no_bit(num_envs: int, episodes: int, stacked: bool) -> None:
    env = vec.DummyVecEnv([monitored] * num_envs)
    if stacked:  # environments wait for each other
        env = vec.VecFrameStack(env, 1)
    lanes_ = vector_env_of(env)
    assert lanes_ is not None
    assert lanes_.restarts_alone is not stacked
    own = settings(episodes_per_candidate=episodes, max_episode_steps=15)
    assert_same_results(train(Whole, 3, **own), train(env, 3, **own))


def test_episodes_after_a_training_differ() -> None:
    """`evaluate_policy` on the VecEnv of a training: environments that had no job, and both sides of a pair, shared a seed."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    env = vec.VecNormalize(vec.DummyVecEnv([monitored] * 6), norm_reward=False)
    with FastES("MlpPolicy", env, seed=0, population_size=8, preset="default", normalize_obs=False) as model:
        model.learn(300)
        lengths = evaluation.evaluate_policy(model, model.get_env(), 6, return_episode_rewards=True)[1]
        model.evaluate(2)
        again = evaluation.evaluate_policy(model, model.get_env(), 6, return_episode_rewards=True)[1]
    assert len(set(lengths)) > 2
    assert len(set(again)) > 2


def test_vector_envs_in_processes() -> None:
    env = vec.SubprocVecEnv([monitored] * 2, start_method="fork")
    try:
        assert_same_results(train(Whole, 2, **settings()), train(env, 2, **settings()))
    finally:
        env.close()


@pytest.mark.parametrize("wrap", [lambda env: env, vec.VecMonitor])
def test_dictionaries(wrap: Any) -> None:
    env = wrap(vec.DummyVecEnv([lambda: Dictionary(Whole())] * 3))
    assert_same_results(train(lambda: Dictionary(Whole()), 2, **settings()), train(env, 2, **settings()))


def test_stacked_frames_reach_the_policy() -> None:
    env = vec.VecFrameStack(vec.DummyVecEnv([monitored] * 3), 4)
    with FastES("MlpPolicy", env, preset="default", **settings()) as model:
        learn(model, 2)
        assert model.policy_spec.obs_size == 12
        assert model.normalizer.count > 0


def test_vecnormalize_normalises_and_returns_stay_raw() -> None:
    env = vec.VecNormalize(vec.DummyVecEnv([monitored] * 3), clip_reward=0.5)
    with FastES("MlpPolicy", env, preset="default", **settings()) as model:
        assert not model.settings.normalize_obs
        assert model.get_vec_normalize_env() is env
        learn(model, 2)
        assert env.obs_rms.count > 20
        assert all(r == round(r) for r, _ in model.last_episodes), "the environment's own rewards are whole"
        assert any(abs(r) > 0.5 * length for r, length in model.last_episodes)
        assert model.normalizer.count == 0
    with FastES(env, preset="default", normalize_obs=True, **settings()) as model, caught_warnings() as messages:
        assert model.settings.normalize_obs, "who asks for it gets it"
        model.set_env(env)
    assert "VecNormalize object> normalises observations, and so does the model" in messages[0], "no address"


class AtABound(Whole):
    """Shows one of its bounds, 1.0."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)

    def reset(self, **named: Any) -> Any:
        return np.ones(3, np.float32), super().reset(**named)[1]


class AtTheOther(AtABound):
    def reset(self, **named: Any) -> Any:
        return np.zeros(3, np.float32), super().reset(**named)[1]


def test_normalised_observations_may_leave_the_space_in_silence() -> None:
    env = vec.VecNormalize(vec.DummyVecEnv([lambda: monitored(AtTheOther), lambda: monitored(AtABound)]))
    assert env.reset().min() < 0.0, "VecNormalize leaves the space as it was"
    with caught_warnings() as messages:
        train(env, 1, **settings())
    assert not [message for message in messages if "not in Box" in message]


def test_predict_takes_normalised_dictionaries_in_silence() -> None:
    env = vec.VecNormalize(vec.DummyVecEnv([lambda: Dictionary(AtABound())] * 2), norm_obs_keys=["place"])
    shown = {"place": np.full((2, 3), -9.0, np.float32), "kind": np.zeros(2, np.int64)}
    with FastES("MultiInputPolicy", env, preset="default", **settings()) as model, caught_warnings() as messages:
        model.predict(shown)
    assert not messages


def test_a_lane_that_starts_alone_shows_normalised_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    env = vec.VecNormalize(vec.DummyVecEnv([monitored] * 3))
    vector_env = vector_env_of(env)
    assert vector_env is not None
    vector_env.reset([1, 2, 3])
    for _ in range(30):
        vector_env.step(np.zeros((3, 2), np.float32))
    raw, _ = Whole().reset(seed=9)
    vector_env.restart({1: 9})
    expected = env.normalize_obs(raw[np.newaxis])[0]
    assert not np.array_equal(raw, expected)
    assert np.array_equal(list(vector_env.observations())[1], expected)


def test_what_sb3_keeps_of_the_environment_is_kept(tmp_path: Path) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    env = vec.VecNormalize(vec.DummyVecEnv([monitored] * 4))
    eval_env = vec.VecNormalize(vec.DummyVecEnv([monitored]), training=False, norm_reward=False)
    evaluation = callbacks.EvalCallback(eval_env, eval_freq=20, n_eval_episodes=2, verbose=0)
    saving = callbacks.CheckpointCallback(40, str(tmp_path), save_vecnormalize=True)
    with FastES("MlpPolicy", env, preset="default", **settings()) as model:
        model.learn(400, [evaluation, saving])
        assert np.array_equal(eval_env.obs_rms.mean, env.obs_rms.mean)
        assert evaluate_policy(model, env, 4)[0]
    assert list(tmp_path.glob("*vecnormalize*.pkl"))
    with open(next(tmp_path.glob("*vecnormalize*.pkl")), "rb") as file:
        assert pickle.load(file).obs_rms.count > 1


def test_callbacks_count_calls_of_all_environments() -> None:
    class Own(callbacks.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            assert self.locals["dones"].shape == (3,)
            assert len(self.locals["infos"]) == 3
            ends.extend(info["episode"] for info in self.locals["infos"] if "episode" in info)
            dones.append(int(self.locals["dones"].sum()))
            return True

    ends: list[Any] = []
    dones: list[int] = []
    env = vec.DummyVecEnv([monitored] * 3)
    with FastES("MlpPolicy", env, preset="default", **settings()) as model:
        own = Own()
        told: list[tuple[float, int]] = []
        calls = [0]

        def note(model: FastES, _: Any) -> None:
            told.extend(model.last_episodes)
            calls[0] += -(-sum(length for _, length in model.last_episodes) // 3)

        model.learn(300, [own, note])
        assert own.training_env is env
        assert own.n_calls == calls[0]
        assert own.n_calls < model.num_timesteps
        assert sum(dones) == len(told) == model.num_episodes
        assert [(info["r"], info["l"]) for info in ends] == told


def test_learning_goes_on_after_wrapped_lanes_were_loaded(tmp_path: Path) -> None:
    own = settings()
    env = vec.VecFrameStack(vec.DummyVecEnv([monitored] * 2), 2)
    with FastES("MlpPolicy", env, preset="default", **own) as model:
        learn(model, 2)
        model.save(tmp_path / "model")
        learn(model, 4)
        with FastES.load(tmp_path / "model", env=env, device="auto", custom_objects={"lr_schedule": 1}, seed=5) as loaded:
            learn(loaded, 4)
            assert (loaded.theta == model.theta).all()


def test_make_vec_env_by_name() -> None:
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env("CartPole-v1", 4, seed=0)
    with caught_warnings() as messages, FastES("MlpPolicy", env, seed=0, population_size=8) as model:
        assert model.source.name == "CartPole-v1"
        assert model.target_return == 475.0
        model.learn(2000)
    assert messages == []
    env.close()


class Goal(TellsSuccess, Whole):
    """An environment with a goal."""


def test_successes_are_told_and_logged(tmp_path: Path) -> None:
    from stable_baselines3.common.logger import configure

    class Own(callbacks.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            told.extend(float(info["is_success"]) for info in self.locals["infos"] if "is_success" in info)
            return True

    told: list[float] = []
    with FastES(Goal, preset="default", n_workers=0, **settings()) as model:
        learn(model, 2)
        expected = list(model.ep_success_buffer)
    with FastES(vec.DummyVecEnv([lambda: monitored(Goal)] * 3), preset="default", **settings()) as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(10**6, [Own(), lambda _, record: record.generation < 2])
        model.logger.close()
        assert list(model.ep_success_buffer) == told == expected
        assert 0.0 < np.mean(expected) < 1.0
    header, *rows = (tmp_path / "progress.csv").read_text().splitlines()
    assert float(rows[-1].split(",")[header.split(",").index("rollout/success_rate")]) == pytest.approx(np.mean(expected))


class Tenfold(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 10.0 * float(reward)


@pytest.mark.parametrize(("wrapper", "expected"), [(Tenfold, np.inf), (gymnasium.wrappers.FlattenObservation, 475.0)])
def test_a_wrapper_in_another_process_that_changes_rewards_leaves_no_threshold(wrapper: Any, expected: float) -> None:
    env = vec.SubprocVecEnv([lambda: wrapper(gymnasium.make("CartPole-v1"))] * 2, start_method="fork")
    try:
        with FastES(env, preset="default", population_size=4, seed=0) as model:
            assert model.target_return == expected
    finally:
        env.close()


def test_specs_that_cannot_leave_their_process_stay_there() -> None:
    assert_spec_stays(partial(vec.SubprocVecEnv, start_method="fork"))


class Negated(vec.VecEnvWrapper):  # type: ignore[misc, name-defined]
    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, -rewards, dones, infos


def test_rewards_are_those_that_wrappers_around_vecnormalize_give() -> None:
    def returns(env: Any) -> list[float]:
        with FastES(env, preset="default", **settings()) as model:
            learn(model, 1)
            return [episode_return for episode_return, _ in model.last_episodes]

    plain = returns(vec.DummyVecEnv([monitored] * 3))
    within = returns(vec.VecNormalize(Negated(vec.DummyVecEnv([monitored] * 3)), norm_obs=False))
    around = returns(Negated(vec.VecNormalize(vec.DummyVecEnv([monitored] * 3), norm_obs=False, norm_reward=False)))
    assert within == around == [-episode_return for episode_return in plain]
    with pytest.raises(ValueError, match="Negated lies around VecNormalize"):
        FastES(Negated(vec.VecNormalize(vec.DummyVecEnv([monitored]))), preset="default", **settings())


def test_a_lane_that_is_cut_is_counted_from_zero() -> None:
    env = vec.VecMonitor(vec.DummyVecEnv([Whole] * 3))
    with FastES(env, preset="default", **settings(max_episode_steps=4)) as model:
        learn(model, 1)
        assert env.episode_lengths.max() <= 20
    vector_env = vector_env_of(env)
    assert vector_env is not None
    vector_env.reset([1, 2, 3])
    vector_env.step(np.zeros((3, 2), np.float32))
    vector_env.restart({1: 5})
    assert env.episode_lengths.tolist() == [1, 0, 1]


def test_a_monitor_that_forbids_resets_is_refused() -> None:
    from stable_baselines3.common.monitor import Monitor

    for env in (vec.DummyVecEnv([lambda: Monitor(Whole(), allow_early_resets=False)]),):
        with pytest.raises(ValueError, match="allow_early_resets=True"):
            FastES(env, preset="default", **settings())


def test_evaluation_leaves_vecnormalize_alone() -> None:
    env = vec.VecNormalize(vec.DummyVecEnv([monitored] * 3))
    with FastES(env, preset="default", **settings()) as model:
        learn(model, 1)
        count = env.obs_rms.count
        model.evaluate(5)
        assert env.obs_rms.count == count
        assert env.training


def test_a_vecenv_of_another_kind_is_warned_of() -> None:
    env = vec.DummyVecEnv([monitored] * 2)

    class Own(vec.VecEnv):  # type: ignore[misc, name-defined]
        """Not built on DummyVecEnv."""

        def __init__(self) -> None:
            super().__init__(2, env.observation_space, env.action_space)

        def __getattribute__(self, name: str) -> Any:
            own = ("num_envs", "observation_space", "action_space", "_seeds", "__class__", "__dict__", "_reset_seeds")
            return object.__getattribute__(self, name) if name in own else getattr(env, name)

    Own.__abstractmethods__ = frozenset()
    with caught_warnings() as messages, FastES(Own(), preset="default", **settings()) as model:
        learn(model, 1)
    assert any("one seed for all of its environments" in message for message in messages)


@pytest.mark.parametrize("name", ["VecCheckNan", "VecMonitor", "VecVideoRecorder", "VecExtractDictObs"])
def test_wrappers_that_show_the_same_change_no_bit(name: str, tmp_path: Path) -> None:
    from stable_baselines3.common.vec_env.vec_extract_dict_obs import VecExtractDictObs

    class Seen(Whole):
        def __init__(self) -> None:
            super().__init__()
            self.render_mode = "rgb_array"

        def render(self) -> Any:
            return np.zeros((16, 16, 3), np.uint8)

    wraps = {
        "VecVideoRecorder": lambda env: vec.VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=3),
        "VecExtractDictObs": lambda env: VecExtractDictObs(env, "place"),
    }
    make = (lambda: Dictionary(Seen())) if name == "VecExtractDictObs" else Seen
    if name == "VecVideoRecorder":
        pytest.importorskip("moviepy")
    env = wraps.get(name, getattr(vec, name, None))(vec.DummyVecEnv([make] * 3))
    assert_same_results(train(Seen, 2, **settings()), train(env, 2, **settings()))
    env.close()
    assert len(list(tmp_path.glob("*.mp4"))) == (name == "VecVideoRecorder")


def test_transposed_images_reach_the_policy() -> None:
    from images_for_tests import SETTINGS, Dots

    own = {**SETTINGS, "seed": 5, "target_return": "none"}
    first, last = vec.DummyVecEnv([lambda: Dots(channels_first=True)] * 3), vec.VecTransposeImage(vec.DummyVecEnv([Dots] * 3))
    assert_same_results(train(first, 2, **own), train(last, 2, **own))
