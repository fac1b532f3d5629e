"""A request that a cluster works on: its jobs, their results so far, and which node has the moments of which."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from fastes.pools.cluster.messages import Float64, Int64, Played
from fastes.pools.cluster.schedule import Schedule
from fastes.rollout.job import Batch, PoolSpec, Request
from fastes.rollout.last_infos import Info
from fastes.rollout.obs_normalizer import EXACT_ABOVE, MomentSums


class OpenTicket:
    """A request that was submitted and is not collected.

    number: its ticket. error: what `collect` will raise. down, up: bytes of traffic. obs_size: values of an observation.
    """

    def __init__(self, number: int, request: Request, spec: PoolSpec) -> None:
        self.number, self.request = number, request
        jobs = _jobs_of(request)
        self.schedule = Schedule(jobs)
        self.is_candidates = request.perturbations is not None
        self.error: BaseException | None = None
        self.down = self.up = 0
        needs = spec.trainings[request.training]
        self.obs_size = needs.policy.obs_size
        has_moments = self.is_candidates and needs.normalize_obs
        few = request.perturbations is None or len(request.perturbations) <= EXACT_ABOVE
        self.sends_rows = has_moments and few
        self._sums: MomentSums | None = MomentSums({}, 0, 0, 0) if has_moments and not few else None
        self._unsummed = np.full(len(jobs), self._sums is not None)
        self._asked: dict[Hashable, Int64] = {}  # node -> positions of the jobs whose sum it was asked for
        self._returns, self._successes = np.zeros(len(jobs)), np.zeros(len(jobs))
        self._lengths, self._cuts = (np.zeros(len(jobs), dtype=np.int64) for _ in range(2))
        self._rows = np.zeros((len(jobs) if self.sends_rows else 0, 2, self.obs_size))
        self._infos: list[tuple[Info, ...]] = [()] * len(jobs) if self.is_candidates and spec.info_bytes else []
        self._busy_seconds, self._rerun, self._penalised, self._has_masks = 0.0, 0, "", False

    @property
    def is_finished(self) -> bool:
        return self.error is not None or (self.schedule.all_done and not self._unsummed.any())

    def book(self, played: Played) -> bool:
        """Keep the results that are the first of their jobs; False where the range was given up."""
        finished = self.schedule.finish(played.number)
        if finished is None:
            return False
        fresh, at = finished
        self._returns[at], self._lengths[at] = played.returns[fresh], played.lengths[fresh]
        self._successes[at], self._cuts[at] = played.successes[fresh], played.cuts[fresh]
        if self.sends_rows and played.rows is not None:
            self._rows[at] = played.rows[fresh]
        if self._infos:
            for position, job in zip(at.tolist(), fresh.tolist(), strict=True):
                self._infos[position] = played.infos[job]
        if len(fresh):
            self._busy_seconds += played.busy_seconds * len(fresh) / len(played.returns)
            self._rerun += played.rerun
            self._penalised = played.penalised or self._penalised
            self._has_masks |= played.has_masks
        return True

    def sums_to_ask_for(self) -> dict[Hashable, Int64]:
        """When all jobs are done: node -> jobs of which it has the moments, once."""
        if not self.schedule.all_done or self._sums is None:
            return {}
        open_ = set(np.flatnonzero(self._unsummed).tolist()).difference(*(at.tolist() for at in self._asked.values()))
        found = {node: np.array(sorted(at)) for node, at in self.schedule.by_owner(open_).items()}
        self._asked.update(found)
        return {node: self.schedule.jobs[at] for node, at in found.items()}

    def add_sums(self, node: Hashable, sums: MomentSums) -> None:
        """Add the sums that a node was asked for."""
        at = self._asked.pop(node, None)
        if at is not None and self._sums is not None:
            self._sums += sums
            self._unsummed[at] = False

    def lose(self, node: Hashable) -> None:
        """A node is gone: what it was to do, and what only it has, is to be done again."""
        self.schedule.lose(node)
        self._asked.pop(node, None)
        unsummed = np.flatnonzero(self._unsummed & self.schedule.done)
        if lost := self.schedule.by_owner(unsummed.tolist()).get(node):
            self.schedule.undo(np.array(lost, dtype=np.int64))

    def batch(self) -> Batch:
        """All results, as those of a local pool."""
        jobs = self.schedule.jobs
        paired = self.is_candidates and len(jobs) == 2 * len(np.unique(jobs // 2))
        shape = (-1, 2) if paired else (-1,)
        return Batch(
            returns=self._returns.reshape(shape),
            lengths=self._lengths.reshape(shape),
            successes=self._successes.reshape(shape),
            cuts=self._cuts.reshape(shape),
            moments=self._moments(),
            busy_seconds=self._busy_seconds,
            rerun=self._rerun + self.schedule.rerun,
            penalised=self._penalised,
            per_candidate=self.request.episodes.per_candidate,
            infos=tuple(self._infos),
            has_masks=self._has_masks,
        )

    def _moments(self) -> Float64 | MomentSums:
        if self._sums is not None:
            return self._sums
        if self.sends_rows or not self.is_candidates:
            return self._rows
        return np.broadcast_to(0.0, (len(self.schedule.jobs), 2, self.obs_size))


def _jobs_of(request: Request) -> Int64:
    if request.jobs is not None:
        return np.array(request.jobs, dtype=np.int64)
    if request.perturbations is None:
        return np.arange(len(request.eval_seeds), dtype=np.int64)
    return np.arange(2 * request.first_pair, len(request.perturbations), dtype=np.int64)
