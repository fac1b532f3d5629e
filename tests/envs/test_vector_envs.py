"""Risk: a vector environment gives other results than the environment alone, or its wrappers and its owner are ignored."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import caught_warnings, toy
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from training import learn, train
from uneven import Dictionary, TellsSuccess, Uneven, assert_same_results, assert_spec_stays, settings

from fastes import CheckpointMismatch, EnvironmentUnavailable, FastES, WorkerError
from fastes.envs.source import vector_env_of

MODES = list(AutoresetMode)


class Small(gymnasium.ActionWrapper[Any, Any, Any]):
    """Actions of a dtype that no kernel writes."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiDiscrete([3, 3], dtype=np.int16)

    def action(self, action: Any) -> Any:
        assert action.dtype == np.int16
        return (np.asarray(action) - 1).astype(np.float32)


@pytest.mark.parametrize("episodes", [1, 2])
@pytest.mark.parametrize("num_envs", [1, 3, 11])
@pytest.mark.parametrize("mode", MODES)
def test_vector_envs_change_no_bit(mode: AutoresetMode, num_envs: int, episodes: int) -> None:
    own = settings(episodes_per_candidate=episodes, max_episode_steps=15, action_noise=0.1)
    expected = train(Uneven, 3, **own)
    env = SyncVectorEnv([Uneven] * num_envs, autoreset_mode=mode)
    assert_same_results(expected, train(env, 3, **own))
    env.close()


def test_observations_of_the_other_byte_order() -> None:
    results = []
    for dtype in (np.dtype("<f4"), np.dtype(">f4")):

        def observing(dtype: np.dtype[Any] = dtype) -> Uneven:
            env = Uneven()
            env.observation_space = spaces.Box(-np.inf, np.inf, env.observation_space.shape, dtype)  # type: ignore[arg-type]
            return env

        env = SyncVectorEnv([observing] * 3)
        assert env.reset(seed=0)[0].dtype == dtype
        results.append(train(env, 2, **settings()))
        env.close()
    assert_same_results(*results)


def test_trials_on_a_vector_env_change_no_bit() -> None:
    own = settings(trials=3, rungs=2, trials_fraction=5e-7)
    expected = train(Uneven, 6, **own)
    assert len(expected.state.data["trainings"]) == 1, "two were dropped"
    assert {record.trial for record in expected.records} == {1, 2, 3}
    env = SyncVectorEnv([Uneven] * 3)
    assert_same_results(expected, train(env, 6, **own))
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_vector_envs_in_processes(mode: AutoresetMode) -> None:
    env = AsyncVectorEnv([Uneven] * 3, autoreset_mode=mode)
    try:
        assert_same_results(train(Uneven, 2, **settings()), train(env, 2, **settings()))
    finally:
        env.close()


@pytest.mark.parametrize("wrap", [Dictionary, Small, lambda env: Small(Dictionary(env))])
def test_spaces_of_every_kind(wrap: Callable[[Any], Any]) -> None:
    env = SyncVectorEnv([lambda: wrap(Uneven())] * 3)
    assert_same_results(train(lambda: wrap(Uneven()), 2, **settings()), train(env, 2, **settings()))


def test_vector_envs_that_cannot_start_alone_wait_for_each_other() -> None:
    normalised = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([Uneven] * 3))
    vector_env = vector_env_of(normalised)
    assert vector_env is not None
    assert (vector_env.restarts_alone, vector_env.normalizes) == (False, True)
    with FastES(normalised, preset="default", **settings(episodes_per_candidate=2)) as model:
        assert not model.settings.normalize_obs, "once is enough"
        learn(model, 2)
        assert sorted(length for _, length in model.last_episodes)[0] >= 4
        assert model.normalizer.count == 0


def test_a_lane_without_work_holds_up_nobody() -> None:
    alone, waiting = SyncVectorEnv([Uneven] * 4), Foreign(SyncVectorEnv([Uneven] * 4, autoreset_mode="SameStep"))
    results = [train(env, 1, **settings(episodes_per_candidate=3)) for env in (alone, waiting)]
    assert_same_results(*results)
    assert alone.steps < waiting.inner.steps  # type: ignore[attr-defined]


class Foreign(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector environment of a kind that is not known to have reset masks."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.num_envs, self.metadata = inner, inner.num_envs, inner.metadata
        self.single_observation_space, self.single_action_space = inner.single_observation_space, inner.single_action_space
        self.observation_space, self.action_space = inner.observation_space, inner.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)


@pytest.fixture(autouse=True)
def _count_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SyncVectorEnv.step

    def step(self: Any, actions: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        return plain(self, actions)

    monkeypatch.setattr(SyncVectorEnv, "step", step)


def test_an_exception_names_the_jobs_and_training_goes_on(tmp_path: Path) -> None:
    fuse = tmp_path / "fuse"
    fuse.touch()
    seed = 0
    with FastES(toy(), preset="default", **settings()) as model:
        seed = int(model.training.ask().env_seed[1, 0])
    env = SyncVectorEnv([toy(fail_seeds=(seed,), while_exists=str(fuse))] * 2)
    with FastES(env, preset="default", **settings()) as model:
        with pytest.raises(WorkerError, match=r"toy fails.*(\n.*)*vector environment.*generation 1.*jobs \["):
            model.learn(10**6)
        assert model.generation == 0
        fuse.unlink()
        learn(model, 1)
        result = model.theta.copy()
    assert (result == train(toy(), 1, **settings()).state.arrays["trainings"]["0.theta"]).all()


def test_what_a_vector_environment_cannot_do_is_refused() -> None:
    env = SyncVectorEnv([toy()] * 2)
    with pytest.raises(ValueError, match="n_workers = 2 cannot be used with"):
        FastES(env, preset="default", n_workers=2)
    with pytest.raises(ValueError, match=r"env_kwargs .* cannot reach"):
        FastES(env, preset="default", env_kwargs={"length": 3})
    with pytest.raises(ValueError, match="on_env_error = 'penalise'"):
        FastES(env, preset="default", on_env_error="penalise")


def test_the_environment_stays_its_owners() -> None:
    env = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    with FastES(env, preset="default", seed=1, population_size=4, learning_rate=0.05) as model:
        learn(model, 1)
        assert model.get_env() is model.env is env
        assert model.n_envs == 2
        assert model.n_workers == 0
    assert not env.closed
    env.reset()
    env.close()


def test_checkpoints_of_plain_lanes_rebuild_the_environment(tmp_path: Path) -> None:
    env = gymnasium.make_vec("CartPole-v1", 3, max_episode_steps=40, vectorization_mode="sync")
    with FastES(env, seed=1, population_size=4, target_return="none", preset="default") as model:
        learn(model, 2)
        model.save(tmp_path / "model")
        learn(model, 4)
        expected = model.theta.copy()
        with FastES.load(tmp_path / "model", n_workers=0) as alone, FastES.load(tmp_path / "model", env) as on_vector_env:
            for loaded in (alone, on_vector_env):
                learn(loaded, 4)
                assert (loaded.theta == expected).all()


def test_checkpoints_of_wrapped_lanes_ask_for_it(tmp_path: Path) -> None:
    env = gymnasium.wrappers.vector.TransformReward(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2), lambda r: -r)
    with FastES(env, preset="default", seed=1, population_size=4, learning_rate=0.05) as model:
        assert model.source.name == "CartPole-v1"
        learn(model, 1)
        model.save(tmp_path / "model")
    with FastES.load(tmp_path / "model") as model, pytest.raises(ValueError, match="does not say how to build"):
        model.learn(1)


def test_replay_plays_in_a_vector_env() -> None:
    with FastES(SyncVectorEnv([Uneven] * 3), preset="default", **settings()) as model:
        played = model.replay(1, 5)
        learn(model, 1)
        assert model.last_episodes[5] == (played.episode_return, played.length)


def test_set_env() -> None:
    with (
        FastES(toy(), preset="default", n_workers=0, **settings()) as model,
        FastES(toy(), preset="default", n_workers=0, **settings()) as other,
    ):
        learn(model, 1)
        learn(other, 1)
        model.set_env(SyncVectorEnv([toy()] * 3))
        assert (model.n_envs, model.n_workers) == (3, 0)
        learn(model, 2)
        learn(other, 2)
        assert (model.theta == other.theta).all()
        with pytest.raises(CheckpointMismatch, match="does not fit"):
            model.set_env("CartPole-v1")
        model.set_env(toy(length=8))
        learn(model, 3)
        assert max(length for _, length in model.last_episodes) == 8


def test_another_seed_draws_other_noise_and_keeps_the_parameters() -> None:
    with FastES(toy(), preset="default", n_workers=0, **settings()) as model:
        learn(model, 1)
        before, noise_index = model.theta.copy(), model.training.ask().noise_index
        model.set_random_seed(None)
        assert (model.training.ask().noise_index == noise_index).all()
        model.set_random_seed(77)
        assert (model.theta == before).all()
        assert (model.training.ask().noise_index != noise_index).any()
        learn(model, 2)
        after = model.theta.copy()
    with FastES(toy(), preset="default", n_workers=2, **settings()) as model:
        learn(model, 1)
        model.set_random_seed(77)
        learn(model, 2)
        assert (model.theta == after).all()
        assert model.snapshot().data["seed"] == 77


def test_only_the_cpu() -> None:
    FastES("CartPole-v1", device="cpu").close()
    with pytest.raises(ValueError, match="device = 'cuda'"):
        FastES("CartPole-v1", device="cuda")


class Goal(TellsSuccess, Uneven):
    """An environment with a goal."""


@pytest.mark.parametrize("n_workers", [0, 1])
def test_successes_are_told(n_workers: int) -> None:
    with FastES(Goal, preset="default", n_workers=n_workers, **settings()) as model:
        learn(model, 2)
        expected = model.last_successes
        assert set(expected) == {0.0, 1.0}
        assert list(model.ep_success_buffer)[-len(expected) :] == expected
    with FastES(Uneven, preset="default", n_workers=0, **settings()) as model:
        learn(model, 1)
        assert np.isnan(model.last_successes).all()
        assert not model.ep_success_buffer
    for mode in MODES:
        with FastES(SyncVectorEnv([Goal] * 3, autoreset_mode=mode), preset="default", **settings()) as model:
            learn(model, 2)
            assert model.last_successes == expected


def test_successes_in_a_list_of_infos_are_told() -> None:
    for mode in MODES:
        env = gymnasium.wrappers.vector.DictInfoToList(SyncVectorEnv([Goal] * 3, autoreset_mode=mode))
        with (
            FastES(env, preset="default", **settings()) as model,
            FastES(Goal, preset="default", n_workers=0, **settings()) as expected,
        ):
            learn(model, 1)
            learn(expected, 1)
            assert model.last_successes == expected.last_successes


@pytest.mark.parametrize("mode", MODES)
def test_processes_that_reset_after_a_reset_are_refused(mode: AutoresetMode) -> None:
    """Gymnasium's workers without shared memory forget that they were reset, in the step after an end."""
    env = AsyncVectorEnv([Uneven] * 2, shared_memory=False, autoreset_mode=mode)
    try:
        if mode is AutoresetMode.NEXT_STEP:
            with pytest.raises(ValueError, match=r"shared_memory=False.*SAME_STEP"):
                FastES(env, preset="default", **settings())
        else:
            assert_same_results(train(Uneven, 2, **settings()), train(env, 2, **settings()))
    finally:
        env.close()


class Choices(gymnasium.ActionWrapper[Any, Any, Any]):
    """A choice as an int of half the size."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(3, dtype=np.int32)

    def action(self, action: Any) -> Any:
        return np.full(2, int(action) - 1, np.float32)


@pytest.mark.skipif("dtype" not in signature(spaces.Discrete).parameters, reason="choices of Gymnasium before 1.2 are int64")
def test_choices_of_another_dtype() -> None:
    def make() -> Any:
        return Choices(Uneven())

    env = SyncVectorEnv([make] * 3)
    assert_same_results(train(make, 2, **settings()), train(env, 2, **settings()))


def test_a_wrapper_that_changes_rewards_leaves_no_threshold() -> None:
    """CartPole is solved by 475 steps, and not by rewards of 10 for each of 48."""

    def ten(rewards: Any) -> Any:
        return 10.0 * rewards

    vector, own = gymnasium.wrappers.vector, gymnasium.wrappers
    lanes = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    each = SyncVectorEnv([lambda: own.TransformReward(gymnasium.make("CartPole-v1"), ten)] * 2)
    cases: list[tuple[Any, float]] = [
        (lanes, 475.0),
        (vector.TransformReward(lanes, ten), np.inf),
        (vector.ClipReward(lanes, 0.0, 1.0), np.inf),
        (each, np.inf),
        (AsyncVectorEnv([lambda: own.TransformReward(gymnasium.make("CartPole-v1"), ten)] * 2), np.inf),
        (AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2), 475.0),
        (own.TransformReward(gymnasium.make("CartPole-v1"), ten), np.inf),
        (own.FlattenObservation(gymnasium.make("CartPole-v1")), 475.0),
    ]
    for env, expected in cases:
        with FastES(
            env, preset="default", n_workers=0 if isinstance(env, gymnasium.Env) else None, population_size=4, seed=0
        ) as model:
            assert model.target_return == expected
        env.close()
    with FastES(vector.TransformReward(lanes, ten), preset="default", population_size=4, seed=0, target_return=50.0) as model:
        assert model.target_return == 50.0


def test_one_seed_for_all_lanes_is_warned_of() -> None:
    env = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    own = {"seed": 1, "population_size": 6, "preset": "default", "target_return": "none"}
    with caught_warnings() as messages, FastES(env, **own) as model:
        learn(model, 2)
        theta = model.theta.copy()
    (message,) = messages
    assert "one seed for all of its environments" in message
    with FastES(env, **own) as model:
        learn(model, 2)
        assert (model.theta == theta).all(), "the same seeds give the same episodes all the same"


class Remembering(gymnasium.vector.VectorWrapper):  # type: ignore[type-arg]
    """Pays for what an environment's last observation was; a reset forgets all of them."""

    def reset(self, **arguments: Any) -> Any:
        observations, infos = self.env.reset(**arguments)
        self.last = np.array(observations)
        return observations, infos

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = self.env.step(actions)
        rewards, self.last = rewards + self.last[:, 0], np.array(observations)
        return observations, rewards, *rest


def test_a_wrapper_that_remembers_makes_lanes_wait_for_each_other() -> None:
    results = []
    for num_envs in (1, 2, 5):
        env = Remembering(SyncVectorEnv([Uneven] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP))
        results.append(train(env, 2, **settings()))
    assert_same_results(results[0], results[1])
    assert_same_results(results[0], results[2])


def test_episodes_are_recorded_whole() -> None:
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3))
    with FastES(env, preset="default", seed=1, population_size=6, learning_rate=0.05) as model:
        learn(model, 2)
        assert min(env.length_queue) >= 8, "no CartPole falls sooner"


def test_specs_that_cannot_leave_their_process_stay_there() -> None:
    assert_spec_stays(AsyncVectorEnv)


def test_vector_envs_of_several_kinds_are_no_environment_to_rebuild(tmp_path: Path) -> None:
    env = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", g=9.0), lambda: gymnasium.make("Pendulum-v1", g=2.0)])
    with FastES(env, preset="default", seed=1, population_size=4, learning_rate=0.05) as model:
        assert not model.source.rebuilds
        assert model.snapshot().data["env"] is None
    with FastES(
        SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", g=9.0)] * 2),
        preset="default",
        population_size=4,
        learning_rate=0.05,
    ) as model:
        assert model.snapshot().data["env"] == {"id": "Pendulum-v1", "kwargs": {"g": 9.0}}


def test_evaluation_leaves_statistics_alone() -> None:
    env = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([Uneven] * 3))
    with FastES(env, preset="default", **settings()) as model:
        learn(model, 1)
        count = env.obs_rms.count
        model.evaluate(5)
        assert env.obs_rms.count == count
        assert env.update_running_mean
        learn(model, 2)
        assert env.obs_rms.count > count


def test_statistics_that_are_new_are_warned_of(tmp_path: Path) -> None:
    def normalised() -> Any:
        return gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([Uneven] * 2))

    with FastES(normalised(), preset="default", **settings()) as model:
        learn(model, 1)
        model.save(tmp_path / "model")
    with caught_warnings() as messages, FastES.load(tmp_path / "model", env=normalised()):
        pass
    assert any("statistics that are new" in message for message in messages)
    with FastES(Uneven, preset="default", n_workers=0, **settings()) as model, caught_warnings() as messages:
        model.set_env(normalised())
    assert any("normalised twice" in message for message in messages)
    assert not any("statistics that are new" in message for message in messages)


def test_an_environment_without_the_normalisation_of_the_training_is_warned_of(tmp_path: Path) -> None:
    env = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([Uneven] * 2))
    with FastES(env, preset="default", **settings()) as model:
        learn(model, 1)
        model.save(tmp_path / "model")
        with caught_warnings() as messages, FastES.load(tmp_path / "model", env=Uneven, n_workers=0):
            pass
        assert ["has them as they are" in message for message in messages] == [True]
        with caught_warnings() as messages:
            model.set_env(SyncVectorEnv([Uneven] * 2))
        assert ["has them as they are" in message for message in messages] == [True]
        with caught_warnings() as messages:
            model.set_env(SyncVectorEnv([Uneven] * 2))
        assert messages == [], "it was said"
    with caught_warnings() as messages:
        model = FastES.load(tmp_path / "model")
        model.save(tmp_path / "again")
    assert messages == [], "an environment to act in may be normalised elsewhere"
    with model, caught_warnings() as messages:
        model.set_env(Uneven)
    assert ["has them as they are" in message for message in messages] == [True]
    with caught_warnings() as messages:
        FastES.load(tmp_path / "again", env=Uneven, n_workers=0).close()
    assert ["has them as they are" in message for message in messages] == [True]


def test_an_environment_that_normalises_by_itself_is_not_warned_of(tmp_path: Path) -> None:
    class Own(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
        pass

    def normalised() -> Any:
        return gymnasium.wrappers.NormalizeObservation(Uneven())

    def by_a_class_of_ones_own() -> Any:
        return Own(Uneven())

    env = gymnasium.wrappers.vector.NormalizeObservation(SyncVectorEnv([Uneven] * 2))
    with FastES(env, preset="default", **settings()) as model:
        learn(model, 1)
        model.save(tmp_path / "model")
    with caught_warnings() as messages:
        for env in (normalised, by_a_class_of_ones_own):
            FastES.load(tmp_path / "model", env=env, n_workers=0).close()
        for env in (SyncVectorEnv([by_a_class_of_ones_own] * 2), AsyncVectorEnv([normalised] * 2)):
            FastES.load(tmp_path / "model", env=env).close()
            env.close()
    assert not [message for message in messages if "has them as they are" in message]


def test_a_single_environment_that_cannot_be_built_is_asked_for(tmp_path: Path) -> None:
    with FastES(SyncVectorEnv([Uneven] * 2), preset="default", **settings()) as model:
        learn(model, 1)
        with pytest.raises(
            EnvironmentUnavailable, match=r"none can be built from .*FastES\.load\(path, env=\.\.\.\)"
        ) as caught:
            model.play(video=tmp_path / "video.gif")
        assert "doctor" not in str(caught.value), "nothing is wrong with drawing"


def test_rewards_by_moving_statistics_are_warned_of() -> None:
    env = gymnasium.wrappers.vector.NormalizeReward(SyncVectorEnv([Uneven] * 2))
    with caught_warnings() as messages, FastES(env, preset="default", **settings()):
        pass
    assert any("NormalizeReward" in message for message in messages)


def test_a_refused_environment_changes_nothing() -> None:
    with FastES(toy(), preset="default", n_workers=0, on_env_error="penalise", **settings()) as model:
        learn(model, 1)
        source, evaluator = model.source, model.evaluator
        with pytest.raises(ValueError, match="on_env_error"):
            model.set_env(SyncVectorEnv([toy()] * 2))
        assert (model.source, model.evaluator) == (source, evaluator)
        learn(model, 2)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_workers_come_back_after_a_vector_env(n_workers: int) -> None:
    with FastES(toy(), preset="default", n_workers=n_workers, **settings()) as model:
        model.set_env(SyncVectorEnv([toy()] * 2))
        assert model.n_workers == 0
        model.set_env(toy())
        assert model.n_workers == n_workers


def test_actions_that_are_none_of_the_space_are_refused() -> None:
    from fastes import CallablePolicy

    def push(parameters: Any, observation: Any) -> Any:
        return 0.3

    for env, words in ((SyncVectorEnv([toy()] * 2), r"shape \(\)"), (gymnasium.make_vec("CartPole-v1", 2), "dtype float64")):
        model = FastES(env, CallablePolicy(push, 3), preset="default", population_size=4)
        with pytest.raises(WorkerError, match=words):
            model.learn(1)
        model.close()


class Drawing(Uneven):
    """Draws from NumPy's global random state."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward + float(np.random.random()), terminated, truncated, info  # noqa: NPY002


def test_a_round_starts_from_the_same_global_random_state() -> None:
    results = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        results.append(train(SyncVectorEnv([Drawing] * 3), 2, **settings()))
    assert_same_results(*results)


def test_a_lane_that_is_cut_beside_one_that_ends_tells_its_success() -> None:
    class Always(Goal):
        def step(self, action: Any) -> Any:
            *rest, info = super().step(action)
            return *rest, {**info, "is_success": True}

    for num_envs in (1, 3, 7):
        env = SyncVectorEnv([Always] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        with FastES(env, preset="default", **settings(max_episode_steps=6)) as model:
            learn(model, 1)
            assert set(model.last_successes) == {1.0}
