"""The nodes of a cluster from the driver's side: they join, get jobs, may be refused for a reason, and may be lost."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import cloudpickle

from fastes.envs.worker_imports import own_registrations
from fastes.errors import ClusterError, warn_user
from fastes.number_array import Int64
from fastes.pools.cluster.connection import Connection
from fastes.pools.cluster.messages import (
    CachedState,
    Draws,
    FullState,
    Joined,
    Range,
    RequestMessage,
    Step,
    Theta,
    Work,
    pack,
)
from fastes.pools.cluster.node import Node
from fastes.pools.cluster.node_report import wanted_versions
from fastes.pools.cluster.replica import Strategy, key_of, key_of_theta
from fastes.pools.cluster.schedule import InFlight, Load, OpenTicket
from fastes.pools.processes.process_pool import spare_workers
from fastes.pools.unsendable import cannot_be_sent
from fastes.rollout.job import PoolSpec

LOG = logging.getLogger("fastes.cluster")
WAIT_FOR_NODES = 600.0  # seconds without a node, after which a training ends
SAY_AFTER = 10.0  # and after which the user is warned
_LOOK = 1.0  # seconds between looks for nodes that are new or gone
_THREADS = 4  # of an actor: one waits for answers while others receive work, and sum
_STARTS = 3  # of an actor on one node
_HELD = 8  # states that a node holds per training, also of thetas that are evaluated
_FAREWELL = 5.0  # seconds for nodes to close their environments
GRACE = 0.5  # seconds that any job may be late
_SLOW = 1.5  # times the time of other nodes
_REMEMBERED = 32  # ranges from which a node's pace is estimated
_MOST_FAILURES = 3  # states that a node computed differently, after which it is sent theta itself


class Parameters:
    """A request's theta in the forms in which it can be sent.

    Args:
        open_: The request.
        scalars: Whether nodes may take the driver's steps themselves.
        before: The key of the previous state; None if no node can have it.

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


class Assignment(NamedTuple):
    """A range of jobs that a node has.

    Attributes:
        owner: The request.
        jobs: Their numbers, int64 (n,).
        since: The time at which the node got it.
        late: See InFlight.
        rounds: Jobs that each of the node's workers has to play for it and for earlier ranges.
    """

    owner: OpenTicket
    jobs: Int64
    since: float
    late: float
    rounds: int


class Member:
    """A node.

    Args:
        node_id: Ray's name of it.
        name: Its name in messages.
        workers: Its processes.
        actor: Its Node.
        held: States that it holds at a time.

    Attributes:
        state: 'joining', then 'ready', or 'refused'.
        reason: The reason of a refusal.
        max_ranges: Ranges that it takes at a time.
        calls: Pending answers: to `join`, then to each `work`.
        ranges: Number -> a range that it has.
        failures: States that it computed differently than the driver.
    """

    def __init__(self, node_id: str, name: str, workers: int, actor: Any, held: int) -> None:
        self.node_id, self.name, self.workers, self.actor = node_id, name, workers, actor
        self.state, self.reason, self.max_ranges = "joining", "", 0
        self.calls: set[Any] = set()
        self.ranges: dict[int, Assignment] = {}
        self._paces = {kind: deque[float](maxlen=_REMEMBERED) for kind in (True, False)}  # of candidates, and of evaluations
        self.failures = 0
        self._most_held = held
        self._held: OrderedDict[bytes, bytes] = OrderedDict()  # key of a state -> of its theta
        self._dropped: list[bytes] = []
        self._sent = 0  # messages
        self._told: frozenset[int] = frozenset()  # tickets that were open at the last message
        self._knows: dict[int, int] = {}  # ticket of a request that it knows -> the first range that was sent with it

    def load(self) -> Load:
        """Return its load."""
        return Load(self.workers, len(self.ranges), sum(len(given.jobs) for given in self.ranges.values()), self.max_ranges)

    def pace(self, of_candidates: bool) -> float | None:
        """Return the most seconds that a round of its workers took of late; None if it has played none."""
        return max(self._paces[of_candidates], default=None)

    def is_late(self, now: float) -> bool:
        """Whether it owes a range that other nodes would have played by now: it is slow, or cut off."""
        return any(given.late < now for given in self.ranges.values())

    def plays_what_is_over(self, tickets: Set[int]) -> bool:
        """Whether it plays a request that is not among these, and was not yet informed that the request is over."""
        return any(given.owner.number in self._told - tickets for given in self.ranges.values())

    def give(self, numbers: Sequence[int], parts: list[Int64], open_: OpenTicket, pace: float | None) -> None:
        """Note new ranges of the node.

        Args:
            numbers: Their numbers.
            parts: The jobs of each, int64 (n,).
            open_: The request.
            pace: Seconds per round on other nodes; None if it is not known.
        """
        now, jobs_there = time.monotonic(), self.load().jobs
        for number, jobs in zip(numbers, parts, strict=True):
            jobs_there += len(jobs)
            rounds = -(-jobs_there // self.workers)
            late = math.inf if pace is None else now + GRACE + _SLOW * pace * rounds
            self.ranges[number] = Assignment(open_, jobs, now, late, rounds)
            open_.schedule.give(number, InFlight(self.node_id, jobs, late))

    def message(self, ranges: list[Range], asked: list[tuple[OpenTicket, Parameters]], tickets: tuple[int, ...]) -> bytes:
        """Pack a Work.

        Args:
            ranges: The ranges.
            asked: Their requests; those that the node does not know are sent with them.
            tickets: The driver's open requests.
        """
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
        """Return the shortest form of theta that this node can use."""
        perturbations = open_.request.perturbations
        each = None if perturbations is None else perturbations.sigma_each
        strategy, key = parameters.strategy, parameters.key
        if strategy is None or self.failures >= _MOST_FAILURES:
            held = parameters.looks_up and not open_.is_candidates and key in self._held.values()
            return CachedState(key) if held else Theta(parameters.theta, each)
        if key in self._held:
            self._held.move_to_end(key)
            return CachedState(key)
        last, before = strategy.last_tell, parameters.before
        if before is not None and before in self._held:
            self._held.move_to_end(before)
        else:
            before = None
        self._hold(key, parameters.theta_key)
        if last is not None and before is not None:
            return Step(before, last.progress_remaining, last.fitness, key)
        return FullState(cloudpickle.dumps(strategy), key)

    def _hold(self, key: bytes, theta_key: bytes) -> None:
        self._held[key] = theta_key
        while len(self._held) > self._most_held:
            self._dropped.append(self._held.popitem(last=False)[0])

    def answered(self, number: int) -> OpenTicket | None:
        """Note that a range is answered, and return its request; None for an unknown range."""
        given = self.ranges.pop(number, None)
        if given is None:
            return None
        self._paces[given.owner.is_candidates].append((time.monotonic() - given.since) / given.rounds)
        return given.owner

    def distrust(self, ticket: int, number: int) -> bool:
        """Note that the node lacks a state that the driver believed it to hold: it gets a whole one with the next range.

        Returns:
            Whether that is news: each of a request's ranges reports it.
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
        draws = Draws(perturbations.table.seed, perturbations.num_pairs, perturbations.sigma, window, progress)
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
        request.compared,
    )


class ClusterLost(ClusterError):
    """The connection to the cluster is gone; the next use makes a new one."""


class Membership:
    """The nodes of a cluster, each with one actor that has all its cores.

    Args:
        spec: The pool's.
        cluster: The address.
        on_lost: Called with a member that is gone.

    Raises:
        ClusterError: If no cluster answers.
    """

    def __init__(self, spec: PoolSpec, cluster: str, on_lost: Callable[[Member], None]) -> None:
        self.cluster, self._on_lost = cluster, on_lost
        try:
            self._content = cloudpickle.dumps(spec)
        except Exception as error:
            raise cannot_be_sent(spec.source, error) from error
        self._spec, self._numbers = spec, 1  # the next environment's number; the driver's own has 0
        self._held = _HELD * len(spec.trainings)
        self._registrations, self._versions = own_registrations(), wanted_versions(spec.source)
        self._connection = Connection(cluster)
        self.ray = self._connection.ray
        self._members: dict[str, Member] = {}
        self._starts: dict[str, int] = {}  # of an actor on a node
        self._looked = 0.0
        self._has_played = False
        self.begin_waiting()
        self.look()

    def begin_waiting(self) -> None:
        """Restart the time that may pass without a node."""
        self._alone_since, self._has_told = time.monotonic(), False

    def ready(self) -> list[Member]:
        """Return the nodes that take jobs."""
        return [member for member in self._members.values() if member.state == "ready"]

    def find(self, node_id: object) -> Member | None:
        """Return a node; None if it is gone."""
        return self._members.get(str(node_id))

    def awaited(self) -> dict[Any, Member]:
        """Return pending answer -> the member that it will come from."""
        return {ref: member for member in self._members.values() for ref in member.calls}

    def wait(self, refs: list[Any], seconds: float) -> list[Any]:
        """Return the answers that have arrived, waiting at most this many seconds for the first."""
        if not refs:
            time.sleep(seconds)
            return []
        ready, _ = self._asked(partial(self.ray.wait, refs, num_returns=1, timeout=seconds))
        if ready and len(refs) > 1:
            ready, _ = self._asked(partial(self.ray.wait, refs, num_returns=len(refs), timeout=0))
        return list(ready)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Call Ray.

        Raises:
            ClusterLost: If the connection is lost.
        """
        try:
            return ask()
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            raise ClusterLost(
                f"the connection to the cluster {self.cluster!r} is lost ({error}). The model is as it was before this "
                "generation: save it, and continue from it"
            ) from error

    def called(self, member: Member, call: Callable[[], Any]) -> Any | None:
        """Call a member's actor, and return the pending answer; None if the actor is dead, so that the member is lost."""

        def ref() -> Any | None:
            try:
                return call()
            except self.ray.exceptions.RayActorError as error:
                self.lose(member, str(error))
                return None

        return self._asked(ref)

    def look(self) -> None:
        """Notice nodes that are new or gone.

        Raises:
            ClusterError: If there has been no node for long, or no node can be used at all.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        alive = {node["NodeID"]: node for node in self._asked(self.ray.nodes) if node["Alive"]}
        for member in [member for node_id, member in self._members.items() if node_id not in alive]:
            self.lose(member, "the node is gone")
        for node_id, node in alive.items():
            if node_id not in self._members and node["Resources"].get("CPU", 0.0) >= 1.0:
                self._begin(node_id, node)
        if self.ready():
            self.begin_waiting()
        else:
            self._wait_without_nodes(now - self._alone_since)

    def _begin(self, node_id: str, node: Mapping[str, Any]) -> None:
        """Start an actor on a node, which begins to build its pool."""
        self._starts[node_id] = self._starts.get(node_id, 0) + 1
        workers, name = int(node["Resources"]["CPU"]), f"node {node['NodeManagerAddress']} ({node_id[:6]})"
        kind = self._connection.actor_on(node_id, Node, workers, _THREADS)
        actor = self._asked(partial(kind.remote, name, workers))
        self._members[node_id] = member = Member(node_id, name, workers, actor, self._held)
        first, self._numbers = self._numbers, self._numbers + workers + spare_workers(self._spec, workers)
        said = self._versions, self._content, self._registrations, first
        if (ref := self.called(member, partial(actor.join.remote, *said))) is not None:
            member.calls.add(ref)

    def welcome(self, member: Member, joined: Joined) -> None:
        """Use a node that has answered `join`, or refuse it."""
        if joined.refusal:
            self._refuse(member, joined.refusal)
            return
        member.state, member.max_ranges = "ready", joined.max_ranges
        self._has_played = True
        LOG.info("%s has joined, with %d workers", member.name, member.workers)

    def _refuse(self, member: Member, reason: str) -> None:
        """Stop using a node.

        Raises:
            ClusterError: If no other node is left, and none has ever played.
        """
        member.state, member.reason = "refused", reason
        member.calls.clear()
        self._asked(partial(self.ray.kill, member.actor))
        warn_user(f"{member.name} is not used: {reason}")
        if not self._has_played and all(each.state == "refused" for each in self._members.values()):
            raise ClusterError(self._no_node())

    def lose(self, member: Member, reason: str) -> None:
        """Handle the loss of a node or its actor. An actor that died is made again a few times."""
        if self._members.get(member.node_id) is not member:
            return
        if member.state == "joining":
            self._refuse(member, f"it was lost while it joined: {reason}")
            return
        del self._members[member.node_id]
        if member.state == "refused":
            return
        self._on_lost(member)
        if self._starts[member.node_id] >= _STARTS:
            member.state, member.reason = "refused", f"its actor was lost {_STARTS} times, at last: {reason}"
            member.calls.clear()  # or the next one that fails would start its actor again
            self._members[member.node_id] = member
        said = f"{member.name} is lost; others play its jobs, results do not change"
        warn_user(said)
        LOG.info("%s: %s", said, reason)

    def _wait_without_nodes(self, seconds: float) -> None:
        """Warn once that there is no node, and give up if that lasts."""
        if seconds >= SAY_AFTER and not self._has_told:
            self._has_told = True
            lines = [f"waiting for a node of the cluster {self.cluster!r}, for {WAIT_FOR_NODES:.0f} s at most"]
            for member in self._members.values():
                lines.append(f"{member.name} {member.reason or 'has not joined (are its CPUs in use?)'}")
            warn_user("\n".join(lines))
        if seconds >= WAIT_FOR_NODES:
            raise ClusterError(
                f"{self._no_node()}, for {seconds:.0f} seconds now. The model is as it was before this generation: save it, "
                "and continue from it"
            )

    def _no_node(self) -> str:
        reasons = [f"{member.name}: {member.reason}" for member in self._members.values() if member.reason]
        return "\n".join([f"no node of the cluster {self.cluster!r} can be used", *reasons])

    def close(self) -> None:
        """End the actors, and disconnect."""
        members, self._members = list(self._members.values()), {}
        if not self.ray.is_initialized():
            return
        with contextlib.suppress(Exception):  # the cluster may be gone
            leaving = [member.actor.leave.remote() for member in members if member.state == "ready"]
            if leaving:
                self.ray.wait(leaving, num_returns=len(leaving), timeout=_FAREWELL)
            for member in members:
                self.ray.kill(member.actor)
        with contextlib.suppress(Exception):
            self._connection.close()
