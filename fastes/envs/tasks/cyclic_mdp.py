"""A cycle of three states that gives rewards as long as a policy follows it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.envs.tasks.rendering import checked_render_mode

_ONE_HOT = np.eye(3, dtype=np.float32)
_REWARDS = (1.0, 1.0, 2.0)  # of the step out of each state
_WRONG = -1.0
_SIDE = 32  # pixels of a state's square
_PAPER, _EMPTY, _PRESENT = (255, 255, 255), (208, 208, 208), (31, 119, 180)


class CyclicMDP(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """States 1, 2 and 3, walked in a circle: 1 to 2 and 2 to 3 give +1, 3 back to 1 gives +2.

    >>> import fastes, gymnasium
    >>> env = gymnasium.make("fastes/CyclicMDP-v0")
    >>> env.reset()[0].tolist(), env.step(1)[:2]
    ([1.0, 0.0, 0.0], (array([0., 1., 0.], dtype=float32), 1.0))

    Observations are the state one-hot, float32 (3,). Action k, 0 to 2, means "to state k + 1", so that the right one is 1 in
    state 1, 2 in state 2 and 0 in state 3; any other action gives -1, leaves the state as it is and ends the episode. An
    episode starts in state 1; nothing is random.

    The class has no cap, and the best return is infinite there. As registered, fastes/CyclicMDP-v0 is cut after 99 steps:
    33 whole cycles of 4, so that the best return, its reward_threshold, is 132. A cap of n steps allows
    4 * (n // 3) + n % 3: gymnasium.make("fastes/CyclicMDP-v0", max_episode_steps=n). After the cyclic MDP of Suri et al. 2020
    (arXiv 2007.13690), in which one action is right in every state.

    Raises:
        ValueError: An action is not 0, 1 or 2, or the render_mode is not 'ansi', 'rgb_array' or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.render_mode = checked_render_mode(render_mode)
        self._state = 0  # of 0, 1, 2

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._state = 0
        return _ONE_HOT[0].copy(), {}

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if action not in (0, 1, 2):
            raise ValueError(f"action = {action!r}: expected 0, 1 or 2")
        state, onward = self._state, (self._state + 1) % 3
        if action != onward:
            return _ONE_HOT[state].copy(), _WRONG, True, False, {}
        self._state = onward
        return _ONE_HOT[onward].copy(), _REWARDS[state], False, False, {}

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """Return a text or a frame; None without a render_mode.

        'ansi': the states, the present one in brackets. 'rgb_array': a square for each, the present one blue, uint8
        (32, 96, 3).
        """
        if self.render_mode is None:
            return None
        if self.render_mode == "rgb_array":
            return self._frame()
        return " ".join(f"[{state + 1}]" if state == self._state else f" {state + 1} " for state in range(3))

    def _frame(self) -> npt.NDArray[np.uint8]:
        frame = np.full((_SIDE, 3 * _SIDE, 3), _PAPER, dtype=np.uint8)
        for state in range(3):
            left = state * _SIDE
            frame[2:-2, left + 2 : left + _SIDE - 2] = _PRESENT if state == self._state else _EMPTY
        return frame
