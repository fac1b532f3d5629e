"""Episodes of an environment in C, and the comparison of one with the environment in Python that it stands for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs.native.twins import Twin
from fastes.envs.returned import success_of
from fastes.rollout.episode import Episode, EpisodeSettings

_EARLY, _EVERY = (0, 1, 4, 16, 64), 1024  # generations: an episode in Python takes as long as some hundred in C


def is_compared(generation: int, job: int) -> bool:
    """Return whether a job plays in C and in Python: the first of a request, now and then.

    That depends on the request alone, so that a difference is found in the same one on any number of workers.

    Args:
        generation: The request's, as the strategy counts, from 0; -1 for noise-free episodes of none, which always count.
        job: The job's number.
    """
    if job:
        return False
    return generation in _EARLY or generation % _EVERY == 0 or generation < 0


def run_native_episode(
    twin: Twin, actor: _core.Actor, env_seed: int, settings: EpisodeSettings, action_key: int, leave: npt.NDArray[np.int64]
) -> Episode:
    """Play one episode in C; the same as `run_episode`, which has the arguments. leave: (1,), as of `NativeInstance.play`."""
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    twin.begin(env_seed)
    episode_return, length, is_cut = twin.instance.play(actor, settings.max_steps, twin.wrappers, leave)
    info = twin.instance.info()
    return Episode(episode_return, length, success_of(info), int(is_cut), info)


class Compared(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose twin takes the same steps.

    Attributes:
        difference: The first number that differs, in words; "" if none does.
    """

    def __init__(self, env: Any, twin: Twin) -> None:
        super().__init__(env)
        self._wrappers = twin.wrappers
        self._instance, self._begin = twin.beside()
        self._steps = 0
        self.difference = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        returned = self.env.reset(seed=seed, options=options)
        self._steps = 0
        self._begin(0 if seed is None else seed, returned[0])
        self._compare({"observation": (returned[0], self._instance.observation)}, f"after reset(seed={seed})")
        return returned

    def step(self, action: Any) -> Any:
        returned = self.env.step(action)
        if not self.difference:
            self._steps += 1
            instance = self._instance
            reward, terminated, truncated = instance.step(np.asarray(action), self._wrappers)
            ours = instance.observation, reward, terminated, truncated
            names = "observation", "reward", "terminated", "truncated"
            theirs = returned[0], float(returned[1]), *returned[2:4]
            self._compare(dict(zip(names, zip(theirs, ours, strict=True), strict=True)), f"in step {self._steps}")
        return returned

    def _compare(self, pairs: dict[str, tuple[Any, Any]], where: str) -> None:
        for name, (theirs, ours) in pairs.items():
            one, other = np.asarray(theirs), np.asarray(ours)
            if self.difference or (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()):
                continue
            at = ""
            if one.shape == other.shape and one.ndim and (one != other).any():
                index = int(np.flatnonzero((one != other).reshape(-1))[0])
                one, other, at = one.reshape(-1)[index], other.reshape(-1)[index], f"[{index}]"
            self.difference = f"{name}{at} {where} is {other.tolist()!r} in C and {one.tolist()!r} in Python"


def difference_in_words(name: str, difference: str) -> str:
    """Return a warning that an environment is not the one that its twin was written for."""
    return (
        f"{name} steps in Python from here on: its version in C differs, {difference} (gymnasium {version('gymnasium')}, numpy "
        f"{np.__version__}). native='off' steps in Python from the start"
    )
