"""A training's policy as it acts outside of the workers."""

from __future__ import annotations

from typing import Any

from fastes.envs.source import EnvSource
from fastes.policies.layers import State
from fastes.rollout.predictor import Predictor
from fastes.training.training import Training


def act(
    training: Training,
    source: EnvSource,
    predictor: Predictor,
    space: Any,
    observation: Any,
    state: Any = None,
    episode_start: Any = None,
    deterministic: bool = False,
) -> tuple[Any, State | None]:
    """The actions for observations, and the next state of a recurrent policy: see Agent.predict.

    Args:
        training: Has the parameters and the statistics of observations.
        source: Of its environments.
        predictor: Made for its policy.
        space: That of the observations, if they are flattened; else None.
        observation: One observation, or a batch.
        state: A recurrent policy's.
        episode_start: Whether an episode begins, for all rows or per row.
        deterministic: Whether to act without the noise of training episodes.
    """
    settings, vector_env = training.settings, source.vector_env
    noise = (0.0, False) if deterministic else (settings.action_noise, settings.sample_actions)
    with predictor.lock:
        predictor.bounded = vector_env is None or not vector_env.normalizes
        return predictor.act(training.strategy.theta, training.normalizer, observation, noise, space, state, episode_start)
