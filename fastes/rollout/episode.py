"""One episode, from reset to its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium

from fastes._core import Actor
from fastes.envs.advice import advice_on_episode
from fastes.envs.returned import NUMBERS, NUMPY_FALSE, is_over, observation_and_info, reward_of, success_of
from fastes.rollout.observations import advice_on_step
from fastes.rollout.random_state import seed_global_random

STEP_GUARD = 1_000_000  # steps after which any episode is cut, unless a setting asks for more
_USUAL, _LEAST, _GENERATIONS = 10_000, 1_000, 10


def usual_limit(budget: int, episodes: int) -> int:
    """Steps after which an episode is cut when neither its environment nor a setting has a limit: 10,000.

    With a smaller budget it is as many as let ten generations fit in, but at least 1,000.

    budget: of the training, 0 for none.
    episodes: of a generation.
    """
    return min(_USUAL, max(_LEAST, budget // (_GENERATIONS * episodes))) if budget else _USUAL


class Episode(NamedTuple):
    """How an episode went.

    episode_return: undiscounted sum of rewards.
    length: environment steps.
    success: see `success_of`.
    cut: 1 where a limit of FastES ended it and not the environment, else 0; of a candidate, how many of its episodes.
    info: of the last step, as the environment gave it; None of a candidate.
    """

    episode_return: float
    length: int
    success: float = math.nan
    cut: int = 0
    info: Any = None


class EpisodeSettings(NamedTuple):
    """The settings that the episodes of a generation share.

    max_steps: an episode ends there at the latest.
    action_noise: standard deviation, before the action mapping.
    sample: discrete actions are sampled from the policy's distribution instead of its mode.
    per_candidate: how many a candidate has.
    """

    max_steps: int = STEP_GUARD
    action_noise: float = 0.0
    sample: bool = False
    per_candidate: int = 1


def _act_on(actor: Actor, flatten: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The actor's action for an observation, which is flattened first if asked."""
    act = actor.act
    return act if flatten is None else lambda obs: act(flatten(obs))


def run_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    env_seed: int,
    settings: EpisodeSettings,
    action_key: int = 0,
    flatten: Callable[[Any], Any] | None = None,
) -> Episode:
    """Play one episode from env.reset(seed=env_seed).

    actor: its parameters, normaliser and counting are set.
    settings: of the episode.
    action_key: of the noise on its actions.
    flatten: what flattens an observation; None if it stays as it is.

    The global random state of Python, NumPy and torch starts from the seed, too, for environments that draw from it.
    """
    seed_global_random(env_seed)
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    act, step = _act_on(actor, flatten), env.step
    episode_return, length, cut = 0.0, 0, 0
    obs: Any = None
    info: Any = None
    terminated: Any
    truncated: Any
    first: Any = None
    try:
        first = env.reset(seed=env_seed)
        obs, _ = observation_and_info(first)
        for length in range(1, settings.max_steps + 1):  # noqa: B007
            obs, reward, terminated, truncated, info = step(act(obs))
            if type(reward) is float:
                episode_return += reward
            else:
                episode_return += float(reward) if isinstance(reward, NUMBERS) else reward_of(reward)
            if (terminated is False or terminated is NUMPY_FALSE) and (truncated is False or truncated is NUMPY_FALSE):
                continue
            if is_over(terminated, truncated):
                break
        else:
            cut = 1
    except (TypeError, ValueError, LookupError) as error:
        if wrong := advice_on_step(env.observation_space, flatten, actor.full_size, obs):
            raise (TypeError if isinstance(error, TypeError) else ValueError)(wrong) from error
        if advice := advice_on_episode(error, first):
            raise (TypeError if isinstance(error, TypeError) else ValueError)(advice) from error
        raise
    return Episode(episode_return, length, success_of(info), cut, info)
