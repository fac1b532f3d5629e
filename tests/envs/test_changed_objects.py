"""Risk: what was set in an environment object since it was made is lost on the way to workers, in silence."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from faults import SETTINGS
from gymnasium import spaces, wrappers
from gymnasium.utils import EzPickle
from training import learn

from fastes import FastES
from fastes.envs.source import make_env_source

ID = "Configured-v0"


class Robot:
    """A part of an environment, with __slots__."""

    __slots__ = ("joints", "mass")

    def __init__(self) -> None:
        self.mass, self.joints = 1.0, [1.0, 2.0]


class Configured(gymnasium.Env[Any, Any], EzPickle):
    """Rewards say what is set in it, as highway-env's do."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, start: float = 0.0) -> None:
        EzPickle.__init__(self, start)
        self.start, self.level, self.episodes, self.left = start, 1, 0, 0
        self.config = {"speed": 1.0, "inner": {"lanes": 4}, "marks": [1, 2]}
        self.table = np.zeros((2, 3))
        self.same_table = self.table
        self.robot = Robot()
        self.noise = 0.0

    def configure(self, config: dict[str, Any]) -> None:
        self.config.update(config)

    def bonus(self) -> float:
        return 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.noise = 3, float(self.np_random.integers(100))
        self.episodes += 1
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.ones(2, np.float32), self.worth(), self.left == 0, False, {}

    def worth(self) -> float:
        config = self.config
        settings = self.start + self.level + config["speed"] + config["inner"]["lanes"] + sum(config["marks"])
        return settings + float(self.same_table.sum()) + self.robot.mass + sum(self.robot.joints) + self.bonus() + self.noise


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ID, f"{__name__}:Configured", max_episode_steps=50)
    yield
    del gymnasium.registry[ID]


def twice(self: Any) -> float:
    return 2.0


def with_method(env: Any) -> None:
    env.unwrapped.bonus = types.MethodType(twice, env.unwrapped)


def with_closure(env: Any) -> None:
    """As a script wraps a method: the replacement calls the one before."""
    inner = env.unwrapped
    before = inner.worth
    inner.worth = functools.wraps(before)(lambda: before() * 10.0)


def set_through_wrappers(env: Any) -> None:
    env.set_wrapper_attr("level", 3)


def in_several_places(env: Any) -> None:
    inner = env.unwrapped
    inner.configure({"speed": 5.0})
    inner.table[1, 2] = 7.0
    inner.robot.mass = 2.5
    inner.extra = inner.robot


def with_another_robot(env: Any) -> None:
    env.unwrapped.robot = Robot()
    env.unwrapped.robot.joints = [5.0]


CHANGES: dict[str, Callable[[Any], None]] = {
    "configure": lambda env: env.unwrapped.configure({"speed": 9.0, "more": None}),
    "number": lambda env: setattr(env.unwrapped, "level", 4),
    "through wrappers": set_through_wrappers,
    "nested dict": lambda env: env.unwrapped.config["inner"].update(lanes=2),
    "list": lambda env: env.unwrapped.config["marks"].append(40),
    "array in place": lambda env: env.unwrapped.table.__setitem__((0, 0), 5.0),
    "slots": lambda env: setattr(env.unwrapped.robot, "mass", 3.0),
    "another object": with_another_robot,
    "several": in_several_places,
    "method": with_method,
    "closure": with_closure,
}


def rewards(env: Any) -> list[float]:
    env.reset(seed=5)
    return [float(env.step(np.zeros(1, np.float32))[1]) for _ in range(3)]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("played", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_set_reaches_every_environment(name: str, played: bool, wrapped: bool) -> None:
    def changed() -> Any:
        env = gymnasium.make(ID, start=0.5)
        env = wrappers.TransformReward(env, abs) if wrapped else env
        CHANGES[name](env)
        return env

    env = changed()
    if played:
        rewards(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if played else "error")
        source = make_env_source(env)
    assert source.changes is not None
    sent = pickle.loads(pickle.dumps(source.changes))
    assert sent.names == source.changes.names
    found, before = source(), env.unwrapped.config
    assert rewards(found) == rewards(changed()) != rewards(gymnasium.make(ID, start=0.5))
    assert found.unwrapped.same_table is found.unwrapped.table
    found.unwrapped.config["speed"] = -1.0
    assert before["speed"] > 0, "the object itself is left alone"
    assert source().unwrapped.config["speed"] > 0, "and each environment has a copy"
    assert not source.rebuilds
    assert source.reward_threshold is None


@pytest.mark.slow
def test_trained_returns_are_those_of_a_function_whoever_plays(tmp_path: Path) -> None:
    """For training, evaluation, copies, set_env and load."""

    def make() -> Any:
        env = gymnasium.make(ID)
        in_several_places(env)
        with_closure(env)
        return env

    found, copies = [], []
    for env, n_workers in ((make, 0), (make(), 0), (make(), 1), (make(), 2)):
        with FastES(env, n_workers=n_workers, preset="default", **SETTINGS) as model:
            trained = [record.return_mean for record in learn(model, 2)]
            found.append((trained, model.evaluate(2).mean, model.theta.tobytes()))
            copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))] if not n_workers else copies
            model.save(tmp_path / "m")
    assert found[1:] == found[:1] * 3
    expected = found[0][1]
    for each in copies:
        with each:
            assert each.evaluate(2).mean == expected
    with FastES.load(tmp_path / "m", env=make(), n_workers=0) as model:
        assert model.evaluate(2).mean == expected
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        with pytest.raises(ValueError, match=r"env\.unwrapped\.extra.* had been set in the object"):
            model.evaluate(2)
        model.set_env(make())
        assert model.evaluate(2).mean == expected


def test_an_object_that_was_only_played_is_rebuilt_from_its_id(tmp_path: Path) -> None:
    for name in ("CartPole-v1", "Pendulum-v1", "fastes/TMaze-v0", "fastes/Catch-v0"):
        env = gymnasium.make(name)
        for seed in range(3):
            env.reset(seed=seed)
            for _ in range(5):
                if any(env.step(env.action_space.sample())[2:4]):
                    break
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            source = make_env_source(env)
        assert source.rebuilds, name
    env = wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_env_source(env).changes is None


def test_pictures_that_were_loaded_to_draw_are_no_change() -> None:
    pytest.importorskip("pygame")
    env = gymnasium.make("FrozenLake-v1", render_mode="rgb_array")
    env.reset()
    env.render()
    assert make_env_source(env).changes is None
    env.unwrapped.custom = [np.zeros(2), 3]  # type: ignore[attr-defined]
    assert make_env_source(env).changes is not None


def test_comparing_films_nothing(tmp_path: Path) -> None:
    """The videos that are there are the user's."""
    pytest.importorskip("moviepy")
    pytest.importorskip("pygame")
    env = wrappers.RecordVideo(gymnasium.make("CartPole-v1", render_mode="rgb_array"), str(tmp_path), disable_logger=True)
    env.unwrapped.gravity = 5.0
    env.reset(seed=0)
    env.step(0)
    (tmp_path / "rl-video-episode-0.mp4").write_text("mine")
    assert make_env_source(env).changes is not None
    assert (tmp_path / "rl-video-episode-0.mp4").read_text() == "mine"
    env.recorded_frames.clear()
    env.close()


@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_an_environment_that_ends_the_play_is_compared_all_the_same(error: Any) -> None:
    class Ending(Configured):
        def step(self, action: Any) -> Any:
            raise error("over")

    gymnasium.register("Ending-v0", Ending)
    try:
        env = gymnasium.make("Ending-v0")
        env.unwrapped.level = 3
        assert make_env_source(env)().unwrapped.level == 3
    finally:
        del gymnasium.registry["Ending-v0"]


def test_what_may_be_set_or_played_is_warned_of() -> None:
    env = gymnasium.make(ID)
    for _ in range(4):
        env.reset()
    with pytest.warns(UserWarning, match=r"env\.unwrapped\.episodes is 4, and 0 in those that workers build.*make_env"):
        source = make_env_source(env)
    assert source.rebuilds
    env = gymnasium.make(ID)
    env.unwrapped.episodes = 4
    assert make_env_source(env)().unwrapped.episodes == 4, "nobody has played: it was set"


def test_environments_that_differ_each_time_were_not_changed() -> None:
    class Numbered(Configured):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            Numbered.made += 1
            self.number, self.rng = Numbered.made, np.random.default_rng()

    gymnasium.register("Numbered-v0", Numbered)
    try:
        env = gymnasium.make("Numbered-v0")
        assert make_env_source(env).changes is None
        env.unwrapped.level = 7
        source = make_env_source(env)
        assert source.changes is not None
        assert source.changes.names == ("env.unwrapped.level",)
    finally:
        del gymnasium.registry["Numbered-v0"]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_what_cannot_be_carried_is_refused_by_name(n_workers: int, no_process: None) -> None:
    env = gymnasium.make(ID)
    env.unwrapped.config["lock"] = threading.Lock()
    with pytest.raises(ValueError, match="was changed after it was made") as caught:
        FastES(env, preset="default", n_workers=n_workers, **SETTINGS)
    said = str(caught.value)
    assert "env.unwrapped.config" in said
    assert f"env = gymnasium.make({ID!r})" in said
    assert "FastES(make_env)" in said


def test_an_object_that_a_function_holds_keeps_what_was_set() -> None:
    env = gymnasium.make(ID)
    in_several_places(env)
    expected = rewards(make_env_source(env)())

    def closure() -> Any:
        return env

    for factory in (
        closure,
        functools.partial(wrappers.TransformReward, env, float),
        functools.partial(lambda env: env, env=env),
    ):
        sent = cloudpickle.loads(cloudpickle.dumps(make_env_source(factory)))
        assert rewards(sent()) == expected
    with (
        FastES(closure, preset="default", n_workers=1, **SETTINGS) as model,
        FastES(closure, preset="default", n_workers=0, **SETTINGS) as serial,
    ):
        assert model.evaluate(2).mean == serial.evaluate(2).mean


def test_objects_without_a_spec_keep_what_was_set() -> None:
    """EzPickle makes copies anew from arguments."""
    env = Configured(0.25)
    in_several_places(env)
    source = make_env_source(env)
    assert rewards(source()) == rewards(env)
    assert make_env_source(Configured(0.25)).changes is None


def test_an_argument_comes_beside_what_was_set() -> None:
    env = gymnasium.make(ID)
    env.unwrapped.level = 3
    built = make_env_source(env, {"start": 8.0})()
    assert (built.unwrapped.level, built.unwrapped.start) == (3, 8.0)


# --- MuJoCo ----------------------------------------------------------------------------------------------------------


def heavy(env: Any) -> None:
    env.unwrapped.model.body_mass[1] *= 3.0
    env.unwrapped.model.opt.gravity[2] = -2.0
    env.unwrapped.model.opt.timestep = 0.02


@pytest.mark.parametrize("played", [False, True])
def test_the_compiled_model_of_mujoco_is_carried(played: bool) -> None:
    pytest.importorskip("mujoco")

    def make(change: bool = True) -> Any:
        env = gymnasium.make("InvertedPendulum-v5")
        if change:
            heavy(env)
        return env

    def moves(env: Any) -> list[bytes]:
        env.reset(seed=3)
        return [env.step(np.full(1, 0.3, np.float32))[0].tobytes() for _ in range(5)]

    env = make()
    if played:
        moves(env)
    source = make_env_source(env)
    assert moves(source()) == moves(make()) != moves(make(False))
    assert source.changes is not None
    assert "env.unwrapped.model.opt.gravity" in source.changes.names
    assert make_env_source(make(False)).rebuilds


def test_workers_train_on_the_changed_robot() -> None:
    pytest.importorskip("mujoco")

    def make() -> Any:
        env = gymnasium.make("InvertedPendulum-v5")
        heavy(env)
        return env

    returns = []
    for env, n_workers in ((make, 0), (make(), 0), (make(), 2)):
        with FastES(env, n_workers=n_workers, preset="default", **SETTINGS) as model:
            returns.append([record.return_mean for record in learn(model, 2)])
    assert returns[1:] == returns[:1] * 2


@pytest.mark.slow
def test_highway_envs_configure_is_carried() -> None:
    """Its environments reset themselves while they are made, by no seed."""
    pytest.importorskip("highway_env")

    def make() -> Any:
        env = gymnasium.make("highway-v0")
        env.unwrapped.configure({"lanes_count": 2, "vehicles_count": 5, "duration": 3})
        return env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_env_source(gymnasium.make("highway-v0")).rebuilds
    played = make()
    played.reset(seed=0)
    found = [model_returns(env, n_workers) for env, n_workers in ((make, 0), (make(), 0), (make(), 2), (played, 2))]
    assert found[1:] == found[:1] * 3


def model_returns(env: Any, n_workers: int) -> list[float]:
    with FastES(env, n_workers=n_workers, preset="default", **SETTINGS) as model:
        return [float(each) for each in model.evaluate(2).returns]
