"""A paddle has to catch a ball that falls down a picture: the smallest task for policies that see images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.envs.tasks.rendering import checked_render_mode
from fastes.errors import check_int

_CAUGHT, _LOST = 1.0, -1.0
_SIDE = 16  # pixels of a cell in a rendered frame
_BRIGHT = 255


class Catch(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """A ball falls one row per step, from a drawn column of the first row; a paddle of one pixel moves along the last row.

    >>> import fastes, gymnasium
    >>> env = gymnasium.make("fastes/Catch-v0", rows=3, columns=3)
    >>> env.reset(seed=0)[0].tolist()
    [[0, 0, 255], [0, 0, 0], [0, 255, 0]]
    >>> env.step(2)[0].tolist()
    [[0, 0, 0], [0, 0, 255], [0, 0, 255]]
    >>> env.step(1)[1:3]
    (1.0, True)

    Observations are uint8 (rows, columns): 255 at the ball and the paddle, else 0. Actions are 0 left, 1 stay, 2 right; the
    paddle stays at an edge. An episode ends when the ball is in the last row, after rows - 1 steps, with reward +1 if the
    paddle is there, else -1. Only the ball's column is random.

    The best return is 1, the registered reward_threshold; a paddle that stands still reaches -0.6 on average. After Mnih et al.
    2014 (Recurrent Models of Visual Attention); the default size is bsuite's (Osband et al. 2020).

    Args:
        rows, columns: Size of the picture. With many columns and few rows some balls cannot be caught.
        render_mode: 'ansi', 'rgb_array' or None.

    Raises:
        ValueError: An action is not 0, 1 or 2.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, rows: int = 10, columns: int = 5, render_mode: str | None = None) -> None:
        self.rows, self.columns = check_int("rows", rows, 2), check_int("columns", columns, 1)
        self.observation_space = spaces.Box(0, 255, (self.rows, self.columns), np.uint8)
        self.action_space = spaces.Discrete(3)
        self.render_mode = checked_render_mode(render_mode)
        self._row, self._ball, self._paddle = 0, 0, self.columns // 2

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._row, self._ball, self._paddle = 0, int(self.np_random.integers(self.columns)), self.columns // 2
        return self._observation(), {}

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if action not in (0, 1, 2):
            raise ValueError(f"action = {action!r}: expected 0 (left), 1 (stay) or 2 (right)")
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self.columns - 1)
        self._row += 1
        over = self._row == self.rows - 1
        reward = (_CAUGHT if self._ball == self._paddle else _LOST) if over else 0.0
        return self._observation(), reward, over, False, {}

    def _observation(self) -> npt.NDArray[np.uint8]:
        picture = np.zeros((self.rows, self.columns), np.uint8)
        picture[-1, self._paddle] = _BRIGHT
        picture[self._row, self._ball] = _BRIGHT
        return picture

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """Return a text or a frame; None without a render_mode.

        'ansi': one line per row, the ball as o and the paddle as =. 'rgb_array': the picture, 16 times as large, uint8
        (16 * rows, 16 * columns, 3).
        """
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            large = np.kron(self._observation(), np.ones((_SIDE, _SIDE), np.uint8))
            return np.repeat(large[..., np.newaxis], 3, axis=2)
        lines = [["."] * self.columns for _ in range(self.rows)]
        lines[-1][self._paddle] = "="
        lines[self._row][self._ball] = "o"
        return "\n".join(map("".join, lines))
