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
from fastes.system.random_state import seed_global_random

STEP_GUARD = 1_000_000  # steps after which any episode is cut, unless a setting asks for more
_USUAL, _LEAST, _GENERATIONS = 10_000, 1_000, 10


def usual_limit(budget: int, episodes: int) -> int:
    """Return the steps after which an episode is cut if neither its environment nor a setting has a limit.

    Args:
        budget: The training's environment steps, 0 for no limit.
        episodes: The episodes of a generation.

    Returns:
        10,000; with a small budget, as many steps as let ten generations fit in, but at least 1,000.
    """
    return min(_USUAL, max(_LEAST, budget // (_GENERATIONS * episodes))) if budget else _USUAL


class Episode(NamedTuple):
    """The result of an episode, or of a candidate's episodes.

    Attributes:
        episode_return: Undiscounted sum of rewards; a candidate's mean over its episodes.
        length: Environment steps.
        success: See `success_of`.
        cut: 1 if a limit of FastES ended the episode and not the environment, else 0; a candidate's number of such episodes.
        info: The last step's, as the environment returned it; None for a candidate.
        timed_out: Whether a limit ended the episode, the environment's or one of FastES; False for a candidate.
    """

    episode_return: float
    length: int
    success: float = math.nan
    cut: int = 0
    info: Any = None
    timed_out: bool = False


class EpisodeSettings(NamedTuple):
    """The settings that the episodes of a generation share.

    Attributes:
        max_steps: Steps after which an episode is cut.
        action_noise: Standard deviation of the noise on actions, before the action mapping.
        sample: Whether discrete actions are sampled from the policy's distribution; its mode is taken otherwise.
        per_candidate: Episodes per candidate.
    """

    max_steps: int = STEP_GUARD
    action_noise: float = 0.0
    sample: bool = False
    per_candidate: int = 1


def run_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    env_seed: int,
    settings: EpisodeSettings,
    action_key: int = 0,
    flatten: Callable[[Any], Any] | None = None,
) -> Episode:
    """Play one episode from env.reset(seed=env_seed).

    The seed also sets the global random state of Python, NumPy and torch, for environments that draw from it.

    Args:
        env: The environment.
        actor: The policy; its parameters, normaliser and counters are set.
        env_seed: int in [0, 2^32).
        settings: Limits and noise.
        action_key: The key of the noise on actions.
        flatten: Flattens an observation; None to pass it to the actor as it is.

    Raises:
        TypeError, ValueError: If the environment returns something that cannot be used; the message says which part.
    """
    seed_global_random(env_seed)
    actor.begin_episode(action_key, settings.action_noise, settings.sample)
    actor_acts, step = actor.act, env.step
    act = actor_acts if flatten is None else lambda obs: actor_acts(flatten(obs))
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
    return Episode(episode_return, length, success_of(info), cut, info, bool(cut or (truncated and not terminated)))
