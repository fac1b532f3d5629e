"""The pool without worker processes, for debugging and notebooks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from fastes import _core
from fastes.envs.worker_number import numbered
from fastes.errors import frames_of, origin_of, summary_of, trace_of, warn_user
from fastes.pools.block_pool import BlockPool, OpenRequest, episode_error
from fastes.pools.pool import LocalPool
from fastes.rollout.episode import Episode
from fastes.rollout.job import EpisodeDescription, PoolSpec, Request, describe_episode, warn_of_penalty
from fastes.rollout.job_runner import JobRunner
from fastes.rollout.shared_block import EPISODE, RequestSlot
from fastes.system.forks import never_finalise
from fastes.system.interrupts import signal_handlers_kept
from fastes.system.random_state import global_random_kept, torch_on_one_thread


class SerialPool(BlockPool, LocalPool):
    """Plays jobs one after the other in this process, with the same results as ProcessPool."""

    def __init__(self) -> None:
        super().__init__()
        self._runner: JobRunner | None = None
        self._warned: set[str] = set()

    def open(self, spec: PoolSpec) -> None:
        """Allocate the memory. The first job builds the environment."""
        self.check_memory(spec, 0, actors=1)
        self._warned = set()
        self._use(spec, spec.block(0, shared=False))

    def wait(self, tickets: Collection[int]) -> None:
        """Run all jobs of the oldest of these requests, unless one of them is finished."""
        if any(self.is_finished(ticket) for ticket in tickets):
            return
        try:
            self._run_all(self._requests[min(tickets)])
        except BaseException:
            self._requests.forget()
            raise

    def _run_all(self, open_: OpenRequest) -> None:
        with self._running(open_.slot) as runner:
            for job in open_.jobs.tolist():
                self._run(runner, job, open_)
                if open_.error is not None:
                    break
        open_.finished = True

    def play_job(self, job: int, request: Request) -> Episode:
        open_ = self._requests.add([request], self.block.slots)[0]
        slot = open_.slot
        try:
            with self._running(slot) as runner:
                runner.run(slot, open_.ticket, job, _raise)
        finally:
            self._requests.forget()
        return Episode(float(slot.returns[job]), int(slot.lengths[job]), cut=int(slot.cuts[job]))

    @contextlib.contextmanager
    def _running(self, slot: RequestSlot) -> Iterator[JobRunner]:
        if self._runner is not None and self._runner.plays_natively(slot):
            with _core.UsualFloats():
                yield self._runner
            return
        with (
            _core.UsualFloats(),
            signal_handlers_kept(),
            global_random_kept(),
            torch_on_one_thread(),
            numbered(self.spec.first_worker),
        ):
            if self._runner is None:
                self._runner = JobRunner(self.spec, self.block, notify=self._notify)
            yield self._runner

    def _notify(self, kind: str, said: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_user(said)

    def _run(self, runner: JobRunner, job: int, open_: OpenRequest) -> None:
        def penalise(error: Exception) -> None:
            open_.penalised = summary_of(error)
            warn_of_penalty(self._warned, open_.penalised, self._describe(job, open_).text, trace_of(error))

        try:
            runner.run(open_.slot, open_.ticket, job, penalise)
            if runner.is_worn:
                runner.renew()
        except Exception as error:
            runner.close()  # its environment may be in any state
            self._runner = None
            episode = self._describe(job, open_)
            open_.error = episode_error(episode, summary_of(error), origin_of(error), frames_of(error))
            open_.error.__cause__ = error

    def _describe(self, job: int, open_: OpenRequest) -> EpisodeDescription:
        return describe_episode(self.spec, open_.slot, job, int(self.block.workers[0, EPISODE]))

    def close(self) -> None:
        """Close the environment."""
        runner, self._runner = self._runner, None
        super().close()
        if runner is not None:
            runner.close()

    def reset_after_fork(self) -> None:
        """Let a forked copy build an environment of its own."""
        super().reset_after_fork()
        if self._runner is not None:
            never_finalise(self._runner.env)
            self._runner = None


def _raise(error: Exception) -> None:
    raise error
