"""Objects of a game in place of its memory, in which OCAtari finds them (Delfosse et al. 2023, arXiv 2306.08649)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from ocatari.ram.extract_ram_info import detect_objects_ram, init_objects

_LARGEST = 1000.0  # pixels: positions beside the screen, too, and twice as much of a step's changes


class GameObjects(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An observation is where objects are, and how far each has moved in this step: float32 (4 x objects,), in pixels.

    First x and y of each object, 0 for one that is not there, then their changes since the step before, 0 for one that has just
    appeared. OCAtari has as many places for each kind of object as the game can show; the player comes first.

    On Q*bert it remembers more than the memory has, so that an episode depends on those before it in the same process.

    Args:
        env: `fastes/Atari-v0` with obs_type="ram".

    Raises:
        ValueError: The environment shows no memory, or OCAtari does not know the game.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        memory = env.observation_space
        if not isinstance(memory, spaces.Box) or memory.shape != (128,) or memory.dtype != np.uint8:
            raise ValueError(f"GameObjects reads the console's memory, and not {memory}: pass obs_type='ram'")
        self._game = str(env.get_wrapper_attr("game")).replace("_", "")
        try:
            self._begin()
        except KeyError:
            raise ValueError(f"OCAtari does not know {self._game}: its games are the modules of ocatari.ram") from None
        self.observation_space = spaces.Box(-_LARGEST, _LARGEST, (4 * len(self._objects),), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._begin()
        return super().reset(seed=seed, options=options)

    def observation(self, observation: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        # as integers that do not wrap: OCAtari was written for NumPy 1, where a uint8 less 1 could be negative
        detect_objects_ram(self._objects, observation.astype(np.int64), self._game, False)
        before, self._places = self._places, self._where()
        return np.nan_to_num(np.concatenate((self._places, self._places - before)))

    def _begin(self) -> None:
        self._objects = init_objects(self._game, False)
        self._places = np.full(2 * len(self._objects), np.nan, dtype=np.float32)

    def _where(self) -> npt.NDArray[np.float32]:
        """x and y of each object (2 x objects,), NaN for those that are not there."""
        places = [value for each in self._objects for value in (each.xy if each else (np.nan, np.nan))]
        return np.array(places, dtype=np.float32)
