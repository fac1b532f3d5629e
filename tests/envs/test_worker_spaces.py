"""Risk: a worker's environment is another one than the model's, and what it observes is garbage to the policy."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs_for_tests import AnySpaces, Toy
from faults import SETTINGS, seed_of
from gymnasium import spaces
from processes import sent_by_value
from training import Result, assert_same, learn, train

from fastes import CallablePolicy, FastES, WorkerError

sent_by_value(__name__)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float64)
TWO = spaces.Discrete(2)

# (observations, actions) of the first environment that is built, and of the later ones
CHANGES: dict[str, tuple[Any, Any]] = {
    "more numbers": ((BOX, TWO), (spaces.Box(-1.0, 1.0, (3,), np.float64), TWO)),
    "another dtype": ((BOX, TWO), (spaces.Box(-1, 1, (2,), np.int64), TWO)),
    "more choices": ((BOX, TWO), (BOX, spaces.Discrete(3))),
    "choices from one on": ((BOX, TWO), (BOX, spaces.Discrete(2, start=1))),
    "other bounds": ((BOX, spaces.Box(-1.0, 1.0, (2,))), (BOX, spaces.Box(-2.0, 2.0, (2,)))),
    "parts of other sizes": (
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)), TWO),
        (spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(2)), TWO),
    ),
}


class Changing(AnySpaces):
    """The first that is built, as `log` tells, has other spaces than the later ones. closed: a file for each close."""

    def __init__(self, log: str, first: Any, later: Any) -> None:
        with open(log, "a") as file:
            file.write("built\n")
        super().__init__(*(first if Path(log).read_text().count("built") == 1 else later))
        self.log = log

    def close(self) -> None:
        with open(self.log, "a") as file:
            file.write("closed\n")


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("name", CHANGES)
def test_other_spaces_are_an_error_with_both(name: str, n_workers: int, tmp_path: Path) -> None:
    first, later = CHANGES[name]
    log = tmp_path / "log"
    with FastES(partial(Changing, str(log), first, later), preset="default", n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises((ValueError, WorkerError)) as caught:
            learn(model, 1)
        assert model.generation == 0
    for space in (*first, *later):
        assert str(space) in str(caught.value)
    lines = log.read_text().split()
    assert lines.count("built") == lines.count("closed"), "what does not fit is closed"


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("name", ["more numbers", "more choices", "other bounds"])
def test_a_loaded_policy_is_compared_with_what_workers_build(name: str, n_workers: int, tmp_path: Path) -> None:
    """No environment was built here: what the policy was made for is known all the same."""
    first, later = CHANGES[name]
    env_id, log = f"Changed-{abs(hash(name)) % 1000}-v0", str(tmp_path / "log")
    gymnasium.register(env_id, entry_point=Changing, kwargs={"log": log, "first": first, "later": later})
    try:
        with FastES(env_id, n_workers=0, **SETTINGS) as model:
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", n_workers=n_workers) as model:
            with pytest.raises((ValueError, WorkerError), match="as the policy was made for") as caught:
                model.evaluate(2)
            assert str(later[0]) in str(caught.value)
            assert str(later[1]) in str(caught.value)
    finally:
        del gymnasium.registry[env_id]


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_is_built_anew_is_compared(n_workers: int, tmp_path: Path) -> None:
    parent, built = os.getpid(), tmp_path / "built"

    class Growing(Toy):
        def __init__(self) -> None:
            super().__init__(fail_seeds=[seed_of(0, 0)])
            if os.getpid() != parent or n_workers == 0:
                with open(built, "a") as file:
                    file.write("x")
                if len(built.read_text()) > (1 if n_workers else 2):
                    self.action_space = spaces.Box(-1.0, 1.0, (5,), np.float32)

    settings = {**SETTINGS, "on_env_error": "penalise"}
    with (
        FastES(Growing, preset="default", n_workers=n_workers, **settings) as model,
        pytest.raises(WorkerError, match=r"\(5,\)"),
    ):
        learn(model, 1)


class Silent(spaces.Box):
    """A space that equals nothing but itself."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("n_workers", [0, 1])
def test_spaces_that_cannot_be_compared_are_no_error(n_workers: int, undisturbed: Result) -> None:
    class Own(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = Silent(-np.inf, np.inf, (3,), np.float64)

    assert_same(undisturbed, Result(*named_toy(train(Own, 4, n_workers, **SETTINGS))))


def named_toy(result: Result) -> Result:
    """With the name of the environment of the undisturbed training."""
    result.state.data["env_name"] = "Toy"
    return result


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_policy_that_acts_in_any_space_is_no_error(n_workers: int, tmp_path: Path) -> None:
    def act(theta: Any, observation: Any) -> Any:
        return np.clip(theta[:2] * observation[:2], -1.0, 1.0).astype(np.float32)

    policy = CallablePolicy(act, num_params=2)
    settings = {name: value for name, value in SETTINGS.items() if name != "policy_kwargs"}
    with FastES("Toy-v0", policy, preset="default", n_workers=n_workers, **settings) as model:
        learn(model, 1)
        model.save(tmp_path / "m")
    with FastES.load(tmp_path / "m", policy=policy, n_workers=n_workers) as model:
        assert model.evaluate(2).returns.shape == (2,)
