"""An environment that computes with +, - and * alone, which IEEE 754 rounds in one way: the same bits on every machine."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_WORD = 2**64 - 1


class Ball(gymnasium.Env[Any, Any]):
    """A ball on a line, which actions push towards a goal; 12 to 27 steps.

    image: whether it shows a picture, and not numbers. Its draws are its own: NumPy's may change with NumPy and its compiler.
    """

    def __init__(self, actions: str = "box", image: bool = False) -> None:
        self.image = image
        self.observation_space = (
            spaces.Box(0, 255, (12, 10, 1), np.uint8) if image else spaces.Box(-np.inf, np.inf, (4,), np.float64)
        )
        kinds = {
            "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "discrete": spaces.Discrete(3),
            "binary": spaces.MultiBinary(2),
        }
        self.action_space: Any = kinds[actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self.word = seed
        self.place, self.goal, self.speed = self._number(), self._number(), 0.0
        self.steps, self.ends = 0, 20 + int(8.0 * self._number())
        return self._observation(), {}

    def _number(self) -> float:
        """From -1 to 1, by a linear congruential generator."""
        self.word = (self.word * 6364136223846793005 + 1442695040888963407) & _WORD
        return float(self.word >> 11) * 2.0**-52 - 1.0

    def step(self, action: Any) -> Any:
        push = self._push(action)
        self.speed += 0.3 * (push - 0.5 * self.speed - 0.1 * self.place * self.place * self.place)
        self.place += 0.3 * self.speed
        self.steps += 1
        missed = self.goal - self.place
        return self._observation(), 1.0 - missed * missed - 0.01 * push * push, self.steps >= self.ends, False, {}

    def _push(self, action: Any) -> float:
        if isinstance(self.action_space, spaces.Discrete):
            return float(action) - 1.0
        first, second = (float(value) for value in action)
        return first - second * (0.5 if isinstance(self.action_space, spaces.Box) else 1.0)

    def _observation(self) -> Any:
        if not self.image:
            return np.array([self.place, self.goal, self.speed, self.place * self.speed])
        picture = np.zeros(self.observation_space.shape, dtype=np.uint8)
        for row, value, grey in (3, self.goal, 90), (7, self.place, 250):
            column = min(max(int(4.0 + 3.0 * value), 0), 8)
            picture[row : row + 3, column : column + 2, 0] = grey - self.steps
        return picture
