"""The pool without processes, for debugging and for notebooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastes.errors import WorkerError, frames_of, origin_of, summary_of, trace_of
from fastes.pools.at_exit import close_at_exit
from fastes.rollout.episode import Episode
from fastes.rollout.job import Batch, PoolSpec, Request, Round, Where, collect, describe_episode, publish, warn_of_penalty
from fastes.rollout.job_runner import JobRunner
from fastes.rollout.random_state import global_random_kept, one_thread
from fastes.rollout.shared_block import EPISODE, Block
from fastes.system.forks import keep_unused, tell_of_forks
from fastes.system.interrupts import handlers_kept


class SerialPool:
    """Runs the same jobs as ProcessPool, one after the other, in this process."""

    n_workers = 0

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.block = Block(spec.layout(0), shared=False)
        self._runner: JobRunner | None = None
        self._warned: set[str] = set()
        self._penalised = ""
        self._rounds = 0
        tell_of_forks(self)
        close_at_exit(self)

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """Memory for the noise table, float32 (table_size,)."""
        return self.block.noise

    def start(self) -> None:
        """Nothing to start: the environment is built by the first `evaluate`."""

    def evaluate(self, request: Request) -> Batch:
        """Run a request's jobs one after the other. Raises WorkerError for an exception in the environment."""
        jobs = publish(self.block, request)
        with self._round(len(jobs), request) as (runner, round_):
            self._penalised = ""
            for job in jobs.tolist():
                self._run(runner, job, round_)
        return collect(self.block, jobs, 0, self._penalised)

    def play(self, job: int, request: Request) -> Episode:
        """One job of a request: the mean return of its episodes, and their total length. Errors come as they are."""
        publish(self.block, request)
        with self._round(1, request) as (runner, round_):
            runner.run(job, round_, _raise)
        return Episode(float(self.block.returns[job]), int(self.block.lengths[job]))

    @contextlib.contextmanager
    def _round(self, num_jobs: int, request: Request) -> Iterator[tuple[JobRunner, Round]]:
        with handlers_kept(), global_random_kept(), one_thread():
            if self._runner is None:
                self._runner = JobRunner(self.spec, self.block)
            self._rounds += 1
            round_ = Round.of(self._rounds, num_jobs, request)
            self._runner.begin(round_)
            yield self._runner, round_

    def _run(self, runner: JobRunner, job: int, round_: Round) -> None:
        def penalise(error: Exception) -> None:
            where = self._describe(job, round_)
            self._penalised = summary_of(error)
            warn_of_penalty(self._warned, self._penalised, where.text, trace_of(error))

        try:
            runner.run(job, round_, penalise)
        except Exception as error:
            runner.close()  # who knows what state it is in
            self._runner = None
            where = self._describe(job, round_)
            raise WorkerError(
                f"{summary_of(error)}\n[in the {origin_of(error)}: {where.text}; to play this episode again: "
                f"{where.replay}]\n\n{frames_of(error)}",
                where.generation,
                job,
                where.env_seed,
            ) from error

    def _describe(self, job: int, round_: Round) -> Where:
        return describe_episode(self.spec, self.block, round_, job, int(self.block.workers[0, EPISODE]))

    def close(self) -> None:
        """Close the environment. The pool can be used again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.env.close()

    def leave_to_parent(self) -> None:
        """See forks.Owner: a forked copy builds an environment of its own."""
        if self._runner is not None:
            keep_unused(self._runner.env)
            self._runner = None


def _raise(error: Exception) -> None:
    raise error
