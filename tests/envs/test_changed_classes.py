"""Risk: workers import a class as its file has it, and not as it was changed in the process of the user."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from faults import SETTINGS
from training import learn

from fastes import FastES
from fastes.envs.source import make_env_source
from fastes.envs.worker_imports import is_found_anew, state_of_classes

CODE = """
import functools
import gymnasium, numpy as np

def marked(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

class Base(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def worth(self):
        return 1.0

class Mine(Base):
    SPEED = 1.0
    TABLE = {"a": [1.0, 2.0]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 2
        return np.ones(2, np.float32), {}

    @marked
    def step(self, action):
        self.left -= 1
        reward = self.worth() * self.SPEED + self.bonus + sum(self.TABLE["a"])
        return np.ones(2, np.float32), reward, self.left == 0, False, {}

    @property
    def bonus(self):
        return 0.0

class Plus(gymnasium.RewardWrapper, gymnasium.utils.RecordConstructorArgs):
    def __init__(self, env):
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.RewardWrapper.__init__(self, env)

    def reward(self, reward):
        return reward + 100.0
"""
PLAIN = 8.0  # an episode's return


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An importable module, as a user's package is."""
    (tmp_path / "their_env.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = importlib.import_module("their_env")
    gymnasium.register("Their-v0", "their_env:Mine", max_episode_steps=9)
    yield found
    del gymnasium.registry["Their-v0"]
    del sys.modules["their_env"]


def returns(env: Any, n_workers: int = 1) -> float:
    with FastES(env, n_workers=n_workers, preset="default", **SETTINGS) as model:
        return model.evaluate(1).mean


def around_worth(kind: Any) -> None:
    """As a script replaces a method: the new one calls the one before, and has its name."""
    before = kind.worth
    kind.worth = functools.wraps(before)(lambda self: before(self) + 4.0)


CHANGES: dict[str, tuple[Callable[[Any], None], float]] = {  # to the module; what a step gives more
    "method": (lambda module: setattr(module.Mine, "worth", lambda self: 6.0), 5.0),
    "method that keeps its name": (lambda module: around_worth(module.Mine), 4.0),
    "method of a base": (lambda module: around_worth(module.Base), 4.0),
    "property": (lambda module: setattr(module.Mine, "bonus", property(lambda self: 3.0)), 3.0),
    "number": (lambda module: setattr(module.Mine, "SPEED", 3.0), 2.0),
    "dict in place": (lambda module: module.Mine.TABLE["a"].append(7.0), 7.0),
}


def built_elsewhere(env: Any) -> Any:
    """As a process builds it that imports the module anew."""
    content = cloudpickle.dumps(make_env_source(env))
    del sys.modules["their_env"]
    importlib.import_module("their_env")
    source = cloudpickle.loads(content)
    object.__setattr__(source.classes, "made_in", 0)
    return source()


@pytest.mark.parametrize("given", ["id", "object", "class"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_on_a_class_is_sent_along(name: str, given: str, module: Any) -> None:
    change, more = CHANGES[name]
    change(module)
    env = {"id": "Their-v0", "object": gymnasium.make("Their-v0"), "class": module.Mine}[given]
    expected = rewards_of(env() if given == "class" else gymnasium.make("Their-v0"))
    assert expected == [4.0 + more] * 2
    assert rewards_of(built_elsewhere(env)) == expected
    assert sys.modules["their_env"] is not module


def test_what_was_changed_on_a_class_reaches_workers(module: Any) -> None:
    module.Mine.SPEED = 3.0
    around_worth(module.Base)
    for env in ("Their-v0", gymnasium.make("Their-v0")):
        assert returns(env) == returns(env, 0) == 2 * (5.0 * 3.0 + 3.0)


def test_functions_wrappers_and_copies_have_it_too(module: Any) -> None:
    def make() -> Any:
        return importlib.import_module("their_env").Mine()

    module.Mine.SPEED = 3.0
    module.Plus.reward = lambda self, reward: reward + 1.0
    wrapped = module.Plus(gymnasium.make("Their-v0"))
    for env, expected in ((make, PLAIN + 4.0), (wrapped, PLAIN + 6.0), (module.Mine(), PLAIN + 4.0)):
        assert returns(env) == returns(env, 0) == expected


def test_classes_of_gymnasium_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    step = CartPoleEnv.step

    def tenfold(self: Any, action: Any) -> Any:
        observation, reward, *rest = step(self, action)
        return observation, 10.0 * float(reward), *rest

    monkeypatch.setattr(CartPoleEnv, "step", tenfold)
    trained = []
    for n_workers in (0, 2):
        with FastES("CartPole-v1", n_workers=n_workers, preset="default", **SETTINGS) as model:
            trained.append([record.return_mean for record in learn(model, 1)])
    assert trained[1:] == trained[:1]
    assert trained[0][0] > 90.0


def test_classes_as_their_files_have_them_need_nothing(module: Any) -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    state = state_of_classes([CartPoleEnv])
    assert state is None or {name for members in state.members.values() for name in members} <= {"metadata"}
    state = state_of_classes([module.Mine])
    assert state is not None
    other = cloudpickle.loads(cloudpickle.dumps(state))
    object.__setattr__(other, "made_in", 0)
    assert not other.apply(), "a decorated method is the same"
    module.Mine.SPEED = 2.0
    assert other.apply()
    assert module.Mine.SPEED == 1.0


def test_a_method_that_cannot_be_sent_is_warned_of(module: Any) -> None:
    lock = threading.Lock()
    module.Mine.worth = lambda self: float(lock.locked())
    with pytest.warns(UserWarning, match=r"Mine\.worth does not look as the file of its class has it"):
        cloudpickle.dumps(make_env_source("Their-v0"))


# --- modules that only this process has ------------------------------------------------------------------------------


def in_memory() -> Any:
    module = types.ModuleType("ghost_env")
    sys.modules["ghost_env"] = module
    exec(CODE, module.__dict__)
    return module


def beside_the_path(tmp_path: Path) -> Any:
    path = tmp_path / "apart" / "file.py"
    path.parent.mkdir()
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("ghost_env", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ghost_env"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("way", ["in memory", pytest.param("from a file", marks=pytest.mark.slow)])
def test_a_class_of_a_module_that_workers_do_not_find_travels_whole(way: str, tmp_path: Path) -> None:
    module = in_memory() if way == "in memory" else beside_the_path(tmp_path)
    assert not is_found_anew("ghost_env")
    assert is_found_anew("fastes.agent")
    assert is_found_anew("numpy.linalg")
    gymnasium.register("Ghost-v0", "ghost_env:Mine", max_episode_steps=9)
    try:
        plain = gymnasium.make("Ghost-v0")
        for env, expected in ((module.Mine, PLAIN), (module.Plus(gymnasium.make("Ghost-v0")), 208.0)):
            assert returns(env) == expected
        del sys.modules["ghost_env"]  # what the entry point names can be imported nowhere: the object is copied
        assert returns(plain) == returns(plain, 0) == PLAIN
    finally:
        del gymnasium.registry["Ghost-v0"]
        sys.modules.pop("ghost_env", None)


def rewards_of(env: Any) -> list[float]:
    env.reset(seed=0)
    return [float(env.step(np.int64(0))[1]) for _ in range(2)]
