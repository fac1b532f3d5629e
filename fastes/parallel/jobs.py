"""What a pool is given, what one job does, and what comes back. The same for every kind of pool."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.noise import Perturbations
from fastes.normalizer import ObsNormalizer
from fastes.parallel.shm import Block, Layout
from fastes.policies import PolicySpec
from fastes.rollout import EpisodeSettings, observation_flattener, run_episode

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class PoolSpec:
    """What a pool needs to know once: how to build the environment and the policy, and how much room a generation takes."""

    make_env: EnvFactory
    policy: PolicySpec
    num_pairs: int
    episodes: int
    num_evals: int
    table_size: int
    normalize_obs: bool
    env_shown: bool = True  # the parent has built one: what that prints need not be shown again

    def layout(self, n_workers: int) -> Layout:
        return Layout(
            self.policy.num_params,
            self.policy.obs_size,
            self.num_pairs,
            self.episodes,
            self.num_evals,
            n_workers,
            self.table_size,
        )


class Round(NamedTuple):
    """The message that wakes a worker: the round's number, how many jobs are to do, and what their episodes share."""

    number: int
    num_todo: int
    generation: int
    sigma: float
    obs_clip: float
    training: EpisodeSettings
    evaluation: EpisodeSettings


@dataclass(frozen=True)
class Batch:
    """What a generation's jobs gave, in job order.

    returns float64 (num_pairs, 2), means over a candidate's episodes; lengths int64 (num_pairs, 2), their total steps;
    moments float64 (2 * num_pairs, 2, obs_size); eval_returns float64, eval_lengths int64 (num_evals,);
    busy_seconds: summed over workers; rerun: jobs run again because their worker died.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    moments: npt.NDArray[np.float64]
    eval_returns: npt.NDArray[np.float64]
    eval_lengths: npt.NDArray[np.int64]
    busy_seconds: float
    rerun: int


class JobRunner:
    """Runs jobs with one environment over one block. Jobs below 2 * num_pairs are candidates, the others evaluate theta."""

    def __init__(self, env: gymnasium.Env[Any, Any], spec: PoolSpec, block: Block) -> None:
        self.env, self.block, self.normalize = env, block, spec.normalize_obs
        self.num_pairs, self.episodes = spec.num_pairs, spec.episodes
        self.actor = _core.Actor(spec.policy)
        self.flatten = observation_flattener(env.observation_space)
        self.running_seed = -1  # of the episode that is being played, for error messages

    def begin(self, round_: Round) -> None:
        """Take over the round's normaliser snapshot."""
        if self.normalize:
            self.actor.set_normalizer(self.block.obs_mean, self.block.obs_inv_std, round_.obs_clip)

    def run(self, job: int, round_: Round) -> None:
        """Run a job and write its slot; the commit flag comes last."""
        started = time.perf_counter()
        block = self.block
        if job < 2 * self.num_pairs:
            total, length = self._run_candidate(job, round_)
        else:
            total, length = self._run_evaluation(job - 2 * self.num_pairs, round_)
        block.returns[job], block.lengths[job] = total, length
        block.seconds[job] = time.perf_counter() - started
        _core.commit(block.committed, job, round_.number)

    def _run_candidate(self, job: int, round_: Round) -> tuple[float, int]:
        block, actor, pair = self.block, self.actor, job // 2
        scale = round_.sigma if job % 2 == 0 else -round_.sigma
        _core.perturb(actor.parameters, block.theta, block.noise, int(block.noise_index[pair]), scale)
        actor.count_moments(self.normalize)
        total, length = 0.0, 0
        for episode in range(self.episodes):
            self.running_seed, key = int(block.env_seed[pair, episode]), int(block.action_key[pair, episode])
            result = run_episode(self.env, actor, self.running_seed, round_.training, key, self.flatten)
            total, length = total + result.episode_return, length + result.length
        block.moments[job] = actor.observation_moments
        return total / self.episodes, length

    def _run_evaluation(self, number: int, round_: Round) -> tuple[float, int]:
        self.actor.parameters[:] = self.block.theta
        self.actor.count_moments(False)
        self.running_seed = int(self.block.eval_seed[number])
        return run_episode(self.env, self.actor, self.running_seed, round_.evaluation, 0, self.flatten)


def describe_job(job: int, num_pairs: int) -> str:
    """A job in words."""
    if job >= 2 * num_pairs:
        return f"evaluation episode {job - 2 * num_pairs}"
    return f"candidate {job} (pair {job // 2}, side {job % 2})"


def publish(
    block: Block,
    perturbations: Perturbations | None,
    theta: npt.NDArray[np.float32],
    normalizer: ObsNormalizer,
    eval_seeds: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Write a generation's inputs into the block; returns its jobs in the order of claiming.

    Evaluations come first: they have no adaptive cap, and the longest episode should not be the last to start.
    """
    block.theta[:] = theta
    block.obs_mean[:] = normalizer.mean
    block.obs_inv_std[:] = 1.0 / normalizer.std
    block.eval_seed[: len(eval_seeds)] = eval_seeds
    first_eval = 2 * block.layout.num_pairs
    evaluations = np.arange(first_eval, first_eval + len(eval_seeds), dtype=np.int64)
    if perturbations is None:
        return evaluations
    block.noise_index[:] = perturbations.noise_index
    block.env_seed[:] = perturbations.env_seed
    block.action_key[:] = perturbations.action_key
    return np.concatenate([evaluations, np.arange(first_eval, dtype=np.int64)])


def collect(block: Block, jobs: npt.NDArray[np.int64], rerun: int) -> Batch:
    """Copy a finished generation's results out of the block."""
    candidates = 2 * block.layout.num_pairs
    evaluations = jobs[jobs >= candidates]
    return Batch(
        returns=block.returns[:candidates].reshape(-1, 2).copy(),
        lengths=block.lengths[:candidates].reshape(-1, 2).copy(),
        moments=block.moments[:candidates].copy(),
        eval_returns=block.returns[evaluations],
        eval_lengths=block.lengths[evaluations],
        busy_seconds=float(block.seconds[jobs].sum()),
        rerun=rerun,
    )
