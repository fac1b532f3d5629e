"""What a pool is given, what one job does, and what comes back. The same for every kind of pool."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.envs import Env, EnvSource, Pair
from fastes.noise import Perturbations, write_candidate
from fastes.normalizer import ObsNormalizer
from fastes.parallel.shm import EPISODE, JOB, STEPS, Block, Layout
from fastes.parallel.spaces import check_spaces
from fastes.policies import AnySpec
from fastes.rollout import Episode, EpisodeSettings, observation_flattener, run_episode

PENALISE = "penalise"


@dataclass(frozen=True)
class PoolSpec:
    """What a pool needs to know once: how to build the environment and the policy, and how much room a generation takes.

    num_pairs: room for the pairs of a generation; a request may have fewer. The jobs of evaluation come behind that room.
    on_env_error: 'stop' lets an exception of the environment end the round, 'penalise' makes it a return of NaN.
    step_timeout: seconds after which a worker without an env.step counts as hung; None learns it from the episodes.
    sigma_each: whether each parameter has a sigma of its own. window_size: parameters that a pair perturbs, 0 for all.
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
    env_shown: bool = True  # the parent has built one: what that prints need not be shown again
    sigma_each: bool = False
    window_size: int = 0
    spaces: Pair | None = None

    def layout(self, n_workers: int) -> Layout:
        return Layout(
            self.policy.num_params,
            self.policy.obs_size,
            self.num_pairs,
            self.episodes,
            self.num_evals,
            n_workers,
            self.table_size,
            self.policy.num_params if self.sigma_each else 0,
            self.window_size,
        )


class Request(NamedTuple):
    """What a pool is asked to evaluate: a generation's candidates and, beside them, theta without noise on eval_seeds.

    theta: float32 (num_params,). perturbations: None for evaluation only. normalizer: its statistics are what observations are
    normalised by. eval_seeds: int64, at most spec.num_evals. training, evaluation: settings of the episodes. first_pair: an
    earlier request of the same generation had the pairs before this one, which keep their places in the block.
    """

    theta: npt.NDArray[np.float32]
    perturbations: Perturbations | None
    normalizer: ObsNormalizer
    eval_seeds: npt.NDArray[np.int64]
    training: EpisodeSettings
    evaluation: EpisodeSettings
    first_pair: int = 0


class Round(NamedTuple):
    """The message that wakes a worker: the round's number, how many jobs are to do, and what their episodes share."""

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
        asked = request.perturbations
        sigma, generation = (asked.sigma, asked.generation) if asked else (0.0, -1)
        return cls(number, num_todo, generation, sigma, request.normalizer.clip, request.training, request.evaluation)


@dataclass(frozen=True)
class Batch:
    """What a request's jobs gave, in job order.

    returns float64 (num_pairs, 2), means over a candidate's episodes; lengths int64 (num_pairs, 2), their total steps;
    moments float64 (2 * num_pairs, 2, obs_size); eval_returns float64, eval_lengths int64 (num_evals,);
    successes float64 (num_pairs, 2), shares of a candidate's episodes, NaN where the environment does not tell;
    busy_seconds: summed over workers; rerun: jobs run again because their worker died; penalised: what one of the exceptions
    said that were made a return of NaN, or ''.
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


class JobRunner:
    """Runs jobs with one environment over one block. Jobs below 2 * num_pairs are candidates, the others evaluate theta.

    slot: this runner's row of the block's `workers`, where it keeps what it is doing. whole: a context in which nothing cuts
    short what is done: half an environment could not be closed.
    """

    def __init__(
        self,
        spec: PoolSpec,
        block: Block,
        slot: int = 0,
        whole: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.spec, self.block, self.row, self.whole = spec, block, block.workers[slot], whole
        self.num_pairs, self.episodes = spec.num_pairs, spec.episodes
        self.env = self._build()
        try:
            self.flatten = observation_flattener(self.env.observation_space)
            self.actor = spec.policy.make_actor()
        except BaseException:
            self.close()
            raise
        self.actor.count_steps(self.row[STEPS : STEPS + 1])
        self.load_parameters = parameter_loader(block.layout)

    def begin(self, round_: Round) -> None:
        """Take over the round's normaliser snapshot."""
        if self.spec.normalize_obs:
            self.actor.set_normalizer(self.block.obs_mean, self.block.obs_inv_std, round_.obs_clip)

    def run(self, job: int, round_: Round, on_penalty: Callable[[Exception], None]) -> None:
        """Run a job and write its slot; the commit flag comes last.

        on_penalty gets an exception that is made a return of NaN, before the job counts as done. Any other exception leaves
        the job uncommitted and its number in the worker's row.
        """
        started, block, row = time.perf_counter(), self.block, self.row
        steps_before = int(row[STEPS])
        row[EPISODE] = 0
        row[JOB] = job
        try:
            played = self._run_candidate(job, round_) if job < 2 * self.num_pairs else self._run_evaluation(job, round_)
        except Exception as error:
            if self.spec.on_env_error != PENALISE:
                raise
            on_penalty(error)
            played = Episode(math.nan, int(row[STEPS]) - steps_before)
            if job < 2 * self.num_pairs:
                block.moments[job] = math.nan
            self._rebuild()
        block.returns[job], block.lengths[job], block.successes[job] = played
        block.seconds[job] = time.perf_counter() - started
        _core.commit(block.committed, job, round_.number)
        row[JOB] = -1

    def _run_candidate(self, job: int, round_: Round) -> Episode:
        block, actor, pair = self.block, self.actor, job // 2
        self.load_parameters(actor, block, job, round_.sigma)
        actor.count_moments(self.spec.normalize_obs)
        total, length, successes = 0.0, 0, 0.0
        for episode in range(self.episodes):
            self.row[EPISODE] = episode
            seed, key = int(block.env_seed[pair, episode]), int(block.action_key[pair, episode])
            result = run_episode(self.env, actor, seed, round_.training, key, self.flatten)
            total, length = total + result.episode_return, length + result.length
            successes += result.success
        block.moments[job] = actor.observation_moments
        return Episode(total / self.episodes, length, successes / self.episodes)

    def _run_evaluation(self, job: int, round_: Round) -> Episode:
        self.load_parameters(self.actor, self.block, job, round_.sigma)
        self.actor.count_moments(False)
        seed = int(self.block.eval_seed[job - 2 * self.num_pairs])
        return run_episode(self.env, self.actor, seed, round_.evaluation, 0, self.flatten)

    def _rebuild(self) -> None:
        """A new environment: who knows what state the exception left the old one in."""
        with self.whole():
            self.close()
            self.env = self._build()

    def _build(self) -> Env:
        env = self.spec.source()
        try:
            check_spaces(env, self.spec)
        except BaseException:
            with contextlib.suppress(Exception):
                env.close()
            raise
        return env

    def close(self) -> None:
        """Close the environment; what it raises changes nothing."""
        with contextlib.suppress(Exception):
            self.env.close()


def parameter_loader(layout: Layout) -> Callable[[_core.Actor, Block, int, float], None]:
    """What gives an actor the parameters of a job. Chosen once: a plain search does nothing for the other kinds."""
    return load_with_options if layout.num_sigmas or layout.window_size else load_parameters


def load_parameters(actor: _core.Actor, block: Block, job: int, sigma: float) -> None:
    """Give an actor what a job evaluates: theta + sigma * eps, theta - sigma * eps, or theta itself."""
    if job >= 2 * block.layout.num_pairs:
        actor.parameters[:] = block.theta
        return
    scale = sigma if job % 2 == 0 else -sigma
    _core.perturb(actor.parameters, block.theta, block.noise, int(block.noise_index[job // 2]), scale)


def load_with_options(actor: _core.Actor, block: Block, job: int, sigma: float) -> None:
    """The same, with a sigma for each parameter, or with a window for each pair, where the block has them."""
    layout, (pair, side) = block.layout, divmod(job, 2)
    if pair >= layout.num_pairs:
        actor.parameters[:] = block.theta
        return
    each = block.sigma_each if layout.num_sigmas else sigma
    window = (int(block.window_first[pair]), layout.window_size) if layout.window_size else None
    write_candidate(actor.parameters, block.theta, block.noise, int(block.noise_index[pair]), each, side, window)


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
    asked, eval_seeds = request.perturbations, request.eval_seeds
    block.theta[:] = request.theta
    block.obs_mean[:] = request.normalizer.mean
    block.obs_inv_std[:] = 1.0 / request.normalizer.std
    block.eval_seed[: len(eval_seeds)] = eval_seeds
    first_eval = 2 * block.layout.num_pairs
    evaluations = np.arange(first_eval, first_eval + len(eval_seeds), dtype=np.int64)
    if asked is None:
        return evaluations
    pairs = asked.num_pairs
    block.noise_index[:pairs] = asked.noise_index
    if asked.sigma_each is not None:
        block.sigma_each[:] = asked.sigma_each
    if asked.windows is not None:
        block.window_first[:pairs] = asked.windows.first
    block.env_seed[:pairs] = asked.env_seed
    block.action_key[:pairs] = asked.action_key
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
