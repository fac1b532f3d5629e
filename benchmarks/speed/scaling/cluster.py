"""A simulated cluster: one driver that hands out ranges of jobs by the program's own rule, and nodes with a worker a core."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fastes.pools.cluster.schedule import Load, sizes


class Wire(NamedTuple):
    """What messages cost.

    latency: seconds from one machine to another. message_seconds: of the driver's CPU for each message that it sends or gets;
    a call of an actor with its answer is two. bytes_per_second: of the driver's network. All three are assumed; a call of a
    Ray actor on one machine takes 0.17 ms where 100 are under way (benchmarks.speed.cluster).
    header: bytes of a message without content. episode_down, episode_up: bytes of an episode to each node (its part of the
    fitness), and from its node (return, length, success, cut). A test compares all three with packed messages.
    """

    latency: float = 0.5e-3
    message_seconds: float = 0.1e-3
    bytes_per_second: float = 1.25e9
    header: int = 220
    episode_down: int = 8
    episode_up: int = 24


class Nodes(NamedTuple):
    """workers: of all nodes; the last node may have fewer than per_node.

    update_seconds: of a node from the returns of a generation to its new theta.
    terms_bytes: of what a node is told of a generation beside the fitness, most of it the normaliser.
    moment_bytes: of what a node has counted of observations in a generation, which it is asked for once.
    places: ranges that a node takes at a time, as its memory goes (fastes.pools.cluster.node.places_for).
    """

    workers: int
    per_node: int
    update_seconds: float
    terms_bytes: int
    moment_bytes: int
    places: int = 18

    def sizes(self) -> list[int]:
        """Workers of each node."""
        whole, rest = divmod(self.workers, self.per_node)
        return [self.per_node] * whole + [rest] * (rest > 0)


class Spent(NamedTuple):
    """What a generation took. seconds: from the driver's sending the last one's returns to its having those of this one."""

    seconds: float
    bytes_down: int
    bytes_up: int
    messages: int


class _Node:
    """workers, idle: processes. places: see Nodes. out: jobs of each range that the driver believes to be there.

    unclaimed: (range, seconds). left: jobs of a range that have not ended. finished: ranges that the driver has not been told
    of. calls: that the driver waits for. is_waiting: whether the newest of them is here and has no answer.
    """

    def __init__(self, workers: int, places: int) -> None:
        self.workers = self.idle = workers
        self.places = places
        self.out: dict[int, int] = {}
        self.unclaimed: deque[tuple[int, float]] = deque()
        self.left: dict[int, int] = {}
        self.finished: list[int] = []
        self.calls, self.is_waiting, self.has_terms, self.played = 0, False, False, 0

    @property
    def load(self) -> Load:
        return Load(self.workers, len(self.out), sum(self.out.values()), self.places)


_Jobs = dict[int, list[float]]  # range -> seconds of its jobs


class ClusterGeneration:
    """One generation, as fastes.pools.cluster plays it.

    A call of a node brings it ranges; it is answered when one of its ranges has ended, or when the next call comes. When all
    jobs have ended, each node is asked for what it has observed. The driver does one thing at a time: it takes in all answers
    that have come, and hands out.
    """

    def __init__(self, jobs: list[float], nodes: Nodes, wire: Wire) -> None:
        self.jobs, self.nodes, self.wire = deque(jobs), nodes, wire
        self.members = [_Node(workers, nodes.places) for workers in nodes.sizes()]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = self.messages = self.bytes_down = self.bytes_up = self.ranges = 0
        self.inbox: list[tuple[_Node, list[int], int]] = []  # ranges that ended, and bytes
        self.population, self.unfinished, self.unsummed = len(jobs), len(jobs), 0
        self.is_busy, self.has_asked, self.free_at = True, False, 0.0

    def run(self) -> Spent:
        self._hand_out()
        now = 0.0
        while self.events:
            now, _, event = heapq.heappop(self.events)
            event(now)
        assert not self.unfinished, "jobs are left"
        assert self.has_asked, "nobody was asked for moments"
        return Spent(self.free_at, self.bytes_down, self.bytes_up, self.messages)

    def _at(self, moment: float, event: Callable[[float], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (moment, self.order, event))

    # --- the driver -------------------------------------------------------------------------------------------------

    def _spend(self, size: int) -> float:
        """The driver sends or gets a message of so many bytes. When it is done with it."""
        self.messages += 1
        self.free_at += self.wire.message_seconds + size / self.wire.bytes_per_second
        return self.free_at

    def _come(self, now: float, node: _Node, ended: list[int], size: int) -> None:
        self.inbox.append((node, ended, size))
        if not self.is_busy:
            self._take_in(now)

    def _take_in(self, now: float) -> None:
        """All answers that have come; then whoever can take jobs gets some."""
        self.is_busy, self.free_at = True, max(self.free_at, now)
        answers, self.inbox = self.inbox, []
        for node, ended, size in answers:
            self._spend(size)
            node.calls -= 1
            for number in ended:
                self.unfinished -= node.out.pop(number)
        self._at(self.free_at, lambda _: self._hand_out())

    def _hand_out(self) -> None:
        """Each node gets one message at most."""
        given: dict[int, _Jobs] = {at: {} for at in range(len(self.members))}
        was_given = True
        while was_given and self.jobs:
            was_given = False
            for at, node in enumerate(self.members):
                for count in sizes(len(self.jobs), node.load, self.nodes.workers):
                    self.ranges, was_given = self.ranges + 1, True
                    given[at][self.ranges] = [self.jobs.popleft() for _ in range(count)]
                    node.out[self.ranges] = count
        for at, node in enumerate(self.members):
            if given[at] or (node.out and not node.calls):
                self._send(node, given[at])
        if not self.unfinished and not self.has_asked:
            self._ask_for_moments()
        self._at(self.free_at, self._rest)

    def _rest(self, now: float) -> None:
        self.is_busy = False
        if self.inbox:
            self._take_in(now)

    def _send(self, node: _Node, ranges: _Jobs) -> None:
        content, delay = 0, 0.0
        if not node.has_terms:
            node.has_terms, delay = True, self.nodes.update_seconds
            content = self.population * self.wire.episode_down + self.nodes.terms_bytes
        self.bytes_down += self.wire.header + content
        node.calls += 1
        done = self._spend(self.wire.header + content)
        self._at(done + self.wire.latency, lambda at: self._get(at, node, ranges, delay))

    def _ask_for_moments(self) -> None:
        self.has_asked = True
        for node in self.members:
            if node.played:
                self.unsummed += 1
                self.bytes_down += self.wire.header
                done = self._spend(self.wire.header)
                size = self.wire.header + self.nodes.moment_bytes
                self.bytes_up += size
                self._at(done + 2 * self.wire.latency, lambda at, size=size: self._get_moments(at, size))  # type: ignore[misc]

    def _get_moments(self, now: float, size: int) -> None:
        self.free_at = max(self.free_at, now)
        self._spend(size)

    # --- a node -----------------------------------------------------------------------------------------------------

    def _get(self, now: float, node: _Node, ranges: _Jobs, delay: float) -> None:
        if node.is_waiting:
            self._answer(now, node)  # a newer call has come
        node.is_waiting = True
        for number, jobs in ranges.items():
            node.left[number] = len(jobs)
        if delay:
            self._at(now + delay, lambda at: self._begin(at, node, ranges))
        else:
            self._begin(now, node, ranges)

    def _begin(self, now: float, node: _Node, ranges: _Jobs) -> None:
        node.unclaimed.extend((number, seconds) for number, jobs in ranges.items() for seconds in jobs)
        self._go_on(now, node)

    def _go_on(self, now: float, node: _Node) -> None:
        while node.idle and node.unclaimed:
            number, seconds = node.unclaimed.popleft()
            node.idle -= 1
            self._at(now + seconds, lambda at, number=number: self._end_job(at, node, number))  # type: ignore[misc]
        if node.finished and node.is_waiting:
            self._answer(now, node)

    def _end_job(self, now: float, node: _Node, number: int) -> None:
        node.idle, node.left[number], node.played = node.idle + 1, node.left[number] - 1, node.played + 1
        if not node.left[number]:
            node.finished.append(number)
        self._go_on(now, node)

    def _answer(self, now: float, node: _Node) -> None:
        ended, node.finished, node.is_waiting = node.finished, [], False
        size = self.wire.header + self.wire.episode_up * sum(node.out[number] for number in ended)
        self.bytes_up += size
        self._at(now + self.wire.latency, lambda at: self._come(at, node, ended, size))


def alone(jobs: list[float], update_seconds: float) -> float:
    """Seconds of a generation on one worker of one machine, without a wire."""
    return sum(jobs) + update_seconds
