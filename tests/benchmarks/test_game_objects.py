"""Risk: objects of a game are told with numbers that wrapped, with those of the episode before, or jump where they appear."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces

sys.path.append(str(Path(__file__).parents[2]))  # last: the checkout's fastes may have no compiled core


class Memory(gymnasium.Env[Any, Any]):
    """Bytes 0 and 1 are where a ball is, if byte 2 is not 0; byte 3 is where the player is."""

    observation_space: Any = spaces.Box(0, 255, (128,), np.uint8)
    action_space = spaces.Discrete(2)
    game = "ping_pong"

    def __init__(self, *screens: tuple[int, ...]) -> None:
        self.screens = screens

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.left = list(self.screens)
        return self._memory(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._memory(), 0.0, not self.left, False, {}

    def _memory(self) -> npt.NDArray[np.uint8]:
        return np.array([*self.left.pop(0), *[0] * 124], dtype=np.uint8)


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The wrapper, with a library in place of OCAtari that knows one game."""

    def init_objects(game: str, hud: bool) -> list[Any]:
        assert not hud
        return {"pingpong": [SimpleNamespace(xy=(140, 0)), None]}[game]

    def detect_objects_ram(objects: list[Any], memory: Any, game: str, hud: bool) -> None:
        objects[0] = SimpleNamespace(xy=(140, memory[3]))
        objects[1] = SimpleNamespace(xy=(memory[0] - 5, memory[1])) if memory[2] else None

    library = ModuleType("ocatari.ram.extract_ram_info")
    library.init_objects, library.detect_objects_ram = init_objects, detect_objects_ram  # type: ignore[attr-defined]
    for name in ("ocatari", "ocatari.ram"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, library.__name__, library)
    monkeypatch.delitem(sys.modules, "benchmarks.learning.game_objects", raising=False)
    yield importlib.import_module("benchmarks.learning.game_objects").GameObjects
    del sys.modules["benchmarks.learning.game_objects"]


def test_places_and_their_changes(wrapper: Any) -> None:
    env = wrapper(Memory((3, 100, 1, 50), (2, 110, 1, 47), (0, 0, 0, 47), (9, 20, 1, 47)))
    for _ in range(2):  # an episode has nothing of the one before it
        seen = [env.reset(seed=1)[0], *(env.step(0)[0] for _ in range(3))]
        assert [each.tolist() for each in seen] == [
            [140, 50, -2, 100, 0, 0, 0, 0],
            [140, 47, -3, 110, 0, -3, -1, 10],
            [140, 47, 0, 0, 0, 0, 0, 0],
            [140, 47, 4, 20, 0, 0, 0, 0],
        ]
        assert all(env.observation_space.contains(each) for each in seen)


def test_what_has_no_objects_is_refused(wrapper: Any) -> None:
    other = Memory()
    other.game = "gravitar"
    with pytest.raises(ValueError, match="OCAtari does not know gravitar"):
        wrapper(other)
    screens = Memory()
    screens.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    with pytest.raises(ValueError, match="pass obs_type='ram'"):
        wrapper(screens)
