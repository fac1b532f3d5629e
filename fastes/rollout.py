"""One episode, and the episodes of one candidate."""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from fastes._core import Actor
from fastes.old_interface import advice_on_episode

STEP_GUARD = 1_000_000  # steps after which an episode is cut when neither the environment nor a setting ends it


def step_guard(budget: int) -> int:
    """STEP_GUARD, or the whole budget of a training where that is less: no episode is to outlast it. At least 10,000."""
    return min(STEP_GUARD, max(budget, 10_000)) if budget else STEP_GUARD


class Episode(NamedTuple):
    """episode_return: undiscounted sum of rewards; length: environment steps; success: see `success_of`."""

    episode_return: float
    length: int
    success: float = math.nan


class EpisodeSettings(NamedTuple):
    """What the episodes of a generation share.

    max_steps: an episode ends there at the latest. action_noise: standard deviation, before the action mapping.
    sample: discrete actions are sampled from the policy's distribution instead of its mode.
    """

    max_steps: int = STEP_GUARD
    action_noise: float = 0.0
    sample: bool = False


def success_of(info: Any) -> float:
    """1.0 or 0.0 by the last step's info['is_success'], which goal environments give; NaN where it is missing."""
    success = info.get("is_success") if isinstance(info, dict) else None
    return math.nan if success is None else float(bool(success))


def observation_flattener(space: spaces.Space[Any]) -> Callable[[Any], Any] | None:
    """How observations of this space become one array, or None where they are one already (Box)."""
    if isinstance(space, spaces.Box):
        return None
    return lambda obs: spaces.flatten(space, obs)


@contextlib.contextmanager
def global_random_kept() -> Iterator[None]:
    """Episodes of this process leave the caller's global random state as it was, torch's too where it is in use."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch = sys.modules.get("torch")
    state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch:
            torch.set_rng_state(state)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch adds in another order on more threads: one here, as in workers, and then as many as the caller had."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 1
    if torch is None or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seed_global_random(seed: int) -> None:
    """Start the global random state of Python, NumPy and, where it is in use, torch; seed: int in [0, 2^32)."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(seed)


def run_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    env_seed: int,
    settings: EpisodeSettings,
    action_key: int = 0,
    flatten: Callable[[Any], Any] | None = None,
) -> Episode:
    """Play one episode from env.reset(seed=env_seed); the actor's parameters, normaliser and counting are already set.

    The global random state of Python, NumPy and torch starts from the seed, too, for environments that draw from it.
    """
    seed_global_random(env_seed)
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    act, step = actor.act, env.step
    if flatten is not None:
        raw_act = act

        def act(obs: Any) -> Any:
            return raw_act(flatten(obs))

    episode_return, length = 0.0, 0
    info: Any = None
    first: Any = None
    try:
        first = env.reset(seed=env_seed)
        obs, _ = first
        for length in range(1, settings.max_steps + 1):  # noqa: B007
            obs, reward, terminated, truncated, info = step(act(obs))
            episode_return += float(reward)
            if terminated or truncated:
                break
    except (TypeError, ValueError) as error:
        if advice := advice_on_episode(error, first):
            raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{error}: {advice}") from error
        raise
    return Episode(episode_return, length, success_of(info))
