"""What runs jobs: one environment, one actor, one slot after the other."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable

from fastes import _core
from fastes.envs.source import Env
from fastes.es.perturbations import write_candidate
from fastes.rollout.episode import Episode, observation_flattener, run_episode
from fastes.rollout.job import PENALISE, PoolSpec, Round
from fastes.rollout.shared_block import EPISODE, JOB, STEPS, Block, Layout
from fastes.rollout.space_checks import check_spaces


class JobRunner:
    """Runs jobs with one environment over one block. Jobs below 2 * num_pairs are candidates, the others evaluate theta.

    slot: this runner's row of the block's `workers`, where it keeps what it is doing.
    whole: a context in which nothing cuts short what is done: half an environment could not be closed.
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
