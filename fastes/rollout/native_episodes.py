"""Episodes of an environment in C, and the comparison of one with the environment in Python that it stands for."""

from __future__ import annotations

import sys
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


def is_compared(generation: int) -> bool:
    """Return whether the first job of a request plays in C and in Python.

    That depends on the request alone, so that a difference is found in the same one on any number of workers.

    Args:
        generation: The request's, as the strategy counts, from 0; -1 for noise-free episodes of none, which always count.
    """
    return generation in _EARLY or generation % _EVERY == 0 or generation < 0


def run_native_episode(
    twin: Twin, actor: _core.Actor, env_seed: int, settings: EpisodeSettings, action_key: int, leave: npt.NDArray[np.int64]
) -> Episode:
    """Play one episode in C; the same as `run_episode`, which has the arguments. leave: (1,), as of `NativeInstance.play`."""
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    twin.begin(env_seed)
    episode_return, length, is_cut = twin.instance.play(actor, settings.max_steps, twin.wrappers, leave)
    info = twin.instance.info()
    return Episode(episode_return, length, success_of(info), int(is_cut), info, is_cut or twin.instance.timed_out)


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
        self.difference = self.difference or _first_difference(pairs, where, "in C", "in Python")


def difference_in_loop(env: Any, twin: Twin, actor: _core.Actor, seed: int, max_steps: int) -> str:
    """Return the first number in which an episode that runs in C differs from the same one that Python steps; "" for none.

    Args:
        env: An environment in C, in wrappers.
        twin: Its own.
        actor: One that the twin reads; its actions are drawn from the seed.
        seed: The episode's.
        max_steps: Steps that are compared.
    """
    actor.begin_episode(seed, 1.0, True)
    twin.begin(seed)
    kept, is_over = [(twin.instance.observation.copy(), 0.0, False, dict[str, float]())], False
    while not is_over and len(kept) <= max_steps:
        total, _, is_cut = twin.instance.play(actor, len(kept), twin.wrappers)
        is_over = not is_cut
        kept.append((twin.instance.observation.copy(), total, is_over, twin.instance.info()))
    actor.begin_episode(seed, 1.0, True)
    returned: tuple[Any, ...] = (env.reset(seed=seed)[0], 0.0, False, {})
    total = 0.0
    for step, (observation, sum_of_rewards, over, info) in enumerate(kept):
        if step:
            seen, reward, terminated, truncated, infos = env.step(actor.act(returned[0]))
            total += reward
            returned = seen, total, terminated or truncated, infos
        pairs = {"observation": (returned[0], observation), "the sum of rewards": (returned[1], sum_of_rewards)}
        pairs |= {"whether it is over": (returned[2], over)}
        pairs |= {f"info[{name!r}]": (returned[3][name], value) for name, value in info.items()}
        where = f"after {f'step {step}' if step else 'the reset'} of the episode with seed {seed}"
        if difference := _first_difference(pairs, where, "if the episode runs in C", "if Python steps it"):
            return difference
    return ""


def _first_difference(pairs: dict[str, tuple[Any, Any]], where: str, ours: str, theirs: str) -> str:
    """Return the first of some numbers that differ, in words; "" if none do. pairs: theirs and ours, by their names."""
    for name, (first, second) in pairs.items():
        one, other = np.asarray(first), np.asarray(second)
        if (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()):
            continue
        at = ""
        if one.shape == other.shape and one.ndim and (one != other).any():
            index = int(np.flatnonzero((one != other).reshape(-1))[0])
            one, other, at = one.reshape(-1)[index], other.reshape(-1)[index], f"[{index}]"
        return f"{name}{at} {where} is {other.tolist()!r} {ours} and {one.tolist()!r} {theirs}"
    return ""


def difference_in_words(name: str, difference: str) -> str:
    """Return a warning that an environment is not the one that its twin was written for."""
    packages = ("gymnasium", "numpy", "mujoco")
    versions = ", ".join(f"{package} {version(package)}" for package in packages if package in sys.modules)
    return (
        f"{name} steps in Python from here on: its version in C differs, {difference} ({versions}). native='off' steps in "
        "Python from the start"
    )
