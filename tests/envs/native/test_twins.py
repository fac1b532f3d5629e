"""Risk: Gymnasium's environments have other bits in C, or step there although something about them was changed."""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import ClipAction, RecordEpisodeStatistics, RescaleAction, TimeLimit, TransformReward
from natively import SETTINGS, assert_same_natively
from other_gymnasium import USUAL_STEP, as_of, narrow_cartpole
from processes import sent_by_value
from training import Result, assert_same, assert_same_state, learn, train

from fastes import CallablePolicy, FastES, NativeEnv, _core, check_env
from fastes.envs.native.twins import Twin, twin_of
from fastes.rollout.native_episodes import Compared

sent_by_value(__name__)
IDS = ("CartPole-v0", "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
CHANGES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("CartPole-v1", {"sutton_barto_reward": True}, {"gravity": 3.0, "force_mag": 20}),
    ("CartPole-v1", {}, {"kinematics_integrator": "semi-implicit", "tau": 0.05, "total_mass": 2.0, "polemass_length": 0.2}),
    ("CartPole-v1", {}, {"x_threshold": 0.1, "theta_threshold_radians": 1.0, "masspole": 0.4, "length": 0.9}),
    ("Pendulum-v1", {"g": 3.7}, {"max_speed": 3, "max_torque": 1.3, "dt": 0.03, "m": 0.7, "l": 1.7}),
    ("Acrobot-v1", {}, {"book_or_nips": "nips", "dt": 0.1, "LINK_MASS_1": 1.3, "LINK_MOI": 0.7}),
    ("Acrobot-v1", {}, {"AVAIL_TORQUE": [-3.0, 0.5, 2.0], "MAX_VEL_1": 3.0, "LINK_LENGTH_1": 1.4, "LINK_COM_POS_2": 0.3}),
    ("MountainCar-v0", {"goal_velocity": 0.02}, {"force": 0.003, "gravity": 0.002, "goal_position": 0.1, "max_speed": 0.05}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.01}, {"power": 0.004, "goal_position": 0.1, "min_position": -0.9}),
]


def twin(env: Any) -> Twin:
    found = twin_of(env)
    assert isinstance(found, Twin), found
    return found


def actions_for(space: Any, seed: int) -> Callable[[Any], Any]:
    """Actions at random, or the extremes, or what gains speed, which ends episodes of the cars at their goal."""
    draw = np.random.default_rng(seed)

    def act(observation: Any) -> Any:
        if seed % 3 == 2:
            faster = observation[-1] >= 0
            return (
                int(faster) * (int(space.n) - 1)
                if isinstance(space, spaces.Discrete)
                else (space.high if faster else space.low)
            )
        if isinstance(space, spaces.Discrete):
            return int(draw.integers(space.n))
        return draw.uniform(space.low, space.high).astype(space.dtype) if seed % 3 else draw.choice([space.low, space.high])

    return act


def compare(env: Any, seeds: range) -> int:
    """Play episodes in both; return how many ended before their limit."""
    both, ended = Compared(env, twin(env)), 0
    for seed in seeds:
        observation, _ = both.reset(seed=seed)
        act, over = actions_for(env.action_space, seed), (False, False)
        while not any(over):
            observation, _, *over, _ = both.step(act(observation))
        ended += bool(over[0])
        assert not both.difference
    return ended


@pytest.mark.parametrize("env_id", IDS)
def test_the_same_bits_in_c(env_id: str) -> None:
    ended = compare(gymnasium.make(env_id, disable_env_checker=True), range(20 if env_id == "Acrobot-v1" else 40))
    assert ended > 5 or env_id == "Pendulum-v1"


@pytest.mark.parametrize(("env_id", "kwargs", "changed"), CHANGES)
def test_options_and_constants_are_read_off_the_environment(
    env_id: str, kwargs: dict[str, Any], changed: dict[str, Any]
) -> None:
    env = gymnasium.make(env_id, disable_env_checker=True, **kwargs)
    for name, value in changed.items():
        assert hasattr(env.unwrapped, name)
        setattr(env.unwrapped, name, value)
    compare(env, range(6))


def test_first_states_of_many_seeds() -> None:
    """SeedSequence and PCG64, in C."""
    env = CartPoleEnv()
    instance = twin(env).instance
    for seed in [*range(3000), 2**31, 2**32 - 1]:
        instance.reset(seed)
        assert env.reset(seed=seed)[0].tobytes() == instance.observation.tobytes()


@pytest.mark.parametrize(
    ("n_workers", "env_id", "more"),
    [
        (0, "CartPole-v1", {"sample_actions": True}),
        (2, "MountainCarContinuous-v0", {"policy": "MlpPolicy", "action_noise": 0.2, "max_episode_steps": 300}),
        (0, "Acrobot-v1", {"episode_cap": "grow", "episode_cap_start": 50, "episodes_per_candidate": 2}),
    ],
)
def test_a_training_has_the_same_bits(n_workers: int, env_id: str, more: dict[str, Any]) -> None:
    assert_same_natively(env_id, 6, n_workers, **more)


class Subclass(CartPoleEnv):
    pass


def replaced_method() -> Any:
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.step = env.unwrapped.step  # type: ignore[method-assign]
    return env


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TransformReward(gymnasium.make("CartPole-v1"), lambda reward: reward), "TransformReward"),
        (lambda: TimeLimit(Subclass(), 50), "Subclass"),
        (replaced_method, "step was replaced"),
        (lambda: gymnasium.make("FrozenLake-v1"), "FrozenLakeEnv"),
    ],
)
def test_what_may_be_another_task_steps_in_python(make: Callable[[], Any], words: str) -> None:
    assert words in str(twin_of(make()))
    with FastES(make, n_workers=0, native="on", **SETTINGS) as model, pytest.raises(ValueError, match=words):
        model.learn(100)


def test_wrappers_that_watch_change_nothing() -> None:
    env = RecordEpisodeStatistics(TimeLimit(gymnasium.make("CartPole-v1"), 30))
    assert twin(env).wrappers.limit == 30
    compare(env, range(5))


def wrapped(env: Any, *wrappers: Callable[[Any], Any]) -> Any:
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def rescale(low: Any, high: Any) -> Callable[[Any], Any]:
    return lambda env: RescaleAction(env, low, high)


def repeat(times: int) -> Callable[[Any], Any]:
    kind = getattr(gymnasium.wrappers, "RepeatAction", None)
    return lambda env: pytest.skip("Gymnasium before 1.3") if kind is None else kind(env, times)


HALF = np.array([-0.3, -1, 0, -2, -1, -1e-3], np.float32), np.array([0.7, 1, 1, 3, 0, 1e3], np.float32)


@pytest.mark.parametrize(
    ("env_id", "wrappers"),
    [
        ("Pendulum-v1", [ClipAction]),
        ("Pendulum-v1", [rescale(-1.0, 1.0)]),
        ("MountainCarContinuous-v0", [rescale(-3.0, 0.7), ClipAction, RecordEpisodeStatistics]),
        ("MountainCarContinuous-v0", [ClipAction, rescale(-np.inf, np.inf)]),
        ("HalfCheetah-v5", [rescale(*HALF)]),
        ("Hopper-v5", [ClipAction, lambda env: TimeLimit(env, 50)]),
        ("CartPole-v1", [repeat(3)]),
        ("CartPole-v1", [lambda env: TimeLimit(env, 10), repeat(4)]),
        ("Pendulum-v1", [repeat(7), lambda env: TimeLimit(env, 20), ClipAction]),
        ("Pendulum-v1", [repeat(7), lambda env: TimeLimit(env, 40), repeat(1)]),
        ("Walker2d-v5", [rescale(-2.0, 2.0), repeat(3), ClipAction]),
    ],
)
def test_wrappers_that_change_a_step_in_a_known_way(env_id: str, wrappers: list[Callable[[Any], Any]]) -> None:
    env = wrapped(gymnasium.make(env_id, disable_env_checker=True), *wrappers)
    both, draw = Compared(env, twin(env)), np.random.default_rng(0)
    for seed in range(8):
        both.reset(seed=seed)
        over = False
        while not over:
            action = env.action_space.sample() if seed % 2 else np.float32(draw.normal(size=env.action_space.shape) * 2)
            if isinstance(env.action_space, spaces.Discrete):
                action = int(draw.integers(2))
            _, _, terminated, truncated, _ = both.step(action)
            over = terminated or truncated
        assert not both.difference


@pytest.mark.parametrize("env_id", ["MountainCarContinuous-v0", "Pendulum-v1"])
def test_actions_outside_of_their_space(env_id: str) -> None:
    """The car's min and max give a float of Python in place of such an action, so that it computes in float64."""
    env = gymnasium.make(env_id, disable_env_checker=True)
    both, draw = Compared(env, twin(env)), np.random.default_rng(0)
    high = env.action_space.high
    outside = [value * sign for value in (np.nextafter(high, np.float32(9.0)), 1.5 * high, 3.0 * high) for sign in (1, -1)]
    for seed in range(8):
        both.reset(seed=seed)
        over = False
        while not over:
            action = np.float32(outside[int(draw.integers(len(outside)))] if draw.random() < 0.7 else draw.uniform(-high, high))
            _, _, terminated, truncated, _ = both.step(action)
            over = terminated or truncated
        assert not both.difference


def test_edges_of_actions() -> None:
    """Zeros of both signs, infinities, NaN, and numbers at the bounds, as np.clip has them. Its observation is the action."""
    low, high = np.array([0.0, -0.0, -1.0], np.float32), np.array([0.5, 0.0, 1.0], np.float32)
    values = np.array([0.0, -0.0, 0.5, -1.0, 1.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    instance = echoing((3,)).instance
    wrappers, seen = _core.StepWrappers(changes=[("clip", low, high)]), []
    for value in values:
        instance.reset(0)
        instance.step(np.full(3, value, np.float32), wrappers)
        seen.append(instance.observation.copy())
    assert np.array(seen).tobytes() == np.array([np.clip(np.full(3, value), low, high) for value in values]).tobytes()


def echoing(shape: tuple[int, ...], limit: int = 0) -> NativeEnv:
    """An environment whose observation is the last action, of three numbers. It never ends."""
    echo = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 6)(
        lambda _, action, seen, *__: ctypes.memmove(seen, action, 12) and 0
    )
    begin = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *_: 0)
    box = spaces.Box(-2.0, 2.0, shape, np.float32)
    return NativeEnv.from_functions(begin, echo, box, box, max_episode_steps=limit)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 1)])
@pytest.mark.parametrize(("limit", "wrappers"), [(0, []), (0, [repeat(2)]), (5, [repeat(2)]), (3, [])])
def test_wrappers_around_an_environment_of_ones_own(shape: tuple[int, ...], limit: int, wrappers: list[Any]) -> None:
    def make() -> Any:
        return wrapped(echoing(shape, limit), rescale(-1.0, 0.5), *wrappers, ClipAction, lambda env: TimeLimit(env, 4))

    env, found = make(), twin(make())
    env.reset(seed=0)
    found.begin(0)
    for value in (0.1, -7.0, 0.5, 3.0):
        action = np.full(shape, value, np.float32)
        theirs, ours = env.step(action), found.instance.step(action, found.wrappers)
        assert theirs[0].tobytes() == found.instance.observation.tobytes()
        assert theirs[1:4] == ours
        if theirs[3]:
            break
    assert theirs[3], "at the limit"


class Plane(gymnasium.Env[Any, Any]):
    """In Python, with actions of two dimensions."""

    observation_space = action_space = spaces.Box(-1.0, 1.0, (2, 2), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros((2, 2), np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros((2, 2), np.float32), 0.0, False, True, {}


def test_wrappers_around_what_is_not_known_in_c_change_nothing() -> None:
    many = wrapped(gymnasium.make("Pendulum-v1"), *[ClipAction] * 9)
    replaced = ClipAction(gymnasium.make("Pendulum-v1"))
    replaced.func = functools.partial(np.clip, a_min=-1, a_max=1)
    for env, words in ((ClipAction(Plane()), "Plane"), (many, "9 wrappers"), (replaced, "func was replaced")):
        assert words in str(twin_of(env))
    with FastES(lambda: ClipAction(Plane()), "MlpPolicy", n_workers=0, **SETTINGS) as model:
        model.learn(20)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Hopper-v5"])
def test_a_training_in_wrappers_has_the_same_bits(env_id: str) -> None:
    def make() -> Any:
        return wrapped(gymnasium.make(env_id), rescale(-0.5, 0.5), ClipAction)

    assert_same_natively(make, 3, 1)


def test_wrappers_in_c_are_those_of_gymnasium() -> None:
    env = ClipAction(gymnasium.make("Pendulum-v1"))
    env.func = lambda action: action
    assert twin_of(env) == "ClipAction.func was replaced"
    twice = wrapped(gymnasium.make("Pendulum-v1"), repeat(2), repeat(3))
    assert "two wrappers repeat actions" in str(twin_of(twice))


def test_a_method_that_was_put_into_a_class_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may differ where the first episodes do not come."""
    monkeypatch.setattr(CartPoleEnv, "reset", lambda self, **_: (np.zeros(4, np.float32), {}))
    assert "reset was replaced" in str(twin_of(gymnasium.make("CartPole-v1", disable_env_checker=True)))


def constant(_: Any, **__: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("env_id", "place", "name", "value"),
    [
        ("CartPole-v1", "classic_control.cartpole.CartPoleEnv", "step", mock.MagicMock()),
        ("CartPole-v1", "classic_control.cartpole.CartPoleEnv", "reset", functools.partialmethod(constant)),
        ("Acrobot-v1", "classic_control.acrobot.AcrobotEnv", "np_random", property(constant)),
        ("Pendulum-v1", "classic_control.pendulum", "angle_normalize", abs),
        ("Acrobot-v1", "classic_control.acrobot", "rk4", constant),
        ("Hopper-v5", "mujoco.hopper_v5.HopperEnv", "is_healthy", True),
        ("Hopper-v5", "mujoco.hopper_v5.HopperEnv", "control_cost", functools.partialmethod(constant)),
        ("Hopper-v5", "mujoco.hopper_v5.HopperEnv", "do_simulation", functools.partialmethod(constant)),
        ("Humanoid-v5", "mujoco.humanoid_v5", "mass_center", abs),
    ],
)
def test_anything_in_the_place_of_a_function_means_python(
    monkeypatch: pytest.MonkeyPatch, env_id: str, place: str, name: str, value: Any
) -> None:
    if env_id.endswith("-v5"):
        pytest.importorskip("mujoco")
    env = gymnasium.make(env_id, disable_env_checker=True)
    assert isinstance(twin_of(env), Twin)
    monkeypatch.setattr(f"gymnasium.envs.{place}.{name}", value, raising=False)
    assert f"{name} was replaced" in str(twin_of(env))


@pytest.mark.parametrize(
    ("env_id", "name", "value", "words"),
    [
        ("CartPole-v1", "_sutton_barto_reward", np.bool_(True), "numpy.bool"),
        ("CartPole-v1", "gravity", np.float64(9.8), "float64"),
        ("MountainCarContinuous-v0", "max_action", 0.5, "actions from -1.0 to 0.5"),
        ("Acrobot-v1", "torque_noise_max", 1.0, "noise"),
    ],
)
def test_a_constant_that_c_does_not_know_means_python(env_id: str, name: str, value: Any, words: str) -> None:
    env = gymnasium.make(env_id, disable_env_checker=True)
    setattr(env.unwrapped, name, value)
    assert words in str(twin_of(env))


@pytest.mark.parametrize("limit", [float("inf"), 0, None])
def test_a_limit_that_is_no_number_of_steps_means_python(limit: Any) -> None:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env._max_episode_steps = limit  # type: ignore[attr-defined]
    assert "it ends after" in str(twin_of(env))


@pytest.mark.parametrize(("native", "word"), [(True, "on"), (False, "off")])
def test_true_and_false_are_words(native: bool, word: str) -> None:
    with FastES("CartPole-v1", n_workers=0, native=native, **SETTINGS) as model:
        assert model.settings.native == word
        model.learn(20)
    with pytest.raises(ValueError, match="expected one of"):
        FastES("CartPole-v1", native=1)  # type: ignore[arg-type]


def test_another_action_space_means_python() -> None:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.unwrapped.action_space = spaces.Discrete(2, start=0)
    with FastES(lambda: env, n_workers=0, native="on", **SETTINGS) as model:
        model.learn(20)
    env.unwrapped.action_space = spaces.Discrete(5)
    with FastES(lambda: env, n_workers=0, native="on", **SETTINGS) as model, pytest.raises(ValueError, match="its spaces"):
        model.learn(20)


def test_a_policy_in_python_steps_in_python() -> None:
    policy = CallablePolicy(lambda theta, observation: int(theta @ observation > 0), 4)
    with (
        FastES("CartPole-v1", policy, n_workers=0, native="on", **SETTINGS) as model,
        pytest.raises(ValueError, match="its policy"),
    ):
        model.learn(20)


def test_the_callers_random_state_is_kept() -> None:
    with FastES("CartPole-v1", n_workers=0, **SETTINGS) as model:
        model.learn(200)
        before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        model.get_env().set_attr("gravity", 5.0)  # both are compared anew
        model.learn(200, reset_num_timesteps=False)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    "changed", [{"max_position": 0.45}, {"max_speed": 0.03, "goal_velocity": 0.03}, {"goal_position": 0.3}]
)
def test_the_goal_of_the_continuous_car_is_compared_as_numpy_does(changed: dict[str, float]) -> None:
    """A float32 with a float32, and a constant with a constant."""
    env = gymnasium.make("MountainCarContinuous-v0", disable_env_checker=True)
    for name, value in {"power": 0.004, **changed}.items():
        setattr(env.unwrapped, name, value)
    assert compare(env, range(2, 30, 3))


def test_another_version_of_gymnasium_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose step does something else."""
    before = CartPoleEnv.step

    def step(self: Any, action: Any) -> Any:
        observation, reward, *rest = before(self, action)
        return (observation, 2.0 * float(reward), *rest)

    off = train("CartPole-v1", 2, 0, **SETTINGS, native="off")
    monkeypatch.setattr(CartPoleEnv, "step", as_of(before, step))
    with pytest.warns(RuntimeWarning, match="reward in step 1 is 1.0 in C and 2.0 in Python"):
        auto = train("CartPole-v1", 2, 0, **SETTINGS)
    (finding,) = check_env("CartPole-v1", episodes=3, seconds=1.0).findings
    assert "reward in step 1 is 1.0 in C and 2.0 in Python" in finding.text
    assert auto.records[-1].return_mean == 2 * off.records[-1].return_mean


LATE: dict[str, Any] = {"preset": "linear", "seed": 1, "target_return": "none", "eval_lag": 1}
ENDS_EARLIER = "in step .* is False in C and True in Python"


@pytest.fixture
def own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `narrow_cartpole` change CartPole for one test."""
    monkeypatch.setattr(CartPoleEnv, "step", CartPoleEnv.step)


def calls_in(result: Result) -> list[str]:
    return [call["kind"] for call in result.state.data.get("env_calls", [])]


@pytest.mark.parametrize("more", [{}, pytest.param({"trials": 3}, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("own_step")
def test_a_difference_that_comes_late_has_the_same_bits_on_any_number_of_workers(more: dict[str, Any]) -> None:
    """All leave C with the same generation, and not each worker once it has seen it."""
    results = []
    for n_workers in (0, 2):
        with pytest.warns(RuntimeWarning, match=ENDS_EARLIER) as told:
            results.append(train(narrow_cartpole, 10, n_workers, **LATE, **more))
        assert sum("from here on" in str(each.message) for each in told) == 1
    assert calls_in(results[0]) == ["in Python"]
    assert_same(*results)


@pytest.mark.usefixtures("own_step")
@pytest.mark.slow
def test_a_training_that_has_left_c_resumes_in_python(tmp_path: Path) -> None:
    def save(model: FastES, record: Any) -> bool:
        model.save(tmp_path / f"{record.generation}")
        return record.generation < 10

    with pytest.warns(RuntimeWarning, match=ENDS_EARLIER):
        whole = train(narrow_cartpole, 10, **LATE)
    with FastES(narrow_cartpole, n_workers=0, **LATE) as model, pytest.warns(RuntimeWarning, match=ENDS_EARLIER):
        model.learn(10**9, save)
    kinds = []
    for generation in (1, 2, 4, 6, 9):
        n_workers = int(generation in (1, 9))
        with FastES.load(tmp_path / f"{generation}", narrow_cartpole, n_workers=n_workers) as model:
            kinds.append(len(model.training.env_calls))
            learn(model, 10)
            assert_same_state(whole.state, model.snapshot())
    assert (kinds[0], kinds[-1]) == (0, 1)  # before the difference, and after it


def test_an_evaluation_that_differs_is_played_again_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its episodes, and not only the one that was compared."""

    def step(self: Any, action: Any) -> Any:
        observation, reward, *rest = USUAL_STEP(self, action)
        return (observation, 2.0 * reward, *rest)

    monkeypatch.setattr(CartPoleEnv, "step", as_of(USUAL_STEP, step))
    with FastES("CartPole-v1", n_workers=0, **LATE) as model:
        with pytest.warns(RuntimeWarning, match="reward in step 1 is 1.0 in C and 2.0 in Python"):
            found = model.evaluate(4)
        assert found.returns.tolist() == [2.0 * length for length in found.lengths]


def test_calls_on_the_environment_are_followed() -> None:
    with FastES("CartPole-v1", n_workers=0, native="on", **SETTINGS) as model:
        model.learn(50)
        model.get_env().set_attr("x_threshold", 0.0)
        model.learn(50, reset_num_timesteps=False)
        assert {length for _, length in model.last_episodes} == {1}
