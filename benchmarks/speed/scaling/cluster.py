"""A simulated cluster: one driver, nodes with a worker a core, ranges of jobs that are handed out while the generation runs."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_SHARE_AT_ONCE = 0.8


class Wire(NamedTuple):
    """What messages cost.

    latency: seconds from one machine to another. message_seconds: of the driver's CPU for each message that it sends or gets;
    a call of an actor with its answer is two.
    bytes_per_second: of the driver's network. header: bytes of a message without content.
    episode_down, episode_up: bytes of an episode to each node (return, length) and from its node (job, return, length).
    """

    latency: float = 0.5e-3
    message_seconds: float = 0.1e-3
    bytes_per_second: float = 1.25e9
    header: int = 200
    episode_down: int = 16
    episode_up: int = 24


class Nodes(NamedTuple):
    """workers: of all nodes; the last node may have fewer than per_node.

    update_seconds: of a node from the returns of a generation to its new theta. moment_bytes: of what a node has counted of
    observations in a generation, sent once.
    """

    workers: int
    per_node: int
    update_seconds: float
    moment_bytes: int

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
    def __init__(self, workers: int) -> None:
        self.idle, self.running = workers, 0
        self.unclaimed: deque[float] = deque()
        self.finished = 0  # episodes that the driver does not know of
        self.asking, self.told_all, self.has_sent_all = False, False, False


class ClusterGeneration:
    """One generation. A node with an idle worker asks for a range, and tells which episodes it has finished.

    So a range costs two messages, as it does on a cluster: a call of the node brings it, and the call's answer has results.
    There, what a node has observed is asked for by one call more, when all is played; here it comes with its last results.
    Where nobody falls, that call would cost 0.7 points of efficiency on 1,440 workers, and 5 on 5,000.

    ahead: jobs that nobody plays below which it asks already, so that short jobs need not wait for messages. The driver
    handles one message after the other, in the order in which they come.
    """

    def __init__(self, jobs: list[float], nodes: Nodes, wire: Wire) -> None:
        self.jobs, self.nodes, self.wire = deque(jobs), nodes, wire
        self.members = [_Node(workers) for workers in nodes.sizes()]
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = self.messages = self.bytes_down = self.bytes_up = 0
        self.driver_free_at, self.population = 0.0, len(jobs)
        mean = sum(jobs) / len(jobs)
        self.ahead = int(nodes.per_node * 2 * (wire.latency + wire.message_seconds) / mean)

    def run(self) -> Spent:
        for node in self.members:
            size = self.population * self.wire.episode_down
            self._send_down(0.0, node, self._take_range(node), size, self.nodes.update_seconds)
        now = 0.0
        while self.events:
            now, _, event = heapq.heappop(self.events)
            event(now)
        assert all(node.has_sent_all for node in self.members)
        return Spent(max(now, self.driver_free_at), self.bytes_down, self.bytes_up, self.messages)

    def _at(self, moment: float, event: Callable[[float], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (moment, self.order, event))

    def _take_range(self, node: _Node) -> list[float]:
        """Most of a fair share of what is left, but the last job of each worker goes to who is idle: none waits in a queue."""
        ahead = (len(self.jobs) - self.nodes.workers) * (node.idle + node.running) / self.nodes.workers
        size = max(1, node.idle, math.ceil(_SHARE_AT_ONCE * ahead))
        return [self.jobs.popleft() for _ in range(min(size, len(self.jobs)))]

    def _handle(self, now: float, size: int) -> float:
        """The driver sends or gets a message of so many bytes. When it is done with it."""
        self.messages += 1
        begin = max(now, self.driver_free_at)
        self.driver_free_at = begin + self.wire.message_seconds + size / self.wire.bytes_per_second
        return self.driver_free_at

    def _send_down(self, now: float, node: _Node, jobs: list[float], content: int, update_seconds: float) -> None:
        size = self.wire.header + content
        self.bytes_down += size
        done = self._handle(now, size)
        self._at(done + self.wire.latency + update_seconds, lambda at: self._get_range(at, node, jobs))

    def _get_range(self, now: float, node: _Node, jobs: list[float]) -> None:
        node.asking, node.told_all = False, not jobs
        node.unclaimed.extend(jobs)
        self._go_on(now, node)

    def _go_on(self, now: float, node: _Node) -> None:
        while node.idle and node.unclaimed:
            node.idle, node.running = node.idle - 1, node.running + 1
            self._at(now + node.unclaimed.popleft(), lambda at: self._end_job(at, node))
        if not node.told_all and not node.asking and (node.idle or len(node.unclaimed) < self.ahead):
            node.asking = True
            self._send_up(now, node, 0, lambda at: self._send_down(at, node, self._take_range(node), 0, 0.0))
        if node.told_all and not node.running and not node.has_sent_all:
            node.has_sent_all = True
            self._send_up(now, node, self.nodes.moment_bytes, lambda at: None)  # noqa: ARG005

    def _send_up(self, now: float, node: _Node, content: int, then: Callable[[float], None]) -> None:
        size = self.wire.header + node.finished * self.wire.episode_up + content
        node.finished = 0
        self.bytes_up += size
        self._at(now + self.wire.latency, lambda at: self._at(self._handle(at, size), then))

    def _end_job(self, now: float, node: _Node) -> None:
        node.idle, node.running, node.finished = node.idle + 1, node.running - 1, node.finished + 1
        self._go_on(now, node)


def alone(jobs: list[float], update_seconds: float) -> float:
    """Seconds of a generation on one worker of one machine, without a wire."""
    return sum(jobs) + update_seconds
