"""A pool that plays ahead: what will be asked for is played while its user waits for something else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.errors import FastESError
from fastes.es.noise_table import NoiseTable
from fastes.es.perturbations import Perturbations
from fastes.pools.pool import Pool, Unfinished
from fastes.rollout.job import Batch, PoolSpec, Request, StepsPlayed

_MOST_BYTES = 1 << 28  # of guesses that nobody has asked for


class _Played:
    """A request that was played ahead: its ticket, and its results once somebody has collected them."""

    def __init__(self, pool: Pool, request: Request) -> None:
        self.pool, self.request, self.ticket = pool, request, pool.submit(request)
        self.batch: Batch | None = None
        self.error: FastESError | None = None

    @property
    def is_finished(self) -> bool:
        return self.batch is not None or self.error is not None or self.pool.is_finished(self.ticket)

    @property
    def nbytes(self) -> int:
        """The size of its large arrays."""
        moments = None if self.batch is None else self.batch.moments
        return self.request.theta.nbytes + (moments.nbytes if isinstance(moments, np.ndarray) else 0)

    def collect(self) -> Batch:
        """Its results, or its error raised, as often as somebody asks."""
        if self.batch is None and self.error is None:
            try:
                self.batch = self.pool.collect(self.ticket)
                self.request = self.request._replace(strategy=None)  # it is large
            except FastESError as error:
                self.error = error
        if self.batch is None:
            assert self.error is not None
            raise self.error
        return self.batch


class AheadPool(Pool):
    """Plays speculative requests (guesses) beside the user's.

    A request of the user's that is bit-identical to a speculative one has its results; any other is played as without
    speculation. So guesses change no result, only the time.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool, self.is_remote = pool, pool.is_remote
        self._played: dict[int, _Played] = {}  # by ticket: that nobody has asked for yet
        self._alike: dict[_Mark, list[_Played]] = {}  # the same, by what few requests have in common
        self._nbytes = 0  # of their arrays
        self._mine: dict[int, _Played] = {}  # that the user has asked for
        self._again: dict[int, int] = {}  # ticket of a guess that failed -> that of the same request, as the user made it
        self._works: dict[int, Coroutine[Any, Any, None]] = {}  # ticket that a work waits for -> the work

    @property
    def n_workers(self) -> int:
        return self.pool.n_workers

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        self.pool.place_table(table, training)

    def steps_played(self) -> StepsPlayed:
        return self.pool.steps_played()

    @property
    def in_words(self) -> str:
        return self.pool.in_words

    @property
    def is_open(self) -> bool:
        return self.pool.is_open

    def open(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.pool.open(spec)

    def begin(self, make_work: Callable[[Pool], Coroutine[Any, Any, None]]) -> None:
        """Begin a work beside what the user has played; the user need not wait for it, and collects nothing of it.

        make_work: called once with the pool as the work sees it. Its work awaits requests there, and is gone on with when the
        one that it awaits is finished. A FastESError that it raises ends it without a word.
        """
        self._step(make_work(_Guesses(self)))

    def submit(self, request: Request) -> int:
        for played in self._alike.get(_mark_of(request), ()):
            if played.error is None and are_same(played.request, request):
                self._take(played)
                played.request = request
                self._mine[played.ticket] = played
                return played.ticket
        return self.pool.submit(request)

    def knows(self, ticket: int) -> bool:
        return ticket in self._mine or self.pool.knows(ticket)

    def tickets(self) -> Set[int]:
        """Those that the user has to collect; guesses have theirs besides."""
        return (self.pool.tickets() - self._played.keys()) | self._mine.keys()

    def _keep(self, played: _Played) -> None:
        """Until somebody asks for it."""
        self._played[played.ticket] = played
        self._alike.setdefault(_mark_of(played.request), []).append(played)
        self._nbytes += played.nbytes

    def _take(self, played: _Played) -> None:
        """Keep it no longer."""
        del self._played[played.ticket]
        mark = _mark_of(played.request)
        self._alike[mark].remove(played)
        if not self._alike[mark]:
            del self._alike[mark]
        self._nbytes -= played.nbytes

    def _take_all(self) -> None:
        for played in list(self._played.values()):
            self._take(played)

    def forget(self) -> None:
        self.drop()
        self._take_all()
        self._mine.clear()
        self._again.clear()
        self.pool.forget()

    def is_finished(self, ticket: int) -> bool:
        return self._settle(ticket) is not None

    def _settle(self, ticket: int) -> _Played | int | None:
        """A request's guess, or its ticket in the pool, once it is finished. A guess that failed is played again: its error
        names another generation.
        """
        played = self._mine.get(ticket)
        if played is not None and ticket not in self._again:
            if not played.is_finished:
                return None
            with contextlib.suppress(FastESError):
                played.collect()
                return played
            self._again[ticket] = self.pool.submit(played.request)
        real = self._again.get(ticket, ticket)
        return real if self.pool.is_finished(real) else None

    def wait(self, tickets: Collection[int]) -> None:
        """Meanwhile the works go on."""
        try:
            while not any(self.is_finished(ticket) for ticket in tickets):
                self.pool.wait({*(self._again.get(ticket, ticket) for ticket in tickets), *self._works})
                for ticket in [ticket for ticket in self._works if self.pool.is_finished(ticket)]:
                    self._step(self._works.pop(ticket))
        except BaseException:
            self.drop()
            self._mine.clear()
            self._again.clear()
            raise

    def collect(self, ticket: int) -> Batch:
        settled = self._settle(ticket)
        self._mine.pop(ticket, None)
        self._again.pop(ticket, None)
        return settled.collect() if isinstance(settled, _Played) else self.pool.collect(ticket if settled is None else settled)

    def drop(self) -> None:
        """End the works; what they have guessed so far stays, for who may still ask for it."""
        works, self._works = self._works, {}
        for work in works.values():
            work.close()
        for played in list(self._played.values()):
            if played.batch is None and not self.pool.knows(played.ticket):
                self._take(played)

    def close(self) -> None:
        self.drop()
        self._take_all()
        self._mine.clear()
        self._again.clear()
        self.pool.close()

    def _step(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a work go on until it waits; one that fails has guessed something that cannot be, or will be met again.

        Where all that is guessed takes much memory, the works end: who asks for more of it plays it then.
        """
        if self._nbytes > _MOST_BYTES:
            work.close()
            return
        with contextlib.suppress(FastESError, StopIteration):
            waits_for: Unfinished = work.send(None)
            self._works[waits_for.ticket] = work


class _Guesses(Pool):
    """The pool as a work sees it."""

    def __init__(self, ahead: AheadPool) -> None:
        self.ahead, self.pool, self.spec, self.is_remote = ahead, ahead.pool, ahead.spec, ahead.is_remote
        self._open: dict[int, _Played] = {}

    @property
    def n_workers(self) -> int:
        return self.pool.n_workers

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        self.pool.place_table(table, training)

    def steps_played(self) -> StepsPlayed:
        return self.pool.steps_played()

    @property
    def in_words(self) -> str:
        return self.pool.in_words

    @property
    def is_open(self) -> bool:
        return True

    def open(self, spec: PoolSpec) -> None:
        """It is open."""

    def submit(self, request: Request) -> int:
        played = _Played(self.pool, request)
        self.ahead._keep(played)
        self._open[played.ticket] = played
        return played.ticket

    def tickets(self) -> Set[int]:
        return self._open.keys()

    def forget(self) -> None:
        """They are the user's pool's."""

    def is_finished(self, ticket: int) -> bool:
        return self._open[ticket].is_finished

    def wait(self, tickets: Collection[int]) -> None:
        raise NotImplementedError("a work awaits its requests")

    def collect(self, ticket: int) -> Batch:
        played = self._open.pop(ticket)
        before = played.nbytes
        try:
            return played.collect()
        finally:
            if ticket in self.ahead._played:
                self.ahead._nbytes += played.nbytes - before

    def close(self) -> None:
        """It is the user's."""


_Mark = tuple[int, bytes, bytes]


def _mark_of(request: Request) -> _Mark:
    """The same for requests that are the same, and seldom for others: those of other generations draw otherwise."""
    perturbations = request.perturbations
    drawn = b"" if perturbations is None else perturbations.noise_index[:4].tobytes()
    return len(request.theta), drawn, request.eval_seeds[:4].tobytes()


def are_same(first: Request, second: Request) -> bool:
    """Whether two requests give the same results: all but the number of the generation, which only errors name."""
    settings = [(r.episodes, r.training, r.first_pair, r.normalizer.clip, r.calls) for r in (first, second)]
    if settings[0] != settings[1] or not _equal(first.eval_seeds, second.eval_seeds) or not _equal(first.jobs, second.jobs):
        return False
    a, b = first.normalizer, second.normalizer
    if not _same_draws(first.perturbations, second.perturbations) or not _equal(first.theta, second.theta):
        return False
    return _equal(a.mean, b.mean) and _equal(a.std, b.std)


def _same_draws(first: Perturbations | None, second: Perturbations | None) -> bool:
    if first is None or second is None:
        return first is second
    if first.sigma != second.sigma or not _equal(first.noise_index, second.noise_index):
        return False
    windows = [None if each.windows is None else each.windows.first for each in (first, second)]
    pairs = [(first.env_seed, second.env_seed), (first.action_key, second.action_key), (first.sigma_each, second.sigma_each)]
    return _equal(*windows) and all(_equal(*pair) for pair in pairs)


def _equal(first: npt.NDArray[np.generic] | None, second: npt.NDArray[np.generic] | None) -> bool:
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and first.tobytes() == second.tobytes()
