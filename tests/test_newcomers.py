"""Risk: a first mistake is answered with an error of the inside, or with the same sentence three times."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fastes import (
    Callback,
    EnvironmentUnavailable,
    FastES,
    FastESError,
    WorkerCrashed,
    WorkerError,
    train_seeds,
)

SETTINGS: dict[str, Any] = {"preset": "default", "population_size": 4, "seed": 0}


class Toy(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["human"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, True, False, {}


class Fails(Toy):
    def step(self, action: Any) -> Any:
        raise ValueError("the pole is gone")


class Dies(Toy):
    def step(self, action: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Locked(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.lock = threading.Lock()


@pytest.fixture
def registered() -> Iterator[Any]:
    known = set(gymnasium.registry)

    def register(entry_point: str) -> str:
        gymnasium.register("Typo-v0", entry_point=entry_point)
        return "Typo-v0"

    yield register
    for name in set(gymnasium.registry) - known:
        del gymnasium.registry[name]


@pytest.mark.parametrize(
    ("entry_point", "words"),
    [
        (f"{__name__}:Failz", f"entry_point='{__name__}:Failz', but that module has no 'Failz'; did you mean 'Fails'?"),
        ("no_such_modul:Toy", "entry_point='no_such_modul:Toy', but there is no module 'no_such_modul': check its spelling"),
        ("no_such_modul.envs:Toy", "but there is no module 'no_such_modul'"),
        (f"{__name__}.Toy", f"entry_point='{__name__}.Toy': expected 'module:Class'"),
    ],
)
def test_a_class_that_is_registered_under_a_wrong_name(registered: Any, entry_point: str, words: str) -> None:
    with pytest.raises(EnvironmentUnavailable) as caught:
        FastES(registered(entry_point), **SETTINGS)
    assert words in str(caught.value)
    assert "'Typo-v0' is registered with" in str(caught.value)


def test_what_a_right_class_raises_comes_as_it_is(registered: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        FastES(registered(f"{__name__}:Toy"), env_kwargs={"size": 3}, **SETTINGS)


def test_environments_with_several_agents_are_refused_as_such() -> None:
    class Parallel:
        """As PettingZoo's ParallelEnv."""

        possible_agents = ("first", "second")

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            return {}, {}

        def step(self, actions: Any) -> Any:
            return {}, {}, {}, {}, {}

    for env in (Parallel(), Parallel):
        with pytest.raises(TypeError, match="several agents"):
            FastES(env, preset="unbiased")  # type: ignore[arg-type]


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_error_says_what_then_where_then_the_way_there(n_workers: int) -> None:
    with FastES(Fails, n_workers=n_workers, **SETTINGS) as model, pytest.raises(WorkerError) as caught:
        model.learn(10)
    message = str(caught.value)
    what, where, *way = message.splitlines()
    assert what == "ValueError: the pole is gone"
    assert where.startswith("[in the environment: Fails, generation 1, candidate 0 (pair 0, side 0), env seed")
    assert message.count("the pole is gone") == 2, "once, and in the line of the code"
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("ValueError: the pole is gone") == 2, "Python's cause, and ours"
    assert way[:2] == ["", "Traceback (most recent call last):"]
    assert way[-1] == '    raise ValueError("the pole is gone")'


def test_notes_and_causes_stay_in_the_way_there() -> None:
    def fails() -> Any:
        env = Toy()

        def step(action: Any) -> Any:
            try:
                raise KeyError("first")
            except KeyError as first:
                error = ArithmeticError("second")
                if sys.version_info >= (3, 11):
                    error.add_note("a note")
                raise error from first

        env.step = step  # type: ignore[method-assign]
        return env

    with FastES(fails, n_workers=1, **SETTINGS) as model, pytest.raises(WorkerError) as caught:
        model.learn(10)
    message = str(caught.value)
    assert message.startswith("ArithmeticError: second\n[in the environment")
    assert "KeyError: 'first'" in message
    assert "a note" in message or sys.version_info < (3, 11)


def test_a_worker_that_said_nothing_has_no_last_output() -> None:
    with FastES(Dies, n_workers=1, **SETTINGS) as model:
        with (
            pytest.warns(RuntimeWarning, match="it is replaced"),
            pytest.raises(WorkerCrashed, match="workers were lost") as caught,
        ):
            model.learn(10)
        assert "output" not in str(caught.value)


def test_workers_open_no_windows() -> None:
    """Whoever passes an environment that is shown gets workers that show nothing, or an error where that cannot be had."""
    env = gymnasium.make("CartPole-v1", render_mode="human")
    with FastES(env, **SETTINGS) as model:
        assert model.env.render_mode is None
    with FastES("CartPole-v1", env_kwargs={"render_mode": "human"}, **SETTINGS) as model:
        assert model.env.render_mode is None
    with pytest.raises(ValueError, match="render_mode='human', and each worker would open a window"):
        FastES(lambda: Toy("human"), **SETTINGS)
    with FastES(lambda: Toy("human"), n_workers=0, **SETTINGS) as model:
        assert model.env.render_mode == "human", "this process may show one"
    with pytest.raises(ValueError, match="it has render_mode='human', and workers open no windows"):
        FastES(Toy("human"), **SETTINGS)


def test_wrappers_that_cannot_be_rebuilt_are_named_in_what_to_write() -> None:
    env = gymnasium.wrappers.TimeAwareObservation(Locked(gymnasium.make("CartPole-v1")))
    with pytest.raises(ValueError, match="cannot be rebuilt") as caught:
        FastES(env, **SETTINGS)
    message = str(caught.value)
    assert "the wrapper Locked does not record its arguments" in message
    assert "or copied (cannot pickle '_thread.lock' object)" in message
    assert message.endswith("such as FastES(lambda: TimeAwareObservation(Locked(gymnasium.make('CartPole-v1'))))")


@pytest.mark.parametrize("name", ["Hopper-v3", "HalfCheetah-v2"])
def test_versions_that_gymnasium_gave_away_are_met_with_the_newest(name: str) -> None:
    """They are registered all the same, and installing MuJoCo does not bring them back."""
    newest = f"{name.partition('-')[0]}-v5"
    with pytest.raises(EnvironmentUnavailable, match=f"{name!r} is no longer in Gymnasium; did you mean {newest!r}") as caught:
        FastES(name, n_workers=0)
    assert "pip install" not in str(caught.value)


def test_a_policy_alone_is_met_with_the_one_that_is_meant() -> None:
    with pytest.raises(TypeError, match=r"names a policy but no environment: .*; did you mean 'CnnPolicy' or .*\?$"):
        FastES("CnnPolicyy", preset="default")
    with pytest.raises(EnvironmentUnavailable, match="not registered"):
        FastES("MlpPolicy-v0", preset="default", n_workers=0)


@pytest.mark.parametrize(
    ("by_place", "named"),
    [
        (("CartPole-v1", "MlpPolicy"), {}),
        (("MlpPolicy", "CartPole-v1"), {}),
        (("MlpPolicy",), {"env": "CartPole-v1"}),
        (("CartPole-v1",), {"policy": "MlpPolicy"}),
        ((), {"env": "CartPole-v1", "policy": "MlpPolicy"}),
    ],
)
def test_environment_and_policy_have_any_order(by_place: tuple[str, ...], named: dict[str, str]) -> None:
    with FastES(*by_place, n_workers=0, **named) as model:  # type: ignore[arg-type]
        assert (model.source.name, model.settings.policy) == ("CartPole-v1", "MlpPolicy")


@pytest.mark.parametrize(
    ("by_place", "named", "said"),
    [
        ((), {}, r"env = None is a NoneType: expected an environment id such as 'CartPole-v1'"),
        ((), {"policy": "MlpPolicy"}, "env = None is a NoneType"),
        (("MlpPolicy",), {}, "'MlpPolicy'.* names a policy but no environment"),
        (("MlpPolicy", "CartPole-v1"), {"env": "Toy-v0"}, "FastES got 'CartPole-v1' in addition to an environment and"),
    ],
)
def test_an_environment_too_few_or_many_is_told(by_place: tuple[str, ...], named: dict[str, str], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        FastES(*by_place, n_workers=0, **named)  # type: ignore[arg-type]


def test_a_setting_is_not_set_on_a_model(tmp_path: Path) -> None:
    with FastES("CartPole-v1", preset="default", seed=0, n_workers=0) as model:
        for name in ("sigma", "learning_rate", "policy"):
            with pytest.raises(
                AttributeError, match=rf"{name} = 0\.5 was set on a model, .* FastES\.load\(path, {name}=\.\.\.\)"
            ):
                setattr(model, name, 0.5)
        model.note = "an attribute of the user's own"  # type: ignore[attr-defined]

    class Derived(FastES):
        sigma = 0.0

    with Derived("CartPole-v1", preset="default", seed=0, n_workers=0) as derived:
        derived.sigma = 0.5
        assert derived.settings.sigma != 0.5


def test_learning_within_learning_is_refused() -> None:
    """The outer training would end with the inner one's budget."""

    def again(model: FastES, record: Any) -> None:
        if record.generation == 2:
            model.learn(1000)

    with FastES("CartPole-v1", preset="default", seed=0, n_workers=0) as model:
        with pytest.raises(FastESError, match="was called by a callback of learn"):
            model.learn(5000, callback=again)
        generation = model.generation
        model.learn(1000, reset_num_timesteps=False)
        assert model.generation > generation == 2


def test_a_callback_of_the_wrong_kind_says_what_to_pass() -> None:
    with FastES("CartPole-v1", preset="default", seed=0, n_workers=0) as model:
        with pytest.raises(TypeError, match=r"is a class: pass an object of it, such as Callback\(\)"):
            model.learn(1000, callback=Callback)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"'callbacks': it is callback here"):
            model.learn(1000, callbacks=[])  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match=r"expected a function from a model to its callbacks"):
        train_seeds("CartPole-v1", 2, callback=Callback(), n_workers=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "meant"), [("MLP", "MlpPolicy"), ("lstm", "MlpLstmPolicy"), ("linear", "LinearPolicy")])
def test_a_policy_that_is_shortened_is_recognised(policy: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"unknown policy '{policy}'.*; did you mean '{meant}'"):
        FastES(lambda: Toy(), policy, n_workers=0)


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        ("papr", r"^unknown preset 'papr'; did you mean 'paper'\?$"),
        ("CartPole-v11", r"^unknown preset 'CartPole-v11'; did you mean 'CartPole-v1'"),
        ("zzzz", r"^unknown preset 'zzzz': expected a \.toml file, or one of .*CartPole-v1, .*, paper, "),
    ],
)
def test_presets_are_listed_only_if_none_has_such_a_name(preset: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FastES("MlpPolicy", lambda: Toy(), n_workers=0, preset=preset)


@pytest.mark.parametrize(
    ("policy", "kwargs", "said"),
    [
        ("MlpLtsmPolicy", {}, r"for any other network; did you mean 'MlpLstmPolicy' or 'MlpPolicy'"),
        ("CnnPolicyy", {}, r"unknown policy 'CnnPolicyy'.* did you mean 'CnnPolicy' or "),
        ("mlppolicy", {}, r"unknown policy 'mlppolicy'.* did you mean 'MlpPolicy'"),
        ("CnPolicy", {}, r"for any other network; did you mean 'CnnPolicy' or "),
        ("MlpPolicy", {"activation_fn": "rellu"}, r"TorchPolicy\(module\); did you mean 'relu' or 'elu'\?$"),
    ],
)
def test_a_question_ends_its_message(policy: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FastES(policy, lambda: Toy(), n_workers=0, policy_kwargs=kwargs)
