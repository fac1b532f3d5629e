"""One episode, and the episodes of one candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

from fastes._core import Actor

NO_LIMIT = 2**31 - 1


class Episode(NamedTuple):
    """episode_return: undiscounted sum of rewards; length: environment steps."""

    episode_return: float
    length: int


class EpisodeSettings(NamedTuple):
    """What the episodes of a generation share.

    max_steps: an episode ends there at the latest. action_noise: standard deviation, before the action mapping.
    sample: discrete actions are sampled from the policy's distribution instead of its mode.
    """

    max_steps: int = NO_LIMIT
    action_noise: float = 0.0
    sample: bool = False


def observation_flattener(space: spaces.Space[Any]) -> Callable[[Any], Any] | None:
    """How observations of this space become one array, or None where they are one already (Box)."""
    if isinstance(space, spaces.Box):
        return None
    return lambda obs: spaces.flatten(space, obs)


def run_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    env_seed: int,
    settings: EpisodeSettings,
    action_key: int = 0,
    flatten: Callable[[Any], Any] | None = None,
) -> Episode:
    """Play one episode from env.reset(seed=env_seed); the actor's parameters, normaliser and counting are already set."""
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    act, step = actor.act, env.step
    if flatten is not None:
        raw_act = act

        def act(obs: Any) -> Any:
            return raw_act(flatten(obs))

    obs, _ = env.reset(seed=env_seed)
    episode_return, length = 0.0, 0
    for length in range(1, settings.max_steps + 1):  # noqa: B007
        obs, reward, terminated, truncated, _ = step(act(obs))
        episode_return += float(reward)
        if terminated or truncated:
            break
    return Episode(episode_return, length)
