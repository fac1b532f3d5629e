"""Processes that do nothing but step environments: the upper bound of training speed on the same cores at the same time.

Each process first plays episodes with candidates of the current generation and keeps their seeds and actions. On the clock
it replays them: same resets, same trajectories, same lengths as training, and no policy.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from fastes import FastES, _core
from fastes.envs.source import EnvSource
from fastes.policies.policy_spec import PolicySpec
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.observations import ObservationReader

_RECORDED_STEPS = 3_000  # played before each measurement, whole episodes


class Candidates(NamedTuple):
    """The next generation's candidates, and how they act.

    random: uniform actions instead of the candidates'.
    normalizer: mean, 1/std and clip, or None.
    """

    theta: npt.NDArray[np.float32]
    sigma: float
    normalizer: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float] | None
    episode: EpisodeSettings
    random: bool


def candidates_of(model: FastES, sigma: float, random: bool = False) -> Candidates:
    """A model's candidates as they are now."""
    settings, statistics = model.settings, model.normalizer
    normalizer = (statistics.mean, 1.0 / statistics.std, statistics.clip) if settings.normalize_obs else None
    episode, _ = model.training.episode_settings()
    return Candidates(model.theta, sigma, normalizer, episode, random)


class Replay(NamedTuple):
    """Steps of one process, its wall seconds, and how many of them went into env.reset."""

    steps: int
    seconds: float
    reset_seconds: float
    episodes: int


class BareRate(NamedTuple):
    """Environment steps per second of all processes together: with resets on the clock, and of env.step alone."""

    with_resets: float
    stepping: float
    episode_length: float


Episode = tuple[int, list[Any]]


def record(
    env: gymnasium.Env[Any, Any], spec: PolicySpec, candidates: Candidates, seed: int, steps: int = _RECORDED_STEPS
) -> list[Episode]:
    """Whole episodes of theta +- sigma * eps, of this many steps or more, as (env seed, actions)."""
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    actor = _core.Actor(spec)
    if candidates.normalizer is not None:
        actor.set_normalizer(*candidates.normalizer)
    max_steps, action_noise, sample, _ = candidates.episode
    flatten = ObservationReader(env.observation_space).flatten or (lambda obs: obs)
    episodes: list[Episode] = []
    while sum(len(actions) for _, actions in episodes) < steps:
        eps = rng.standard_normal(spec.num_params, dtype=np.float32)
        actor.parameters[:] = candidates.theta + np.float32(candidates.sigma) * eps
        choose: Callable[[Any], Any] = actor.act
        if candidates.random:
            choose = lambda _: env.action_space.sample()  # noqa: E731
        env_seed, over = int(rng.integers(2**31)), False
        actions: list[Any] = []
        actor.begin_episode(env_seed, action_noise, sample)
        obs, _ = env.reset(seed=env_seed)
        while not over and len(actions) < max_steps:
            actions.append(choose(flatten(obs)))
            obs, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
        episodes.append((env_seed, actions))
    return episodes


def replay(env: gymnasium.Env[Any, Any], episodes: list[Episode], seconds: float) -> Replay:
    """The bare loop: reset, then step through the actions, for whole episodes until the time is up."""
    step, reset, clock = env.step, env.reset, time.perf_counter
    steps, resetting = 0, 0.0
    started = now = clock()
    for count, (env_seed, actions) in enumerate(itertools.cycle(episodes), start=1):
        reset(seed=env_seed)
        resetting += clock() - now
        for action in actions:
            _, _, terminated, truncated, _ = step(action)
            if terminated or truncated:
                break
        steps += len(actions)
        now = clock()
        if now - started >= seconds:
            return Replay(steps, now - started, resetting, count)
    raise AssertionError("cycle of no episodes")


def _serve(connection: Connection, source: EnvSource, spec: PolicySpec, seed: int) -> None:
    env = source()
    episodes: list[Episode] = []
    while (message := connection.recv()) is not None:
        if isinstance(message, Candidates):
            episodes = record(env, spec, message, seed)
            connection.send(len(episodes))
        else:
            connection.send(replay(env, episodes, message))
    env.close()


class BareLoops:
    """As many processes as training has workers, started fresh like them and free to run on the same cores."""

    def __init__(self, model: FastES, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(count)]
        self.connections = [ours for ours, _ in pipes]
        self.processes = [
            context.Process(target=_serve, args=(theirs, model.source, model.policy_spec, 1_000 + k), daemon=True)
            for k, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()

    def measure(self, model: FastES, sigma: float, seconds: float, random: bool) -> BareRate:
        """Record episodes of the model's candidates as they are now, then replay them in all processes at once."""
        self._ask(candidates_of(model, sigma, random))
        results: list[Replay] = self._ask(seconds)
        return BareRate(
            sum(r.steps / r.seconds for r in results),
            sum(r.steps / (r.seconds - r.reset_seconds) for r in results),
            sum(r.steps for r in results) / sum(r.episodes for r in results),
        )

    def _ask(self, message: Any) -> list[Any]:
        for connection in self.connections:
            connection.send(message)
        return [connection.recv() for connection in self.connections]

    def close(self) -> None:
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join()
