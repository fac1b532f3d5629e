"""What a pool is given, what says which job is meant, and what comes back. The same for every kind of pool."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.envs.source import EnvSource, Pair
from fastes.es.perturbations import Perturbations
from fastes.policies.choose_policy import AnySpec
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.rollout.shared_block import Block, Layout

PENALISE = "penalise"


@dataclass(frozen=True)
class PoolSpec:
    """What a pool needs to know once: how to build the environment and the policy, and how much room a generation takes.

    source: builds the environment.
    policy: builds the actor.
    num_pairs: room for the pairs of a generation; a request may have fewer. The jobs of evaluation come behind that room.
    episodes: of each candidate.
    num_evals: room for noise-free episodes of theta.
    table_size: values of the noise table, 0 for evaluation only.
    normalize_obs: whether observations are normalised.
    on_env_error: 'stop' lets an exception of the environment end the round, 'penalise' makes it a return of NaN.
    step_timeout: seconds after which a worker without an env.step counts as hung; None learns it from the episodes.
    env_shown: whether the parent has built an environment: what that prints need not be shown again.
    sigma_each: whether each parameter has a sigma of its own.
    window_size: parameters that a pair perturbs, 0 for all.
    spaces: of observations and actions of the parent's environment; None where it has none, or they cannot be compared.
    """

    source: EnvSource
    policy: AnySpec
    num_pairs: int
    episodes: int
    num_evals: int
    table_size: int
    normalize_obs: bool
    on_env_error: str = "stop"
    step_timeout: float | None = None
    env_shown: bool = True
    sigma_each: bool = False
    window_size: int = 0
    spaces: Pair | None = None

    def layout(self, n_workers: int) -> Layout:
        return Layout(
            num_params=self.policy.num_params,
            obs_size=self.policy.obs_size,
            num_pairs=self.num_pairs,
            episodes=self.episodes,
            num_evals=self.num_evals,
            n_workers=n_workers,
            table_size=self.table_size,
            num_sigmas=self.policy.num_params if self.sigma_each else 0,
            window_size=self.window_size,
        )


class Request(NamedTuple):
    """What a pool is asked to evaluate: a generation's candidates and, beside them, theta without noise on eval_seeds.

    theta: float32 (num_params,).
    perturbations: a generation's; None for evaluation only.
    normalizer: whose statistics normalise the observations.
    eval_seeds: environment seeds, int64 (n,), n at most spec.num_evals.
    training: settings of candidates' episodes.
    evaluation: settings of noise-free episodes.
    first_pair: the pairs before it were in an earlier request of the same generation, and keep their places in the block.
    """

    theta: npt.NDArray[np.float32]
    perturbations: Perturbations | None
    normalizer: ObsNormalizer
    eval_seeds: npt.NDArray[np.int64]
    training: EpisodeSettings
    evaluation: EpisodeSettings
    first_pair: int = 0


class Round(NamedTuple):
    """The message that wakes a worker.

    number: of the round, from 1.
    num_todo: how many jobs are to do.
    generation: as the strategy counts, from 0; -1 for evaluation alone.
    sigma: of the candidates' noise.
    obs_clip: where normalised observations are clipped.
    training, evaluation: settings of the episodes.
    """

    number: int
    num_todo: int
    generation: int
    sigma: float
    obs_clip: float
    training: EpisodeSettings
    evaluation: EpisodeSettings

    @classmethod
    def of(cls, number: int, num_todo: int, request: Request) -> Round:
        """A round of a request; evaluation only belongs to no generation (-1)."""
        perturbations = request.perturbations
        sigma, generation = (perturbations.sigma, perturbations.generation) if perturbations else (0.0, -1)
        return cls(number, num_todo, generation, sigma, request.normalizer.clip, request.training, request.evaluation)


@dataclass(frozen=True)
class Batch:
    """What a request's jobs gave, in job order.

    returns: means over a candidate's episodes, float64 (num_pairs, 2).
    lengths: their total steps, int64 (num_pairs, 2).
    successes: shares of a candidate's episodes, float64 (num_pairs, 2), NaN where the environment does not tell.
    moments: of a candidate's observations, float64 (2 * num_pairs, 2, obs_size).
    eval_returns: of noise-free episodes, float64 (num_evals,).
    eval_lengths: their steps, int64 (num_evals,).
    busy_seconds: summed over workers.
    rerun: jobs run again because their worker died.
    penalised: what one of the exceptions said that were made a return of NaN, or ''.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    successes: npt.NDArray[np.float64]
    moments: npt.NDArray[np.float64]
    eval_returns: npt.NDArray[np.float64]
    eval_lengths: npt.NDArray[np.int64]
    busy_seconds: float
    rerun: int
    penalised: str

    def joined(self, later: Batch) -> Batch:
        """With those of a later request of the same generation, whose pairs follow; only the first has evaluations."""
        return Batch(
            returns=np.concatenate([self.returns, later.returns]),
            lengths=np.concatenate([self.lengths, later.lengths]),
            successes=np.concatenate([self.successes, later.successes]),
            moments=np.concatenate([self.moments, later.moments]),
            eval_returns=self.eval_returns,
            eval_lengths=self.eval_lengths,
            busy_seconds=self.busy_seconds + later.busy_seconds,
            rerun=self.rerun + later.rerun,
            penalised=self.penalised or later.penalised,
        )


class Where(NamedTuple):
    """Which episode went wrong, in words and for an exception's attributes."""

    text: str
    generation: int
    job: int
    env_seed: int
    replay: str


def describe_episode(spec: PoolSpec, block: Block, round_: Round, job: int, episode: int) -> Where:
    """An episode of a job in words, with what plays it again in one process. Generations are numbered as in progress.csv."""
    candidates, generation = 2 * spec.num_pairs, round_.generation + 1
    if job < candidates:
        seed = int(block.env_seed[job // 2, episode])
        what = f"candidate {job} (pair {job // 2}, side {job % 2})"
    else:
        seed = int(block.eval_seed[job - candidates])
        what = f"evaluation episode {job - candidates}"
    when = f"generation {generation}, " if generation > 0 else ""
    evaluated = f"model.evaluate(1, first_seed={seed}), with n_workers=0"
    replay = f"model.replay({generation}, {job})" if generation > 0 else evaluated
    return Where(f"{spec.source.name}, {when}{what}, env seed {seed}", generation, job, seed, replay)


def warn_of_penalty(known: set[str], summary: str, where: str, trace: str) -> None:
    """Say once of each kind of exception that it was made a return of NaN. summary: its type, a colon, what it says."""
    kind = summary.partition(":")[0]
    if kind in known:
        return
    known.add(kind)
    warnings.warn(f"{summary}: this episode ranks worst [{where}]\n{trace}", RuntimeWarning, stacklevel=2)


def publish(block: Block, request: Request) -> npt.NDArray[np.int64]:
    """Write a request into the block; returns its jobs in the order of claiming.

    Evaluations come first: they have no adaptive cap, and the longest episode should not be the last to start.
    """
    perturbations, eval_seeds = request.perturbations, request.eval_seeds
    block.theta[:] = request.theta
    block.obs_mean[:] = request.normalizer.mean
    block.obs_inv_std[:] = 1.0 / request.normalizer.std
    block.eval_seed[: len(eval_seeds)] = eval_seeds
    first_eval = 2 * block.layout.num_pairs
    evaluations = np.arange(first_eval, first_eval + len(eval_seeds), dtype=np.int64)
    if perturbations is None:
        return evaluations
    pairs = perturbations.num_pairs
    block.noise_index[:pairs] = perturbations.noise_index
    if perturbations.sigma_each is not None:
        block.sigma_each[:] = perturbations.sigma_each
    if perturbations.windows is not None:
        block.window_first[:pairs] = perturbations.windows.first
    block.env_seed[:pairs] = perturbations.env_seed
    block.action_key[:pairs] = perturbations.action_key
    return np.concatenate([evaluations, np.arange(2 * request.first_pair, 2 * pairs, dtype=np.int64)])


def collect(block: Block, jobs: npt.NDArray[np.int64], rerun: int, penalised: str) -> Batch:
    """Copy a finished request's results out of the block."""
    first_eval = 2 * block.layout.num_pairs
    candidates, evaluations = jobs[jobs < first_eval], jobs[jobs >= first_eval]
    return Batch(
        returns=block.returns[candidates].reshape(-1, 2),
        lengths=block.lengths[candidates].reshape(-1, 2),
        successes=block.successes[candidates].reshape(-1, 2),
        moments=block.moments[candidates],
        eval_returns=block.returns[evaluations],
        eval_lengths=block.lengths[evaluations],
        busy_seconds=float(block.seconds[jobs].sum()),
        rerun=rerun,
        penalised=penalised,
    )
