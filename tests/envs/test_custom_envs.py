"""Risk: a first environment of one's own fails with a traceback of ours, and not with what it returned and what to return."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fastes import FastES, WorkerError

BOX = spaces.Box(-1.0, 1.0, (3,))
DICT = spaces.Dict({"place": BOX, "kind": spaces.Discrete(3)})
TUPLE = spaces.Tuple([BOX, spaces.Discrete(3)])
SMALL: dict[str, Any] = {"seed": 0, "population_size": 4, "preset": "default"}
GOOD = object()  # a sample of the space


class Mine(gymnasium.Env[Any, Any]):
    """Five steps; shows and pays what it is told, from its third step on."""

    def __init__(self, space: Any = BOX, shown: Any = GOOD, reward: Any = 1.0, action_space: Any = None) -> None:
        self.observation_space, self.shown, self.reward = space, shown, reward
        self.action_space = spaces.Discrete(2) if action_space is None else action_space

    def _observation(self) -> Any:
        return self.observation_space.sample() if self.shown is GOOD or self.steps < 3 else self.shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = self.reward if self.steps >= 3 else 1.0
        return self._observation(), reward, self.steps >= 5, False, {}


def sentence(n_workers: int, **habits: Any) -> str:
    """What is said before the traceback."""
    with FastES(lambda: Mine(**habits), n_workers=n_workers, **SMALL) as model, pytest.raises(WorkerError) as caught:
        model.learn(20)
    return str(caught.value).partition("\n")[0]


OBSERVATIONS: dict[str, tuple[Any, Any, str]] = {
    "array for a dict": (DICT, np.zeros(6), "is the ndarray array([0., 0., 0., 0., 0., 0.]): expected a dict with"),
    "missing key": (
        DICT,
        {"place": np.zeros(3)},
        "has keys ['place']: expected a dict with keys ['kind', 'place']; the space",
    ),
    "wrong shape": (
        DICT,
        {"place": np.zeros(4), "kind": 1},
        "observation['place'] has shape (4,): expected (3,); the space is",
    ),
    "text": (DICT, {"place": "abc", "kind": 1}, "observation['place'] is the str 'abc'"),
    "None": (DICT, None, "observation is the NoneType None: expected a dict"),
    "array for a tuple": (TUPLE, np.zeros(6), "expected a tuple of 2 parts"),
    "short tuple": (TUPLE, (np.zeros(3),), "expected a tuple of 2 parts"),
    "nested": (spaces.Dict({"x": DICT}), {"x": {"place": np.zeros(3)}}, "observation['x'] has keys ['place']"),
    "choice": (spaces.Discrete(3), 1.5, "observation has the value 1.5, which is not in Discrete(3)"),
    "switches": (spaces.MultiBinary(3), np.ones(1), "observation has shape (1,): expected (3,)"),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_observation_of_another_space_is_named(name: str) -> None:
    space, shown, said = OBSERVATIONS[name]
    told = sentence(0, space=space, shown=shown)
    assert "env returned an observation that is not one of its observation_space: " in told
    assert said in told
    assert "batch" not in told


def test_a_worker_tells_the_same() -> None:
    assert OBSERVATIONS["missing key"][2] in sentence(1, space=DICT, shown={"place": np.zeros(3)})
    assert "env.step returned the reward None, a NoneType: expected one number" in sentence(1, reward=None)


@pytest.mark.parametrize("reward", [None, np.ones(2), np.ones(1), "a", [1.0], {}, 1j], ids=repr)
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    told = sentence(0, reward=reward)
    assert f"env.step returned the reward {reward!r}, a {type(reward).__name__}" in told
    assert "expected one number; return float(reward)" in told


class Faulty(Mine):
    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise KeyError("mine")
        return super().step(action)


def test_an_exception_of_the_environments_own_stays_its_own() -> None:
    with FastES(lambda: Faulty(DICT), n_workers=0, **SMALL) as model, pytest.raises(WorkerError, match="KeyError: 'mine'") as e:
        model.learn(20)
    assert "observation_space" not in str(e.value)


class Copied(Mine):
    def _observation(self) -> Any:
        return self.observation_space.sample()


class Healthy(Copied):
    """Its names resemble those of Gymnasium's robots, and mean other things."""

    def _healthy_reward(self) -> float:
        return 1.0


class Specified(Copied):
    def __init__(self) -> None:
        super().__init__()
        self.spec = {"difficulty": 3}  # type: ignore[assignment]


@pytest.mark.parametrize(
    "env", [Healthy, Healthy(), Specified, Specified()], ids=["class", "object", "spec", "spec of an object"]
)
def test_attributes_with_a_robots_names_are_the_environments_own(env: Any) -> None:
    with FastES(env, n_workers=0, seed=0, population_size=4) as model:
        assert model.learn(300).num_timesteps >= 300


class Bare(Mine):
    def __init__(self) -> None: ...


SPACES: dict[str, tuple[Any, str]] = {
    "list": (lambda: Mine([1, 2]), r"observation_space of the environment Mine is \[1, 2\], a list: expected self"),
    "class": (
        lambda: Mine(spaces.Box),
        r"observation_space of the environment Mine is the class Box itself: expected .*\(-1",
    ),
    "None": (lambda: Mine(None), "observation_space of the environment Mine is None, a NoneType"),
    "missing": (
        Bare,
        r"the environment Bare has no observation_space .*: expected self\.observation_space = gymnasium",
    ),
    "actions": (lambda: Mine(action_space=4), r"action_space of the environment Mine is 4, a int: .*spaces\.Discrete\(2\)"),
    "actions class": (lambda: Mine(action_space=spaces.Discrete), "action_space of the environment Mine is the class Discrete"),
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("instance", [False, True])
def test_a_space_that_is_none_is_named(name: str, instance: bool) -> None:
    build, said = SPACES[name]
    with pytest.raises(TypeError, match=said):
        FastES(build() if instance else build, n_workers=0, **SMALL)


def test_a_part_without_a_length_is_named() -> None:
    space = spaces.Dict({"place": BOX, "inner": spaces.Dict({"list": spaces.Sequence(BOX)})})
    with pytest.raises(
        ValueError,
        match=r"its part 'inner'\['list'\], Sequence.*, has no fixed length.*Box \(of floats .* or bool\).*FilterObservation",
    ):
        FastES(lambda: Mine(space), n_workers=0, **SMALL)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Box(0, 255, (3, 4, 4), np.uint8),
        spaces.Dict({"image": spaces.Box(0, 255, (4, 4, 3), np.uint8), "inner": spaces.Dict({"place": BOX, "both": TUPLE})}),
    ],
    ids=["channels last", "channels first", "nested"],
)
def test_images_and_nested_spaces_work(space: Any) -> None:
    with FastES(lambda: Mine(space), n_workers=0, **SMALL) as model:
        model.learn(20)
        assert model.predict(space.sample())[0] in (0, 1)


def test_images_that_are_too_small_are_answered() -> None:
    with pytest.raises(
        ValueError, match=r"cnn = 'a3c' does not fit .*kernel of 8 x 8, and the image is 4 x 4.*\(filters, kernel"
    ):
        FastES("CnnPolicy", lambda: Mine(spaces.Box(0, 255, (4, 4, 3), np.uint8)), preset="default", n_workers=0)


def test_observations_of_nan_are_warned_of() -> None:
    with (
        FastES(lambda: Mine(shown=np.full(3, np.nan)), n_workers=0, **{**SMALL, "normalize_obs": True}) as model,
        pytest.warns(RuntimeWarning, match="observations that are not finite .*check_env"),
    ):
        model.learn(20)
