"""A node of the cluster as the driver sees it: its actor, what it holds, and what it was given."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import cloudpickle

from fastes.pools.cluster.messages import CachedState, Draws, FullState, Int64, Range, RequestMessage, Step, Theta, Work, pack
from fastes.pools.cluster.replica import Strategy, key_of, key_of_theta
from fastes.pools.cluster.schedule import InFlight, Load
from fastes.pools.cluster.tickets import OpenTicket

_GRACE = 0.5  # seconds that any job may be late
_SLOW = 1.5  # and so many times the time that others took
_REMEMBERED = 32  # ranges by which a node's pace is known
_MOST_FAILURES = 3  # states that a node may come to and the driver did not: from then on it is sent theta itself


class Parameters:
    """A request's theta, in the ways in which it can be sent.

    Attributes:
        key: The key of the strategy's state, or of theta alone if there is no strategy.
        before: The key of the previous state.
    """

    def __init__(self, open_: OpenTicket, scalars: bool, before: bytes | None) -> None:
        request = open_.request
        self.theta = request.theta
        self.strategy: Strategy | None = request.strategy if scalars and open_.is_candidates else None
        self.looks_up = scalars
        self.theta_key = key_of_theta(self.theta) if scalars else b""
        self.key = key_of(self.strategy, request.training) if self.strategy is not None else self.theta_key
        self.before = before

    def plain(self, sigma_each: Any) -> Theta:
        return Theta(self.theta, sigma_each)


class Assignment(NamedTuple):
    """A range of jobs that a node has.

    Attributes:
        owner: The request.
        jobs: Their numbers, int64 (n,).
        since: The time at which the node got it.
        late: See InFlight.
        rounds: Turns that the node's workers need for it and for what they had before.
    """

    owner: OpenTicket
    jobs: Int64
    since: float
    late: float
    rounds: int


class Member:
    """A node. It is 'joining', then 'ready', or 'refused' for a reason.

    node_id: Ray's. name: as messages have it. workers: processes. actor: a Node. held: states that it holds at a time.
    """

    def __init__(self, node_id: str, name: str, workers: int, actor: Any, held: int) -> None:
        self.node_id, self.name, self.workers, self.actor = node_id, name, workers, actor
        self.state, self.reason, self.max_ranges = "joining", "", 0
        self.calls: set[Any] = set()  # answers to come: to `join`, then to each `work`
        self.ranges: dict[int, Assignment] = {}  # by number
        self._paces = {kind: deque[float](maxlen=_REMEMBERED) for kind in (True, False)}  # of candidates, and of evaluations
        self.failures = 0  # states that it came to and the driver did not
        self._most_held = held
        self._held: OrderedDict[bytes, bytes] = OrderedDict()  # key of a state -> of its theta
        self._dropped: list[bytes] = []
        self._sent = 0  # messages
        self._told: frozenset[int] = frozenset()  # tickets that were open at the last one
        self._knows: dict[int, int] = {}  # tickets of the requests that it knows -> the first range that came with each

    def load(self) -> Load:
        return Load(self.workers, len(self.ranges), sum(len(given.jobs) for given in self.ranges.values()), self.max_ranges)

    def pace(self, of_candidates: bool) -> float | None:
        """Seconds that it took at most for a round of its workers, of late; None where it has played none."""
        return max(self._paces[of_candidates], default=None)

    def is_late(self, now: float) -> bool:
        """Whether it owes something that others would have played: it is slow, or cut off."""
        return any(given.late < now for given in self.ranges.values())

    def plays_what_is_over(self, tickets: Set[int]) -> bool:
        """Whether it still plays for a request that is not among these, and believes that the driver waits for it."""
        return any(given.owner.number in self._told - tickets for given in self.ranges.values())

    def give(self, numbers: Sequence[int], parts: list[Int64], open_: OpenTicket, pace: float | None) -> None:
        """Note ranges that it has from now on. pace: of other nodes."""
        now, jobs_there = time.monotonic(), self.load().jobs
        for number, jobs in zip(numbers, parts, strict=True):
            jobs_there += len(jobs)
            rounds = -(-jobs_there // self.workers)
            late = math.inf if pace is None else now + _GRACE + _SLOW * pace * rounds
            self.ranges[number] = Assignment(open_, jobs, now, late, rounds)
            open_.schedule.give(number, InFlight(self.node_id, jobs, late))

    def message(self, ranges: list[Range], asked: list[tuple[OpenTicket, Parameters]], tickets: tuple[int, ...]) -> bytes:
        """A Work of ranges, with the messages of their requests that the node does not know yet."""
        own = []
        self._knows = {ticket: first for ticket, first in self._knows.items() if ticket in tickets}
        for open_, parameters in asked:
            if open_.number not in self._knows:
                self._knows[open_.number] = min(each.number for each in ranges if each.ticket == open_.number)
                own.append(request_message(open_, self._sent_as(parameters, open_)))
        dropped, self._dropped = tuple(key for key in self._dropped if key not in self._held), []
        number, self._sent, self._told = self._sent, self._sent + 1, frozenset(tickets)
        return pack(Work(number, tickets, dropped, tuple(own), tuple(ranges)))

    def _sent_as(self, parameters: Parameters, open_: OpenTicket) -> Theta | CachedState | Step | FullState:
        """The shortest way to a theta that this node can follow."""
        perturbations = open_.request.perturbations
        each = None if perturbations is None else perturbations.sigma_each
        strategy, key = parameters.strategy, parameters.key
        if strategy is None or self.failures >= _MOST_FAILURES:
            held = parameters.looks_up and not open_.is_candidates and key in self._held.values()
            return CachedState(key) if held else parameters.plain(each)
        if key in self._held:
            self._held.move_to_end(key)
            return CachedState(key)
        last, before = strategy.last_tell, parameters.before
        follows = before is not None and before in self._held
        if before is not None and follows:
            self._held.move_to_end(before)
        self._hold(key, parameters.theta_key)
        if last is not None and before is not None and follows:
            return Step(before, last.progress_remaining, last.drawn_as, last.fitness, key)
        return FullState(cloudpickle.dumps(strategy), key)

    def _hold(self, key: bytes, theta_key: bytes) -> None:
        self._held[key] = theta_key
        while len(self._held) > self._most_held:
            self._dropped.append(self._held.popitem(last=False)[0])

    def answered(self, number: int) -> OpenTicket | None:
        """A range is no longer out there; the request that it is of."""
        given = self.ranges.pop(number, None)
        if given is None:
            return None
        self._paces[given.owner.is_candidates].append((time.monotonic() - given.since) / given.rounds)
        return given.owner

    def distrust(self, ticket: int, number: int) -> bool:
        """It does not have what it was believed to hold when it got a range: it gets a whole state with the next one.

        Whether that is news: each of the ranges that it had of a request says so.
        """
        is_news = self._knows.get(ticket, math.inf) <= number
        if is_news:
            self._dropped += self._held
            self._held.clear()
            del self._knows[ticket]
        return is_news


def request_message(open_: OpenTicket, parameters: Theta | CachedState | Step | FullState) -> RequestMessage:
    """Make a request's message for one node, with the parameters in the shortest form for that node."""
    request, perturbations = open_.request, open_.request.perturbations
    draws = None
    if perturbations is not None:
        window = 0 if perturbations.windows is None else perturbations.windows.size
        progress = 1.0 if request.strategy is None else request.strategy.progress_remaining
        numbers = perturbations.table.seed, perturbations.drawn_as, perturbations.num_pairs
        draws = Draws(*numbers, perturbations.sigma, window, progress)
    generation = request.generation if perturbations is None else perturbations.generation
    return RequestMessage(
        open_.number,
        generation,
        parameters,
        draws,
        request.eval_seeds,
        request.normalizer,
        request.episodes,
        request.training,
        open_.sends_rows,
        request.calls,
    )
