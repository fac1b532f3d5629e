"""Risk: what step or reset returns is taken for something else, and another environment is trained without a word."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fastes import FastES, WorkerError
from fastes.envs.returned import flags_of, is_over, reward_of, rewards_of, scalar_of, success_of

SMALL: dict[str, Any] = {"seed": 0, "population_size": 4, "preset": "default", "target_return": "none"}


class Told(gymnasium.Env[Any, Any]):
    """Episodes of 3 steps, which return what they are told to."""

    def __init__(self, reset: Any = None, **returned: Any) -> None:
        self.observation_space, self.action_space = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
        self.returned, self.first, self.steps = returned, reset, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return (np.zeros(3, np.float32), {}) if self.first is None else self.first

    def step(self, action: Any) -> Any:
        self.steps += 1
        over = self.returned.get("over", True) if self.steps == 3 else self.returned.get("goes_on", False)
        truncated, info = self.returned.get("truncated", False), self.returned.get("info", {})
        return np.zeros(3, np.float32), self.returned.get("reward", 0.5), over, truncated, info


def learned(n_workers: int = 0, **returned: Any) -> FastES:
    with FastES(lambda: Told(**returned), n_workers=n_workers, **SMALL) as model:
        return model.learn(1)


def refused(n_workers: int = 0, **returned: Any) -> str:
    with pytest.raises(WorkerError) as caught:
        learned(n_workers, **returned)
    return str(caught.value).partition("\n")[0]


class Tensor:
    """A 0-d tensor as torch has them."""

    shape = ()

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return float(self.value)


ONES: dict[str, Any] = {
    "int": 1,
    "float": 1.0,
    "bool": True,
    "np.bool": np.True_,
    "np.int": np.int8(1),
    "np.uint": np.uint64(1),
    "np.float16": np.float16(1),
    "np.float32": np.float32(1),
    "np.float64": np.float64(1),
    "np.longdouble": np.longdouble(1),
    "0-d array": np.array(1),
    "0-d bool array": np.array(True),
    "0-d object array": np.array(Fraction(1), dtype=object),
    "0-d tensor": Tensor(1.0),
    "Fraction": Fraction(1),
    "Decimal": Decimal(1),
}
NOTHING: dict[str, Any] = {
    "None": None,
    "str": "1.5",
    "False as a str": "False",
    "empty str": "",
    "bytes": b"1",
    "np.str": np.str_("1"),
    "0-d str array": np.array("1"),
    "list": [1.0],
    "empty list": [],
    "tuple": (False, False),
    "dict": {},
    "array (1,)": np.zeros(1),
    "array (2,)": np.zeros(2),
    "empty array": np.zeros(0),
    "complex": 1j,
    "np.complex": np.complex128(1),
    "date": np.datetime64("2020-01-01"),
    "function": len,
    "space": spaces.Discrete(2),
}


@pytest.mark.parametrize("kind", ONES)
def test_scalars_and_0d_arrays_are_taken(kind: str) -> None:
    one = ONES[kind]
    assert scalar_of(one) == reward_of(one) == 1.0
    assert is_over(one, False) is is_over(0, one) is True
    assert success_of({"is_success": one}) == 1.0


@pytest.mark.parametrize("kind", NOTHING)
def test_all_else_is_an_error_that_names_value_and_type(kind: str) -> None:
    value = NOTHING[kind]
    what = f"{value!r:.100}, a {type(value).__name__}"
    for call, name in (
        (lambda: reward_of(value), "env.step returned the reward "),
        (lambda: is_over(value, False), "env.step returned terminated = "),
        (lambda: is_over(True, value), "env.step returned truncated = "),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value).startswith(name + what)
        assert ": expected " in str(caught.value)
    if value is not None:
        with pytest.raises(TypeError) as caught:
            success_of({"is_success": value})
        assert what in str(caught.value)


def test_zeros_are_zeros() -> None:
    for zero in (0, 0.0, False, np.False_, np.float32(0), np.array(0), np.array(False), Tensor(0.0)):
        assert is_over(zero, zero) is False
        assert success_of({"is_success": zero}) == 0.0
    assert all(math.isnan(success_of(info)) for info in ({}, {"is_success": None}, None))


@pytest.mark.parametrize("number", [2, -1, 0.5, math.nan, math.inf, np.float32(0.3), np.array(7)], ids=repr)
def test_a_number_that_is_no_flag_is_refused(number: Any) -> None:
    with pytest.raises(TypeError, match="expected True or False"):
        is_over(number, False)
    assert scalar_of(number) is not None  # a reward may be any of them


@pytest.mark.parametrize("ends", ["False", (False, False), [False], np.array([False]), None], ids=repr)
def test_flags_are_not_guessed_from_truth(ends: Any) -> None:
    """Each of these ended an episode after its first step, or never."""
    told = refused(goes_on=ends)
    assert f"env.step returned terminated = {ends!r}, a {type(ends).__name__}" in told
    assert f"truncated = {ends!r}" in refused(truncated=ends)


def test_a_worker_says_the_same() -> None:
    assert "terminated = 'False', a str: expected True or False" in refused(2, goes_on="False")


@pytest.mark.parametrize("flag", [False, np.False_, 0, np.array(False), np.float32(0.0)], ids=repr)
def test_episodes_go_on_while_flags_are_false(flag: Any) -> None:
    with learned(goes_on=flag, truncated=flag, over=np.True_, reward=np.array(0.5)) as model:
        assert set(model.last_episodes) == {(1.5, 3)}


@pytest.mark.parametrize("success", [np.True_, True, np.float32(1.0), np.array(1.0)], ids=repr)
@pytest.mark.parametrize("vector", [False, True], ids=["single", "vector"])
def test_a_success_of_any_scalar_counts(success: Any, vector: bool) -> None:
    lanes = gymnasium.vector.SyncVectorEnv([lambda: Told(info={"is_success": success})] * 2)
    with FastES(lanes if vector else lambda: Told(info={"is_success": success}), **SMALL) as model:
        model.learn(1)
        assert set(model.last_successes) == {1.0}
        assert set(model.ep_success_buffer) == {True}
    lanes.close()


def test_a_success_that_is_no_flag_is_named() -> None:
    assert "info['is_success'] = array([ True, False]), a ndarray of shape (2,)" in refused(
        info={"is_success": np.array([True, False])}
    )


@pytest.mark.parametrize("info", [None, [], "none", 3], ids=repr)
def test_an_info_that_is_no_dict_tells_of_no_success(info: Any) -> None:
    with learned(info=info) as model:
        assert all(map(math.isnan, model.last_successes))


RESETS: dict[str, tuple[Any, str]] = {
    "observation": (np.zeros(3), "env.reset returned a ndarray of shape (3,): expected (observation, info)"),
    "three": ((np.zeros(3), {}, {}), "env.reset returned a tuple of 3: expected (observation, info)"),
    "dict": ({"observation": 1, "info": 2}, "env.reset returned a dict: expected (observation, info)"),
    "text": ("ab", "env.reset returned a str: expected (observation, info)"),
    "no info": ((np.zeros(3), np.zeros(3)), "whose second item is array([0., 0., 0.]), a ndarray of shape (3,)"),
    "swapped": (({}, np.zeros(3)), "expected (observation, info), as Gymnasium has it, where info is a dict"),
}


@pytest.mark.parametrize("name", RESETS)
def test_a_reset_that_returns_no_observation_and_info_is_named(name: str) -> None:
    first, said = RESETS[name]
    assert said in refused(reset=first)


def test_a_list_and_no_info_are_taken_from_reset() -> None:
    learned(reset=[np.zeros(3), None])


ROWS: dict[str, Any] = {
    "scalar": 1.0,
    "short": np.ones(1),
    "column": np.ones((2, 1)),
    "text": ["1", "0"],
    "objects": np.array([None, 1.0]),
    "None": None,
    "ragged": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_vector_environment_are_checked(name: str) -> None:
    row = ROWS[name]
    with pytest.raises(TypeError, match=r"step returned the rewards .*: expected an array of 2 numbers, of shape \(2,\)"):
        rewards_of(row, 2)
    with pytest.raises(TypeError, match=r"step returned dones = .*: expected an array of 2 flags, of shape \(2,\)"):
        flags_of("dones", row, 2)


def test_rows_that_are_what_they_should_be() -> None:
    assert rewards_of([1.0, 2], 2).tolist() == [1.0, 2.0]
    assert flags_of("dones", np.array([1, 0]), 2).tolist() == flags_of("dones", [True, False], 2).tolist() == [True, False]
    with pytest.raises(TypeError):
        flags_of("dones", np.array([2, 0]), 2)


class OneReward(gymnasium.vector.SyncVectorEnv):
    """Returns the sum of its environments' rewards, which NumPy would give to each of them."""

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, rewards.sum(), *rest


def test_a_vector_environment_is_met_at_its_first_step() -> None:
    lanes = OneReward([Told, Told])
    with FastES(lanes, **SMALL) as model, pytest.raises(WorkerError, match="an array of 2 numbers"):
        model.learn(1)
    lanes.close()
