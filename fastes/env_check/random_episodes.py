"""Episodes of random actions, and what they show of an environment before a policy exists."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.envs.returned import scalar_of
from fastes.rollout.episode import EpisodeSettings, run_episode

_COMPARED = 1000  # steps of an episode that is played twice
_ROUNDING = 1e-5  # by which a number may leave its bounds, as part of the bound


class Outside(NamedTuple):
    """A part of the observations that leaves its space.

    Attributes:
        where: The part, as in "observation['goal'][2]".
        value: The value that is farthest outside.
        bound: The bound that it passes; NaN if the space has no bounds, or has another shape.
        space: The part's space.
    """

    where: str
    value: float
    bound: float
    space: str


class RandomEpisodes(NamedTuple):
    """The results of episodes with random actions.

    Attributes:
        returns: Sums of rewards, float64 (n,).
        lengths: Steps, int64 (n,).
        terminated: Episodes that the environment ended by its rules.
        truncated: Episodes that the environment or its limit of steps truncated.
        cut: Episodes that the limit given to `play_random` ended, or the time.
        rewarded: Share of steps whose reward was not 0.
        odd_rewards: Number of rewards that were not finite.
        observations: Number of observations.
        odd_observations: Number of those with a value that was not finite.
        nan_observations: Number of those with a NaN.
        odd_episodes: Episodes with an observation that was not finite.
        outside: Parts of observations that leave their space.
        seconds: Wall time of all.
        is_late: Whether the time was over before all were played.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    terminated: int
    truncated: int
    cut: int
    rewarded: float
    odd_rewards: int
    observations: int
    odd_observations: int
    nan_observations: int
    odd_episodes: int
    outside: tuple[Outside, ...]
    seconds: float
    is_late: bool


class Repeated(NamedTuple):
    """The result of playing one episode twice, with the same seed and the same actions.

    Attributes:
        start: Whether both resets returned the same observation.
        steps: Whether all later observations and rewards were the same.
    """

    start: bool
    steps: bool

    @property
    def is_same(self) -> bool:
        """Whether all was the same."""
        return self.start and self.steps


class _TimeIsOver(Exception):
    """An episode has no time left."""


class _Watched:
    """An environment as `run_episode` needs it, and its own actor, which acts at random."""

    full_size = 0  # of the actor

    def __init__(self, env: Any, ends_at: float = math.inf) -> None:
        self.env, self.ends_at = env, ends_at
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.steps = self.rewarded = self.odd_rewards = 0
        self.observations = self.odd_observations = self.nan_observations = 0
        self.outside: dict[str, Outside] = {}
        self.is_truncated = False  # how the last episode ended
        self.kept: list[Any] | None = None  # observations and rewards, if they are to be compared
        self.length, self.total = 0, 0.0  # of the running episode

    def begin_episode(self, key: int, noise: float, sample: bool) -> None:
        """Do nothing: random actions have no settings."""

    def act(self, observation: Any) -> Any:  # noqa: ARG002
        """Return a random action, whatever the observation."""
        return self.action_space.sample()

    def reset(self, *, seed: int) -> Any:
        self.action_space.seed(seed)
        self.length, self.total, self.is_truncated = 0, 0.0, False
        returned = self.env.reset(seed=seed)
        if isinstance(returned, (tuple, list)) and len(returned) == 2:
            self._see(returned[0])
        return returned

    def step(self, action: Any) -> Any:
        if time.monotonic() > self.ends_at:
            raise _TimeIsOver
        returned = self.env.step(action)
        if isinstance(returned, (tuple, list)) and len(returned) == 5:
            observation, reward, terminated, truncated, _ = returned
            self._see(observation)
            self._count(scalar_of(reward))
            self.is_truncated = bool(scalar_of(truncated)) and not scalar_of(terminated)
        return returned

    def _count(self, reward: float | None) -> None:
        if reward is None:  # run_episode says what is wrong
            return
        self.steps += 1
        self.length += 1
        self.total += reward
        self.rewarded += reward != 0.0
        self.odd_rewards += not math.isfinite(reward)
        if self.kept is not None and len(self.kept) < 2 * _COMPARED:
            self.kept.append(reward)

    def _see(self, observation: Any) -> None:
        is_odd = is_nan = False
        for where, space, value in _parts("observation", self.observation_space, observation):
            if isinstance(space, spaces.Box):
                array = np.asarray(value)
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    is_odd, is_nan = True, is_nan or bool(np.isnan(array).any())
                    continue
            if (found := _outside(where, space, value)) is not None:
                before = self.outside.get(where)
                if before is None or _excess(found) > _excess(before):
                    self.outside[where] = found
        self.observations += 1
        self.odd_observations += is_odd
        self.nan_observations += is_nan
        if self.kept is not None and len(self.kept) < 2 * _COMPARED:
            self.kept.append(_copied(observation))


def play_random(env: Any, seeds: Sequence[int], max_steps: int, seconds: float) -> RandomEpisodes:
    """Play episodes with random actions, one for each seed, until the time is over.

    Args:
        env: The environment.
        seeds: Environment seeds; each seeds the actions, too.
        max_steps: Steps after which an episode is cut.
        seconds: Time for all. An episode that it ends is left out, unless it is the first.

    Raises:
        Exception: As `run_episode` raises.
    """
    began = time.monotonic()
    watched = _Watched(env, began + seconds)
    returns, lengths, truncated, cut, is_late = list[float](), list[int](), 0, 0, False
    odd_episodes = 0
    for seed in seeds:
        odd_before = watched.odd_observations
        try:
            episode = run_episode(watched, watched, int(seed), EpisodeSettings(max_steps))  # type: ignore[arg-type]
        except _TimeIsOver:
            is_late = True
            if not returns:
                returns, lengths, cut = [watched.total], [watched.length], 1
            break
        returns.append(episode.episode_return)
        lengths.append(episode.length)
        truncated += watched.is_truncated and not episode.cut
        cut += episode.cut
        odd_episodes += watched.odd_observations > odd_before
    return RandomEpisodes(
        returns=np.array(returns),
        lengths=np.array(lengths, np.int64),
        terminated=len(returns) - truncated - cut,
        truncated=truncated,
        cut=cut,
        rewarded=watched.rewarded / max(watched.steps, 1),
        odd_rewards=watched.odd_rewards,
        observations=watched.observations,
        odd_observations=watched.odd_observations,
        nan_observations=watched.nan_observations,
        odd_episodes=odd_episodes,
        outside=tuple(watched.outside.values()),
        seconds=time.monotonic() - began,
        is_late=is_late,
    )


def random_episode(env: Any, seed: int, max_steps: int) -> list[Any]:
    """Play an episode with random actions, the same ones for a seed; return what the environment gave.

    Args:
        env: The environment.
        seed: The seed of its reset.
        max_steps: Steps after which it is cut, at most 1,000.
    """
    watched = _Watched(env)
    watched.kept = []
    run_episode(watched, watched, seed, EpisodeSettings(min(max_steps, _COMPARED)))  # type: ignore[arg-type]
    return watched.kept


def compared(first: Sequence[Any], second: Sequence[Any]) -> Repeated:
    """Compare two episodes of `random_episode`."""
    is_same = len(first) == len(second) and all(map(_equal, first[1:], second[1:]))
    return Repeated(_equal(first[0], second[0]), is_same)


def _parts(where: str, space: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the space and the value of each part of an observation; parts that are missing are left out."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            if isinstance(value, dict) and key in value:
                yield from _parts(f"{where}[{key!r}]", part, value[key])
    elif isinstance(space, spaces.Tuple):
        for number, (part, its) in enumerate(zip(space.spaces, value, strict=False)):
            yield from _parts(f"{where}[{number}]", part, its)
    else:
        yield where, space, value


def _outside(where: str, space: Any, value: Any) -> Outside | None:
    """Return the value of a part that is farthest outside of its space; None if it is inside."""
    if not isinstance(space, spaces.Box):
        if space.contains(value) or space.contains(np.asarray(value)):
            return None
        number = scalar_of(value)
        return Outside(where, math.nan if number is None else number, math.nan, str(space))
    array = np.asarray(value)
    if array.shape != space.shape:
        return None  # the policy's reader says whether it can be read
    array = array.astype(np.float64)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    over = np.maximum(array - high, low - array)
    bounds = np.where(array > high, high, low)
    over = np.where(over > _ROUNDING * np.maximum(1.0, np.abs(bounds)), over, 0.0)
    if not over.any():
        return None
    at = np.unravel_index(int(over.argmax()), over.shape)
    name = f"{where}[{', '.join(map(str, at))}]" if at else where
    return Outside(name, float(array[at]), float(bounds[at]), f"from {low[at]:g} to {high[at]:g}")


def _excess(found: Outside) -> float:
    return abs(found.value - found.bound)


def _copied(value: Any) -> Any:
    """Return a copy of an observation: an environment may change what it has returned."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_copied, value))
    return np.array(value)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, np.ndarray) and one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    return bool(np.array_equal(one, other, equal_nan=True))
