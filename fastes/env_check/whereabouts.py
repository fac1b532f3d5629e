"""The stage, episode and step of a check of an environment, in memory that outlives a crash of its process."""

from __future__ import annotations

import mmap
from typing import Any

import gymnasium
import numpy as np

_COUNT = 4  # the stage, the episode in it, the step in that, and the episode's seed
MADE, AT_RANDOM, AGAIN, GYMNASIUM, IN_C, PICTURE, POLICIES, CLOSED, OVER = range(9)
_IN_WORDS = {
    MADE: "while it was made",
    AT_RANDOM: "of random actions",
    AGAIN: "that plays the same actions again",
    GYMNASIUM: "of Gymnasium's check_env",
    IN_C: "in an episode that C and Python play in turn",
    PICTURE: "while it drew a picture",
    POLICIES: "in an episode of a random policy",
    CLOSED: "while it was closed",
    OVER: "after the check",
}
SIZE = 8 * _COUNT  # bytes


class Whereabouts:
    """A stage, and the episode and step in it.

    Args:
        fd: A file of SIZE bytes that another process reads; -1 if none does, and nothing has to be noted.
    """

    def __init__(self, fd: int = -1) -> None:
        self._noted = fd >= 0
        self._words = np.frombuffer(mmap.mmap(fd, SIZE), np.int64) if self._noted else np.zeros(_COUNT, np.int64)

    @property
    def stage(self) -> int:
        return int(self._words[0])

    def enter(self, stage: int) -> None:
        self._words[:] = stage, 0, 0, 0

    def begin_episode(self, seed: int | None) -> None:
        self._words[1:] = self._words[1] + 1, 0, 0 if seed is None else seed

    def begin_step(self) -> None:
        self._words[2] += 1

    def around(self, env: Any) -> Any:
        """Return an environment that notes its episodes and steps, if another process reads them."""
        return _Noted(env, self) if self._noted else env

    def __str__(self) -> str:
        stage, episode, step, seed = map(int, self._words)
        if not episode:
            return _IN_WORDS[stage]
        return f"in {f'step {step}' if step else 'reset'} of episode {episode} {_IN_WORDS[stage]} (seed {seed})"


class _Noted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose episodes and steps are noted before they begin."""

    def __init__(self, env: Any, whereabouts: Whereabouts) -> None:
        super().__init__(env)
        self._whereabouts = whereabouts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._whereabouts.begin_episode(seed)
        try:
            return self.env.reset(seed=seed, options=options)
        except SystemExit as error:
            raise _as_error(error) from error

    def step(self, action: Any) -> Any:
        self._whereabouts.begin_step()
        try:
            return self.env.step(action)
        except SystemExit as error:
            raise _as_error(error) from error


def _as_error(error: SystemExit) -> Exception:
    """Return an error for an exit, which would end the check without a word."""
    return RuntimeError(f"it called sys.exit({'' if error.code is None else error.code})").with_traceback(error.__traceback__)
