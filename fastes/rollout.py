"""One episode, and the episodes of one candidate."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes._core import Actor

STEP_GUARD = 1_000_000  # steps after which an episode is cut when neither the environment nor a setting ends it


class Episode(NamedTuple):
    """episode_return: undiscounted sum of rewards; length: environment steps."""

    episode_return: float
    length: int


class EpisodeSettings(NamedTuple):
    """What the episodes of a generation share.

    max_steps: an episode ends there at the latest. action_noise: standard deviation, before the action mapping.
    sample: discrete actions are sampled from the policy's distribution instead of its mode.
    """

    max_steps: int = STEP_GUARD
    action_noise: float = 0.0
    sample: bool = False


def observation_flattener(space: spaces.Space[Any]) -> Callable[[Any], Any] | None:
    """How observations of this space become one array, or None where they are one already (Box)."""
    if isinstance(space, spaces.Box):
        return None
    return lambda obs: spaces.flatten(space, obs)


@contextlib.contextmanager
def global_random_kept() -> Iterator[None]:
    """Episodes of this process leave the caller's global random state as it was."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def run_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    env_seed: int,
    settings: EpisodeSettings,
    action_key: int = 0,
    flatten: Callable[[Any], Any] | None = None,
) -> Episode:
    """Play one episode from env.reset(seed=env_seed); the actor's parameters, normaliser and counting are already set.

    Python's and NumPy's global random state start from the seed, too, for environments that draw from them.
    """
    random.seed(env_seed)
    np.random.seed(env_seed)  # noqa: NPY002
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
