"""Risk: workers train on another environment than the one that was given, or cannot build it where a user expects it."""

from __future__ import annotations

import textwrap
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import SETTINGS, caught_warnings
from gymnasium import spaces, wrappers
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from gymnasium.utils import RecordConstructorArgs
from processes import run_script
from training import assert_same, assert_same_state, learn, train

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.envs.given.rebuild import chain
from fastes.envs.layers import layers
from fastes.envs.source import make_env_source
from fastes.errors import EnvironmentUnavailable

GRAVITY = 0.5


class Scaled(gymnasium.ObservationWrapper, RecordConstructorArgs):
    """A user's wrapper as Gymnasium's documentation has it."""

    def __init__(self, env: Any, factor: float, *, shift: float = 0.0) -> None:
        RecordConstructorArgs.__init__(self, factor=factor, shift=shift)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.factor, self.shift = factor, shift

    def observation(self, observation: Any) -> Any:
        return (observation * self.factor + self.shift).astype(np.float32)


class NotRecorded(gymnasium.Wrapper):
    """A user's wrapper of whose arguments nothing is known."""

    def __init__(self, env: Any, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor


class HalfRecorded(wrappers.ClipAction):
    """Its base records no argument, so that Gymnasium would build it with another factor."""

    def __init__(self, env: Any, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor


class Skip(gymnasium.Wrapper, RecordConstructorArgs):
    """Each action for several steps."""

    def __init__(self, env: Any, steps: int) -> None:
        RecordConstructorArgs.__init__(self, steps=steps)
        gymnasium.Wrapper.__init__(self, env)
        self.steps = steps

    def step(self, action: Any) -> Any:
        total = 0.0
        for _ in range(self.steps):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def pendulum(**kwargs: Any) -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=40, **kwargs)


def rescaled() -> Any:
    return wrappers.RescaleAction(pendulum(g=GRAVITY), np.float32(-1.0), np.float32(1.0))


def transformed() -> Any:
    shift = 0.25
    env = pendulum()
    return wrappers.TransformObservation(env, lambda x: np.asarray(x - shift, np.float32), env.observation_space)


def many() -> Any:
    env = wrappers.ClipAction(wrappers.RescaleAction(pendulum(g=GRAVITY), -2.0, 2.0))
    env = wrappers.TransformReward(Scaled(env, 0.5, shift=0.125), lambda r: r / 8.0)
    return wrappers.FrameStackObservation(env, 3, padding_type="zero")


ENVIRONMENTS: dict[str, Any] = {
    "as made": pendulum,
    "arguments": lambda: pendulum(g=GRAVITY),
    "shorter": lambda: wrappers.TimeLimit(pendulum(), 15),
    "longer": lambda: wrappers.TimeLimit(pendulum(), 60),
    "limit outside of a skip": lambda: wrappers.TimeLimit(Skip(pendulum(), 4), 6),
    "skip outside of a limit": lambda: Skip(wrappers.TimeLimit(pendulum(), 6), 4),
    "limits between wrappers": lambda: wrappers.TimeLimit(Skip(wrappers.TimeLimit(Skip(pendulum(), 2), 12), 3), 3),
    "no limit": lambda: wrappers.TimeLimit(gymnasium.make("Pendulum-v1", max_episode_steps=-1), 9),
    "rescaled": rescaled,
    "clipped": lambda: wrappers.ClipAction(pendulum()),
    "normalised": lambda: wrappers.NormalizeObservation(pendulum(), epsilon=0.5),
    "transformed": transformed,
    "stacked": lambda: wrappers.FrameStackObservation(pendulum(), 4),
    "own": lambda: Scaled(pendulum(), 0.5, shift=0.125),
    "many": many,
    "plain": lambda: gymnasium.make("Pendulum-v1", disable_env_checker=True),
}


def arguments(env: Any) -> list[tuple[str, str]]:
    """Of each wrapper that transforms something; a function is itself."""
    kinds = wrappers.TimeLimit, wrappers.PassiveEnvChecker
    return [
        (type(layer).__name__, repr(getattr(layer, "_saved_kwargs", 0))) for layer in layers(env) if type(layer) not in kinds
    ]


def trajectory(env: Any) -> list[Any]:
    """Two episodes with random actions, as bytes and numbers."""
    found: list[Any] = []
    for seed in (3, 4):
        observation, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
        over = False
        while not over:
            found.append((np.asarray(observation).dtype, np.asarray(observation).tobytes()))
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
            found.append((float(reward), terminated, truncated))
    return found


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("given", ["object", "spec"])
def test_an_environment_is_rebuilt_as_it_is(name: str, given: str) -> None:
    env = ENVIRONMENTS[name]()
    if given == "spec":  # which knows one time limit; the object that Gymnasium makes of it is the measure
        env = gymnasium.make(env.spec, disable_env_checker=True)
    source = make_env_source(env if given == "object" else env.spec)
    rebuilt = source()
    assert chain(rebuilt) == chain(env)
    assert arguments(rebuilt) == arguments(env)
    assert (rebuilt.observation_space, rebuilt.action_space) == (env.observation_space, env.action_space)
    assert trajectory(rebuilt) == trajectory(ENVIRONMENTS[name]() if given == "object" else gymnasium.make(env.spec))


def changed_space() -> Any:
    env = pendulum()
    env.unwrapped.observation_space = spaces.Box(-9.0, 9.0, (3,))
    return env


def renamed() -> Any:
    """Not what its spec would make."""
    inner: Any = gymnasium.make("MountainCarContinuous-v0").unwrapped
    inner = wrappers.TimeLimit(inner, 30)
    inner.unwrapped.spec = gymnasium.make("Pendulum-v1").unwrapped.spec
    return inner


COPIED: dict[str, Any] = {
    "nothing recorded": lambda: NotRecorded(pendulum()),
    "nothing recorded, below": lambda: wrappers.ClipAction(NotRecorded(pendulum(), 3.0)),
    "an argument not recorded": lambda: HalfRecorded(pendulum(), 5.0),
    "another space": changed_space,
    "another environment than its spec's": renamed,
}


@pytest.mark.parametrize("name", COPIED)
def test_what_cannot_be_rebuilt_is_copied(name: str) -> None:
    source = make_env_source(COPIED[name]())
    assert chain(source()) == chain(COPIED[name]())
    assert source().observation_space == COPIED[name]().observation_space
    assert trajectory(source()) == trajectory(COPIED[name]())


def test_workers_train_on_copies() -> None:
    results = [trained(wrappers.ClipAction(NotRecorded(pendulum(), 3.0)), n_workers) for n_workers in (0, 2)]
    assert_same(*results)


def trained(env: Any, n_workers: int, **settings: Any) -> Any:
    """Three generations; without the names of environments, which belong to how one is given."""
    return train(env, 3, n_workers, **SETTINGS, **settings)


@pytest.mark.parametrize("name", ["limit outside of a skip", "many", "own"])
def test_workers_train_on_what_was_given(name: str) -> None:
    """The records hold returns and episode lengths of every generation."""
    serial = trained(ENVIRONMENTS[name](), 0)
    assert_same(serial, trained(ENVIRONMENTS[name](), 2))
    by_function = trained(ENVIRONMENTS[name], 0)
    assert [r.return_mean for r in serial.records] == [r.return_mean for r in by_function.records]
    assert serial.state.arrays["trainings"]["0.theta"].tobytes() == by_function.state.arrays["trainings"]["0.theta"].tobytes()


def test_what_a_wrapper_has_learned_is_not_shared() -> None:
    """Each process starts with a wrapper as new, and building leaves the object alone."""
    env = wrappers.NormalizeObservation(pendulum())
    env.reset(seed=0)
    before = env.obs_rms.mean.copy()
    first, second = (make_env_source(env)() for _ in range(2))
    first.reset(seed=1)
    assert second.obs_rms.count == pytest.approx(1e-4)
    assert (env.obs_rms.mean == before).all()


@pytest.mark.parametrize("as_function", [False, True])
def test_statistics_of_wrappers_are_warned_of(as_function: bool) -> None:
    made: Any = lambda: wrappers.NormalizeObservation(pendulum())  # noqa: E731
    with caught_warnings() as messages, FastES(made if as_function else made(), preset="default", n_workers=0, **SETTINGS):
        pass
    (message,) = [m for m in messages if "NormalizeObservation keeps" in m]
    assert "number of workers" in message
    assert "normalize_obs" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with FastES(rescaled(), n_workers=0, preset="default", **SETTINGS):
            pass


def test_a_wrappers_warning_points_at_the_line_of_the_user(tmp_path: Path) -> None:
    """And where warnings are errors, the environment is closed."""
    made: Any = lambda: wrappers.NormalizeObservation(pendulum())  # noqa: E731
    words = "keeps statistics from one episode"
    with FastES(pendulum, preset="unbiased", n_workers=0, population_size=4, seed=0) as model:
        model.save(tmp_path / "m.zip")
        uses = (
            lambda: model.set_env(made),
            lambda: FastES.load(tmp_path / "m.zip", env=made, n_workers=0).close(),
            lambda: FastES(made, preset="unbiased", n_workers=0, population_size=4, seed=0).close(),
        )
        for use in uses:
            with pytest.warns(UserWarning, match=words) as caught:
                use()
            assert {each.filename for each in caught if words in str(each.message)} == {__file__}

    class Closing(wrappers.NormalizeObservation[Any, Any, Any]):
        closed = 0

        def close(self) -> None:
            Closing.closed += 1
            super().close()

    with FastES(pendulum, preset="unbiased", n_workers=0, population_size=4, seed=0) as model, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=words):
            model.set_env(lambda: Closing(pendulum()))
    assert Closing.closed == 1


# --- what cannot be rebuilt ------------------------------------------------------------------------------------------


def locked() -> Any:
    """What no process can be given a copy of."""
    env = NotRecorded(pendulum())
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    return env


BEYOND: dict[str, tuple[Any, tuple[str, ...]]] = {
    "nothing recorded, no copy": (locked, ("NotRecorded", "RecordConstructorArgs")),
    "nothing recorded, no copy, below": (lambda: wrappers.ClipAction(locked()), ("NotRecorded",)),
    "no spec, and a screen": (lambda: wrappers.HumanRendering(PendulumEnv("rgb_array")), ("HumanRendering", "screen")),
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_environment_that_cannot_be_rebuilt_is_refused(name: str, no_process: None) -> None:
    make, words = BEYOND[name]
    for n_workers in (0, 2):
        with pytest.raises(ValueError, match="pass a function that builds it") as caught:
            FastES(make(), preset="default", n_workers=n_workers, **SETTINGS)
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_spec_with_a_wrapper_that_cannot_be_rebuilt_is_refused() -> None:
    with pytest.raises(ValueError, match="pass a function that builds it") as caught:
        FastES(NotRecorded(pendulum()).spec, preset="default", **SETTINGS)
    assert "NotRecorded" in str(caught.value)


@pytest.mark.parametrize("given", ["object", "spec"])
def test_nothing_is_rendered_in_workers(given: str) -> None:
    env = wrappers.ClipAction(pendulum(render_mode="rgb_array"))
    source = make_env_source(env if given == "object" else env.spec)
    assert source().render_mode is None
    assert source(render_mode="rgb_array").render_mode == "rgb_array"  # for `play`
    assert env.spec.kwargs["render_mode"] == "rgb_array"


class Drawn(gymnasium.Env[Any, Any]):
    """Four steps, and a picture of how many there were."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space: Any = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.render(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.render(), float(action), self.steps == 4, False, {}

    def render(self) -> Any:
        return None if self.render_mode is None else np.full((8, 8, 3), 10 * self.steps, np.uint8)


class Plain(Drawn):
    observation_space: Any = spaces.Box(0.0, 4.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset()
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.full(1, self.steps + 1, np.float32), *super().step(action)[1:]


@pytest.fixture
def drawn() -> Iterator[None]:
    gymnasium.register("Drawn-v0", Drawn, max_episode_steps=9)
    gymnasium.register("Plain-v0", Plain, max_episode_steps=9)
    yield
    del gymnasium.registry["Drawn-v0"], gymnasium.registry["Plain-v0"]


@pytest.mark.parametrize("given", ["object", "spec"])
@pytest.mark.parametrize("way", ["by a wrapper", "by itself"])
def test_frames_that_are_observed_are_drawn_in_workers(drawn: None, way: str, given: str, tmp_path: Path) -> None:
    if way == "by itself":
        env = gymnasium.make("Drawn-v0", render_mode="rgb_array")
    else:
        env = wrappers.AddRenderObservation(gymnasium.make("Plain-v0", render_mode="rgb_array"))
    with FastES(env if given == "object" else env.spec, preset="default", n_workers=1, **SETTINGS) as model:
        assert model.policy_spec.obs_shape in ((8, 8, 3), (192,))
        assert {record.episode_length for record in learn(model, 1)} == {4.0}
        model.save(tmp_path / "m")
    if way == "by itself":
        with FastES.load(tmp_path / "m", n_workers=0) as model:
            assert set(model.evaluate(1).lengths) == {4}
    plain = make_env_source(gymnasium.make("Plain-v0", render_mode="rgb_array"))
    assert plain().render_mode is None, "drawing costs time"


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_id_may_bring_wrappers_of_a_script(n_workers: int, tmp_path: Path) -> None:
    code = """
    import gymnasium, sys
    from gymnasium.utils import RecordConstructorArgs
    from fastes import FastES

    class Twice(gymnasium.RewardWrapper, RecordConstructorArgs):
        def __init__(self, env, factor):
            RecordConstructorArgs.__init__(self, factor=factor)
            super().__init__(env)
            self.factor = factor

        def reward(self, reward):
            return self.factor * reward

    if __name__ == "__main__":
        own = gymnasium.spec("CartPole-v1").entry_point
        twice = (Twice.wrapper_spec(factor=2),)
        gymnasium.register("Own-v0", own, max_episode_steps=4, reward_threshold=8.0, additional_wrappers=twice)
        with FastES("Own-v0", n_workers=N_WORKERS, seed=0, target_episodes=2) as model:
            model.learn(100)
            assert model.evaluate(1).mean == 8.0 and model.solved, "its reward_threshold is a target"
            model.save("m")
        with FastES.load("m", n_workers=N_WORKERS) as model:
            assert model.evaluate(1).mean == 8.0
        with FastES(Twice(gymnasium.make("Own-v0"), factor=2), n_workers=N_WORKERS, seed=0) as model:
            assert model.evaluate(1).mean == 16.0
            model.save("m")
        try:
            FastES.load("m", n_workers=0).evaluate(1)
        except ValueError as error:
            print(error)
    """
    done = run_script(code.replace("N_WORKERS", str(n_workers)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the wrappers Twice were around 'Own-v0'" in done.stdout


def test_a_model_of_an_id_whose_wrapper_is_missing_acts(tmp_path: Path) -> None:
    lost = (WrapperSpec("Lost", "no_such_module:Lost", {}),)
    gymnasium.register("Lost-v0", PendulumEnv, max_episode_steps=9)
    try:
        with FastES("Lost-v0", preset="default", n_workers=0, **SETTINGS) as model:
            model.save(tmp_path / "m")
        gymnasium.registry["Lost-v0"].additional_wrappers = lost
        with FastES.load(tmp_path / "m", n_workers=0) as model:
            assert model.predict(np.zeros(3, np.float32))[0].shape == (1,)
        with pytest.raises(EnvironmentUnavailable, match="no_such_module"):
            FastES("Lost-v0", n_workers=0)
    finally:
        del gymnasium.registry["Lost-v0"]


def test_what_draws_for_people_stays_here() -> None:
    env = wrappers.ClipAction(wrappers.HumanRendering(wrappers.ClipAction(pendulum(render_mode="rgb_array"))))
    env.unwrapped.g = GRAVITY
    built = make_env_source(env)()
    assert [type(layer).__name__ for layer in layers(built)][:3] == ["ClipAction", "ClipAction", "TimeLimit"]
    assert built.render_mode is None
    assert built.unwrapped.g == GRAVITY
    collected = wrappers.RenderCollection(pendulum(render_mode="rgb_array"))
    assert make_env_source(collected)().render_mode is None


def test_a_spec_is_copied() -> None:
    spec = gymnasium.spec("Pendulum-v1")
    own = EnvSpec(spec.id, spec.entry_point, max_episode_steps=5, kwargs={"g": GRAVITY})
    source = make_env_source(own)
    own.kwargs["g"] = 20.0
    assert source().unwrapped.g == GRAVITY


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("env", ["Toy-v0", "envs_for_tests:Toy-v0", "object", "wrapped", "spec"])
def test_env_kwargs_reach_the_environment(env: str, n_workers: int) -> None:
    given = {
        "object": lambda: gymnasium.make("Toy-v0"),
        "wrapped": lambda: wrappers.ClipAction(gymnasium.make("Toy-v0")),
        "spec": lambda: gymnasium.spec("Toy-v0"),
    }.get(env, lambda: env)()
    with FastES(given, preset="default", n_workers=n_workers, env_kwargs={"length": 8}, **SETTINGS) as model:
        assert set(model.evaluate(6).lengths) == {8}
        assert {record.episode_length for record in learn(model, 1)} == {8.0}


class Takes(gymnasium.Env[Any, Any]):
    """Takes its arguments out of what it is given."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, config: dict[str, Any]) -> None:
        self.steps, self.left = config.pop("steps", 9), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = self.steps
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.ones(2, np.float32), 0.0, self.left == 0, False, {}


@pytest.fixture
def takes() -> Iterator[str]:
    gymnasium.register("Takes-v0", Takes, max_episode_steps=20)
    yield "Takes-v0"
    del gymnasium.registry["Takes-v0"]


@pytest.mark.parametrize("n_workers", [0, 1])
def test_arguments_that_an_environment_changes_are_the_same_for_the_next(takes: str, n_workers: int, tmp_path: Path) -> None:
    kwargs = {"config": {"steps": 4}}
    with FastES(takes, preset="default", n_workers=n_workers, env_kwargs=kwargs, **SETTINGS) as model:
        assert set(model.evaluate(3).lengths) == {4}
        model.save(tmp_path / "m")
    assert kwargs == {"config": {"steps": 4}}
    with FastES.load(tmp_path / "m", n_workers=0) as model:
        assert set(model.evaluate(3).lengths) == {4}


def test_arguments_that_json_changes_are_asked_for(takes: str, tmp_path: Path) -> None:
    """Numbers as keys come back as texts."""
    for config, rebuilds in (({"steps": 4, 0: 1.0}, False), ({"steps": 4, "pair": (1, [2, (3,)])}, True)):
        with FastES(takes, preset="default", n_workers=0, env_kwargs={"config": config}, **SETTINGS) as model:
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", n_workers=0) as model:
            if rebuilds:
                assert set(model.evaluate(1).lengths) == {4}
            else:
                with pytest.raises(ValueError, match=r"could not keep all arguments.*config \(\{'steps': 4, 0: 1.0\}\)"):
                    model.evaluate(1)


@pytest.mark.parametrize("given", ["object", "spec", "kwargs"])
def test_an_environment_without_a_limit_has_none_when_it_is_loaded(given: str, tmp_path: Path) -> None:
    """Pendulum is cut after 200 steps where it is made without a word."""
    name, without = "Pendulum-v1", {"max_episode_steps": -1}
    spec = EnvSpec(name, gymnasium.spec(name).entry_point)
    env = {"object": gymnasium.make(name, **without), "spec": spec, "kwargs": name}[given]
    more = {"env_kwargs": without} if given == "kwargs" else {}
    with FastES(env, preset="default", n_workers=0, max_episode_steps=203, **more, **SETTINGS) as model:
        assert set(model.evaluate(1).lengths) == {203}
        model.save(tmp_path / "m")
    checkpoint = read_checkpoint(tmp_path / "m.zip")
    assert checkpoint.data["env"]["kwargs"] == {"max_episode_steps": -1}
    checkpoint.data["env"]["kwargs"]["max_episode_steps"] = None
    write_checkpoint(tmp_path / "older", checkpoint)
    for file in ("m", "older"):
        with FastES.load(tmp_path / file, n_workers=0) as model:
            assert set(model.evaluate(1).lengths) == {203}


@pytest.mark.parametrize("way", ["set_env", "load"])
def test_a_window_in_each_worker_is_refused_later_too(way: str, tmp_path: Path) -> None:
    def shown() -> Any:
        env = gymnasium.make("Toy-v0")
        env.unwrapped.render_mode = "human"
        return env

    with FastES("Toy-v0", preset="default", n_workers=1, **SETTINGS) as model:
        model.save(tmp_path / "m")
        with pytest.raises(ValueError, match="would open a window"):
            model.set_env(shown) if way == "set_env" else FastES.load(tmp_path / "m", shown, 1)
        learn(model, 1)


# --- scripts and notebooks -------------------------------------------------------------------------------------------

OWN = """
    import gymnasium, numpy as np
    from gymnasium.utils import RecordConstructorArgs
    from fastes import FastES

    class Own(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)
        def __init__(self, factor=1.0):
            self.factor = factor
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}
        def step(self, action):
            self.steps += 1
            observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
            return observation, self.factor * float(action), self.steps == 10, False, {}

    class OwnWrapper(gymnasium.RewardWrapper, RecordConstructorArgs):
        def __init__(self, env, bonus):
            RecordConstructorArgs.__init__(self, bonus=bonus)
            gymnasium.RewardWrapper.__init__(self, env)
            self.bonus = bonus
        def reward(self, reward):
            return reward + self.bonus

    class Outer(Own):  # makes an environment that only this process has registered
        def __init__(self):
            super().__init__()
            self.inner = gymnasium.make("Own-v0", factor=3.0)
        def reset(self, *, seed=None, options=None):
            return self.inner.reset(seed=seed)
        def step(self, action):
            return self.inner.step(action)

    gymnasium.register("Own-v0", entry_point="__main__:Own", max_episode_steps=7)
    gymnasium.register("ByClass-v0", entry_point=Own, max_episode_steps=7)
    # Gymnasium's own id, with another environment
    gymnasium.registry.pop("CartPole-v1")
    gymnasium.register("CartPole-v1", entry_point="__main__:Own", max_episode_steps=5)

    def inner_cart_pole():
        return gymnasium.make("CartPole-v1", factor=2.0)

    def same_with_workers(make):
        results = []
        for n_workers in (2, 0):
            settings = dict(preset="unbiased", seed=0, population_size=4, target_return="none")
            with FastES(make(), n_workers=n_workers, **settings) as model:
                model.learn(200)
                results.append((model.theta.tobytes(), [r for r, _ in model.last_episodes]))
        assert results[0] == results[1], results

    same_with_workers(lambda: Own)
    same_with_workers(lambda: Outer)
    same_with_workers(lambda: inner_cart_pole)
    same_with_workers(lambda: "Own-v0")
    same_with_workers(lambda: gymnasium.spec("Own-v0"))
    same_with_workers(lambda: gymnasium.make("ByClass-v0", factor=2.0))
    same_with_workers(lambda: OwnWrapper(gymnasium.make("Own-v0"), 0.5))
    same_with_workers(lambda: OwnWrapper(gymnasium.make("Own-v0"), 0.5).spec)
    print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "notebook"])
def test_what_main_defines_and_registers_is_known_to_workers(kind: str, tmp_path: Path) -> None:
    """A notebook's cells are executed in `__main__`, and no file holds them."""
    code = textwrap.dedent(OWN)
    cell = f"import __main__\nexec(compile({code!r}, '<ipython-input-1>', 'exec'), __main__.__dict__)"
    result = run_script(code if kind == "script" else cell, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_wrappers_of_a_checkpoint_are_asked_for_and_go_on_exactly(tmp_path: Path) -> None:
    whole = trained(many(), 0)
    with FastES(many(), n_workers=0, preset="default", **SETTINGS) as model:
        learn(model, 2)
        model.save(tmp_path / "m")
        observation = np.ones(model.observation_space.shape, np.float32)
        expected = model.predict(observation, deterministic=True)[0]
    with FastES.load(tmp_path / "m", n_workers=0) as again:
        assert (again.predict(observation, deterministic=True)[0] == expected).all()
        with pytest.raises(ValueError, match=r"wrappers.*FastES\.load\(path, env=") as caught:
            learn(again, 3)
        assert "FrameStackObservation" in str(caught.value)
    for env in (many(), many):
        with FastES.load(tmp_path / "m", env=env, n_workers=1) as again:
            learn(again, 3)
            state = again.snapshot()
            if env is not many:
                assert_same_state(whole.state, state)
            assert whole.state.arrays["trainings"]["0.theta"].tobytes() == state.arrays["trainings"]["0.theta"].tobytes()
