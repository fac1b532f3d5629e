"""A corridor that ends in a choice; only its beginning shows the right one: a task for policies with memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.envs.tasks.rendering import checked_render_mode
from fastes.errors import check_int

AHEAD, LEFT, RIGHT = range(3)
_REACHED, _MISSED = 1.0, -1.0
_SIDE = 16  # pixels of a place's square
_PAPER, _EMPTY, _PRESENT, _GOAL = (255, 255, 255), (208, 208, 208), (31, 119, 180), (44, 160, 44)


class TMaze(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """A corridor of `length` places with a junction behind it; the first place shows which side of the junction is right.

    >>> import fastes, gymnasium
    >>> env = gymnasium.make("fastes/TMaze-v0", length=2)
    >>> env.reset(seed=0)[0].tolist(), env.step(0)[0].tolist(), env.step(0)[0].tolist()
    ([1.0, 0.0], [0.0, 0.0], [0.0, 1.0])
    >>> env.step(2)[1:3]
    (1.0, True)

    Observations are float32 (2,): the sign, -1 for left and 1 for right, in the first place, else 0; and 1 at the junction,
    else 0. Actions are 0 ahead, 1 left, 2 right. A turn at the junction ends the episode: +1 on the side of the sign, -1 on the
    other. A turn in the corridor and a step ahead at the junction change nothing and give -1 / length. An episode is cut after
    3 * length steps, so that not to turn is worse than to turn to the wrong side. Only the sign is random.

    The best return is 1, the registered reward_threshold, after length + 1 steps. Without a memory both signs look the same at
    the junction: the mean return of such a policy is not above 0. After Bakker 2002 (Reinforcement Learning with Long
    Short-Term Memory).

    Args:
        length: Places of the corridor.
        render_mode: 'ansi', 'rgb_array' or None.

    Raises:
        ValueError: An action is not 0, 1 or 2.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, length: int = 10, render_mode: str | None = None) -> None:
        self.length = check_int("length", length, 1)
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.render_mode = checked_render_mode(render_mode)
        self._place, self._steps, self._right_turn = 0, 0, LEFT

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._place, self._steps, self._right_turn = 0, 0, int(self.np_random.integers(LEFT, RIGHT + 1))
        return self._observation(), {}

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if action not in (AHEAD, LEFT, RIGHT):
            raise ValueError(f"action = {action!r}: expected 0 (ahead), 1 (left) or 2 (right)")
        at_junction = self._place == self.length
        self._steps += 1
        if at_junction and action != AHEAD:
            return self._observation(), _REACHED if action == self._right_turn else _MISSED, True, False, {}
        leads_on = action == AHEAD and not at_junction
        self._place += leads_on
        return self._observation(), 0.0 if leads_on else -1.0 / self.length, False, self._steps >= 3 * self.length, {}

    def _observation(self) -> npt.NDArray[np.float32]:
        sign = 0.0 if self._place else (-1.0 if self._right_turn == LEFT else 1.0)
        return np.array([sign, float(self._place == self.length)], dtype=np.float32)

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """Return a text or a frame; None without a render_mode.

        'ansi': the corridor, the present place as @, and the right side. 'rgb_array': a square for each place, the present one
        blue, the right side green, uint8 (48, 16 * (length + 1), 3).
        """
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            return self._frame()
        places = "".join("@" if place == self._place else "." for place in range(self.length + 1))
        return f"{places} {'left' if self._right_turn == LEFT else 'right'}"

    def _frame(self) -> npt.NDArray[np.uint8]:
        frame = np.full((3 * _SIDE, (self.length + 1) * _SIDE, 3), _PAPER, dtype=np.uint8)
        sides = {(0, self.length): LEFT, (2, self.length): RIGHT}
        for row, column in [*((1, place) for place in range(self.length + 1)), *sides]:
            side = sides.get((row, column))
            colour = _PRESENT if side is None and column == self._place else _GOAL if side == self._right_turn else _EMPTY
            frame[row * _SIDE + 1 : (row + 1) * _SIDE - 1, column * _SIDE + 1 : (column + 1) * _SIDE - 1] = colour
        return frame
