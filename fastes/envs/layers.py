"""An environment and its wrappers: the layers that it has, and what can be read from them without playing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import HumanRendering, RenderCollection

DRAWING = HumanRendering, RenderCollection  # wrappers that workers leave out: they draw nothing
CHANGE_REWARDS = {"RewardWrapper", "NormalizeReward", "VectorRewardWrapper"}  # classes of wrappers
LIVES = (  # a warning of SB3's wrapper
    "EpisodicLifeEnv continues with the game that the last episode has left, whatever the seed of the next one: returns depend "
    "on the episodes before, and on the number of workers or environments. Leave it out, AtariWrapper(env, "
    "terminal_on_life_loss=False, clip_reward=False), which gives whole games and raw scores"
)
UNKNOWN_LIMIT = 2**31 - 1  # episodes are cut, after a number of steps that nothing says
_LIMITS = ("_max_episode_steps", "max_episode_steps", "max_steps")  # attributes of TimeLimit and of other environments
_GAMES = {"AtariGame", "AtariEnv", "AtariVectorEnv"}  # these count frames


def layers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Env[Any, Any]]:
    """Yield the environment and everything that it wraps, outermost first."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def episode_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return the steps after which an environment ends every episode: the smallest number in its layers and spec, or None."""
    return min((limit for layer in layers(env) if (limit := _limit_in(layer)) is not None), default=None)


def _limit_in(layer: Any) -> int | None:
    """Return the limit of one layer. Properties do not count, nor attributes that a wrapper passes on."""
    if type(layer).__name__ in _GAMES:
        return UNKNOWN_LIMIT
    places = [getattr(layer, "__dict__", {}), *map(vars, type(layer).__mro__)]
    values = [next((place[name] for place in places if name in place), None) for name in _LIMITS]
    if not isinstance(layer, gymnasium.Wrapper):
        values.append(getattr(getattr(layer, "spec", None), "max_episode_steps", None))
    return min((limit for value in values if (limit := _as_limit(value)) > 0), default=None)


def _as_limit(value: object) -> int:
    """Return a whole number, also NumPy's, as an int, and 0 for anything else."""
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else 0


def limit_of_vector_env(base: Any, spec: Any, envs: Iterable[Any], printed: str) -> int | None:
    """Return the steps after which the environments in a vector environment end every episode, or None.

    Args:
        base: The vector environment without its wrappers.
        spec: The spec of one environment, or None.
        envs: The environments that are in this process.
        printed: How an environment in another process prints.
    """
    if type(base).__name__ in _GAMES or "<TimeLimit<" in f"<{printed}" or any(f"<{name}" in printed for name in _GAMES):
        return UNKNOWN_LIMIT
    known = [episode_limit(env) for env in envs]
    if known and all(limit is not None for limit in known):
        return max(limit for limit in known if limit is not None)
    return getattr(spec, "max_episode_steps", None) or _limit_in(base)
