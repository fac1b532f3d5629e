"""Environments of three steps; one exists once at a time, as one that takes a port or a licence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fastes.envs.worker_number import WORKER_INDEX


class ThreeSteps(gymnasium.Env[Any, Any]):
    """Random observations, and the action as reward."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self._observation(), float(action), self.time == 3, False, {}

    def _observation(self) -> Any:
        return self.np_random.random(2, dtype=np.float32)


class Exclusive(ThreeSteps):
    """Holds a lock, as one that takes a port or a licence: a second one cannot be built while it is open."""

    def __init__(self, folder: str, number: int | None = None) -> None:
        self.number = int(os.environ[WORKER_INDEX])
        assert number in (None, self.number), "all ways of telling it say the same"
        name = "lock" if number is None else f"lock{number}"
        with open(Path(folder) / "built", "a", encoding="ascii") as file:
            file.write(f"{self.number}\n")
        self.lock: Path | None = Path(folder) / name
        os.close(os.open(self.lock, os.O_CREAT | os.O_EXCL))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert int(os.environ[WORKER_INDEX]) == self.number
        return super().reset(seed=seed)

    def close(self) -> None:
        if self.lock is not None:
            self.lock.unlink()
            self.lock = None


def built(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "built").read_text().split()]
