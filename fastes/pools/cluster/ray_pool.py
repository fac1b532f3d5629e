"""The pool of a Ray cluster: it hands out jobs to nodes and gathers their results, while nodes may come and go."""

from __future__ import annotations

import logging
import pickle
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterable, Set
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fastes.errors import ClusterError, FastESError, warn_user
from fastes.es.noise_table import NoiseTable
from fastes.number_array import Int64
from fastes.pools.cluster.members import LOG, ClusterLost, Member, Membership, Parameters
from fastes.pools.cluster.messages import Failed, Played, Range, Reply, StateMismatch, runs_of, unpack
from fastes.pools.cluster.schedule import Load, OpenTicket, sizes
from fastes.pools.pool import NoiseTables, Pool, close_at_exit
from fastes.rollout.batch import Batch, StepsPlayed
from fastes.rollout.job import PoolSpec, Request
from fastes.system.forks import never_finalise, register_for_forks
from fastes.system.interrupts import interrupts_deferred
from fastes.system.limits import check_memory, in_bytes

_TICK = 0.25  # seconds between looks for jobs that are late
_LARGE = 1 << 16  # bytes from which on a message is sent through Ray's store
_ENOUGH = 1 << 14  # bytes of theta up to which it is sent, and nodes take no steps
_SUM_SECONDS, _SUM_SECONDS_A_VALUE = 5.0, 1e-6  # for a node to sum moments: many times the time that it needs
_KEYS = 4096  # of states that were submitted


class _Asked(NamedTuple):
    """A sum that a node was asked for. late: the time at which it is given up."""

    owner: OpenTicket
    member: Member
    late: float


class _Order(NamedTuple):
    """A range to send to a node, and its request."""

    range: Range
    owner: OpenTicket


class RayPool(Pool):
    """Plays requests on the nodes of a Ray cluster, which may come and go: other nodes play the jobs of a lost one.

    Args:
        cluster: 'auto', 'host:port' or 'ray://host:port'.

    Attributes:
        nodes: The nodes; None while the pool is closed.
        open_tickets: Ticket -> a request that was submitted and not yet collected.
    """

    is_remote = True

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.nodes: Membership | None = None
        self.open_tickets: dict[int, OpenTicket] = {}
        self._parameters: dict[int, Parameters] = {}
        self._keys: dict[tuple[int, int, int], bytes] = {}  # training, seed, generation -> key of a state that was submitted
        self._sums: dict[Any, _Asked] = {}
        self._last_ticket = self._last_range = 0
        self._tables: NoiseTables | None = None
        self._played = StepsPlayed()
        self._is_copy = False
        register_for_forks(self)
        close_at_exit(self)

    @property
    def n_workers(self) -> int:
        return sum(member.workers for member in self.nodes.ready()) if self.nodes is not None else 0

    @property
    def in_words(self) -> str:
        return f"Ray cluster {self.cluster}"

    @property
    def is_open(self) -> bool:
        return self.nodes is not None

    def open(self, spec: PoolSpec) -> None:
        """Connect, and let nodes begin to build their environments.

        Raises:
            OSError: If this machine has too little memory for the noise table.
            ClusterError: If no cluster answers.
        """
        if self._is_copy:
            raise ClusterError("a forked copy of a process cannot use its parent's cluster: make the model in the copy")
        tables = Counter(size for size, _ in spec.tables)
        asked = {f"the driver's noise table of {size:,} values": 4 * size * count for size, count in tables.items()}
        check_memory(asked, "use a smaller noise_table_size")
        self.spec, self._played = spec, StepsPlayed()
        self._tables = NoiseTables(spec, [np.empty(size, dtype=np.float32) for size, _ in spec.tables])
        self._keys.clear()  # new nodes hold no state
        self.nodes = Membership(spec, self.cluster, self._lose)

    @property
    def _connected(self) -> Membership:
        if self.nodes is None:
            raise ClusterError("this pool is closed: open it before it is used")
        return self.nodes

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        """Place a training's noise table in the driver's memory, where its updates need it."""
        if self._tables is None:
            raise ClusterError("this pool is closed: open it before it is used")
        self._tables.place(table, training)

    # --- requests ---------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> int:
        """Store a request until `wait` hands it out: candidates may precede noise-free episodes that were submitted earlier."""
        self._last_ticket += 1
        open_ = OpenTicket(self._last_ticket, request, self.spec)
        scalars, before, strategy = self.follows(request), None, request.strategy
        if scalars and strategy is not None and strategy.last_tell is not None:
            before = self._keys.get((request.training, strategy.seed, strategy.generation - 1))
        self._parameters[open_.number] = parameters = Parameters(open_, scalars, before)
        if parameters.strategy is not None and request.perturbations is not None:
            followed = parameters.strategy
            self._keys[request.training, followed.seed, followed.generation] = parameters.key
            while len(self._keys) > _KEYS:
                self._keys.pop(next(iter(self._keys)))
        self.open_tickets[open_.number] = open_
        return open_.number

    def follows(self, request: Request) -> bool:
        """Return whether nodes take the steps themselves: if the fitness of all candidates is smaller than theta."""
        each = None if request.perturbations is None else request.perturbations.sigma_each
        theta = request.theta.nbytes + (0 if each is None else each.nbytes)
        return theta > max(_ENOUGH, 16 * self.spec.trainings[request.training].num_pairs)

    def tickets(self) -> Set[int]:
        return self.open_tickets.keys()

    def training_of(self, ticket: int) -> int:
        return self.open_tickets[ticket].request.training

    def is_finished(self, ticket: int) -> bool:
        return self.open_tickets[ticket].is_finished

    def wait(self, tickets: Collection[int]) -> None:
        """Return once one of these requests is finished.

        Raises:
            ClusterError: If no node can be used, or all were lost and none has come for long.
        """
        nodes = self._connected
        nodes.begin_waiting()
        try:
            while not any(self.is_finished(ticket) for ticket in tickets):
                self.turn(nodes)
        except ClusterLost:
            self.close()
            raise
        except BaseException:
            self.forget()
            raise

    def collect(self, ticket: int) -> Batch:
        open_ = self.open_tickets.pop(ticket)
        self._parameters.pop(ticket)
        if open_.error is not None:
            raise open_.error
        self._log_traffic(open_)
        return open_.batch()

    def _log_traffic(self, open_: OpenTicket) -> None:
        perturbations, nodes = open_.request.perturbations, self.nodes
        if perturbations is None or nodes is None or not LOG.isEnabledFor(logging.INFO):
            return
        sizes_ = open_.down, open_.up, open_.request.theta.nbytes, 8 * len(open_.schedule.jobs)
        down, up, theta, fitness = map(in_bytes, sizes_)
        said = "generation %d: %s down, %s up, %d nodes (theta is %s for each, the fitness that its step is made of %s)"
        LOG.info(said, perturbations.generation + 1, down, up, len(nodes.ready()), theta, fitness)

    def forget(self) -> None:
        """Drop all requests; results that nodes still send are ignored."""
        self.open_tickets.clear()
        self._parameters.clear()
        self._sums.clear()

    # --- one turn ---------------------------------------------------------------------------------------------------

    def turn(self, nodes: Membership) -> None:
        """Look for new and lost nodes, hand out jobs, and handle the answers that come within 0.25 s.

        Args:
            nodes: The pool's.

        Raises:
            ClusterError: If no node can be used, or all were lost and none has come for long.
        """
        nodes.look()
        self.hand_out(nodes)
        self._give_up_late_sums()
        refs = {**nodes.awaited(), **{ref: asked.member for ref, asked in self._sums.items()}}
        for ref in nodes.wait(list(refs), _TICK):
            if nodes.find(refs[ref].node_id) is refs[ref]:  # it was not lost by what came before
                with interrupts_deferred():  # an answer that is lost would be waited for in vain
                    self.handle(nodes, ref, refs[ref])

    def handle(self, nodes: Membership, ref: Any, member: Member) -> None:
        """Handle a node's answer.

        Args:
            nodes: The pool's.
            ref: The answer, which Ray's `get` returns at once.
            member: The node.
        """
        asked = self._sums.pop(ref, None)
        member.calls.discard(ref)
        try:
            content = nodes.ray.get(ref)
        except Exception as error:
            nodes.lose(member, str(error))
            return
        if asked is not None:
            asked.owner.up += len(content)
            asked.owner.add_sums(member.node_id, unpack(content))
        elif member.state == "joining":
            nodes.welcome(member, unpack(content))
        else:
            self._take(nodes, member, unpack(content), len(content))

    def _take(self, nodes: Membership, member: Member, reply: Reply, size: int) -> None:
        for said in reply.warned:
            warn_user(f"{member.name}: {said}")
        for answer in reply.answers:
            owner = member.answered(answer.number)
            if owner is None or self.open_tickets.get(owner.number) is not owner:
                continue  # of a request that is over
            owner.up += size // len(reply.answers)
            if isinstance(answer, Played):
                if owner.book(answer):
                    self._count(owner, int(answer.lengths.sum()))
                self._ask_for_sums(nodes, owner)
            elif isinstance(answer, Failed):
                owner.error = owner.error or _loaded(answer.error)
            else:
                self._correct(member, owner, answer)

    def _count(self, open_: OpenTicket, steps: int) -> None:
        played = self._played
        self._played = played.plus(candidates=steps) if open_.is_candidates else played.plus(evaluations=steps)

    def steps_played(self) -> StepsPlayed:
        """Return the steps of episodes that nodes have reported, without running ones."""
        return self._played

    def _correct(self, member: Member, open_: OpenTicket, answer: StateMismatch) -> None:
        """Hand a range out again, with a whole state: the node's state is not the driver's."""
        open_.schedule.give_up(answer.number)
        if member.distrust(open_.number, answer.number) and answer.why:
            member.failures += 1
            said = f"{member.name}: {answer.why}; it is sent all of them, results do not change"
            warn_user(said)

    def _ask_for_sums(self, nodes: Membership, open_: OpenTicket) -> None:
        for node_id, jobs in open_.sums_to_ask_for().items():
            member = nodes.find(node_id)
            if member is not None:
                runs = runs_of(np.sort(jobs))
                open_.down += runs.nbytes
                late = time.monotonic() + _SUM_SECONDS + _SUM_SECONDS_A_VALUE * len(jobs) * open_.obs_size
                if (ref := nodes.called(member, partial(member.actor.sums.remote, open_.number, runs))) is not None:
                    self._sums[ref] = _Asked(open_, member, late)

    def _give_up_late_sums(self) -> None:
        """Let other nodes play the jobs again whose moments only a node has that was cut off."""
        now = time.monotonic()
        for ref, asked in list(self._sums.items()):
            if asked.late < now:
                del self._sums[ref]
                asked.owner.lose(asked.member.node_id)

    def _lose(self, member: Member) -> None:
        self._sums = {ref: asked for ref, asked in self._sums.items() if asked.member is not member}
        for open_ in self.open_tickets.values():
            open_.lose(member.node_id)

    # --- handing out ------------------------------------------------------------------------------------------------

    def hand_out(self, nodes: Membership) -> None:
        """Send jobs to all nodes that can take any, with at most one message to each.

        The oldest request's candidates come first and noise-free episodes last; or these first, if the spec says so.

        Args:
            nodes: The pool's.
        """
        now, ready = time.monotonic(), nodes.ready()
        members = [member for member in ready if not member.is_late(now)] or ready
        all_workers = sum(member.workers for member in members)
        open_ones = [open_ for open_ in self.open_tickets.values() if not open_.is_finished]
        open_ones.sort(key=lambda open_: (open_.is_candidates == self.spec.evaluations_first, open_.number))
        given: dict[Member, list[_Order]] = {member: [] for member in ready}
        with interrupts_deferred():  # messages are numbered: none may be missing
            was_given = True
            while was_given:
                was_given = False
                for member in members:
                    open_ = next((each for each in open_ones if each.schedule.waiting), None)
                    if open_ is not None and (counts := self._counts(open_, member.load(), all_workers)):
                        given[member] += self._give(member, open_, [open_.schedule.take(count) for count in counts])
                        was_given = True
            if not any(each.schedule.waiting for each in open_ones):
                for member in members:
                    if not member.ranges:
                        given[member] += self._help_out(member, open_ones)
            for member, orders in given.items():
                is_unheard = member.ranges and not member.calls  # a call has to wait for its answers
                if orders or is_unheard or member.plays_what_is_over(self.open_tickets.keys()):
                    self._send(nodes, member, orders)

    def _counts(self, open_: OpenTicket, load: Load, all_workers: int) -> list[int]:
        """Choose the sizes of a node's next ranges. Evaluations that precede candidates need no idle worker."""
        if counts := sizes(open_.schedule.waiting, load, all_workers):
            return counts
        goes_before = self.spec.evaluations_first and not open_.is_candidates
        return [1] if goes_before and load.ranges < load.max_ranges else []

    def _help_out(self, member: Member, open_ones: Iterable[OpenTicket]) -> list[_Order]:
        """Give a node without jobs those that other nodes take long for."""
        for open_ in open_ones:
            if late := open_.schedule.late(member.node_id, time.monotonic()):
                taken = late[: min(member.workers, member.max_ranges)]
                return self._give(member, open_, [np.array([job], dtype=np.int64) for job in taken])
        return []

    def _give(self, member: Member, open_: OpenTicket, parts: list[Int64]) -> list[_Order]:
        """Note new ranges of a node, and return what to send."""
        first, self._last_range = self._last_range + 1, self._last_range + len(parts)
        paces = [pace for each in self._connected.ready() if (pace := each.pace(open_.is_candidates)) is not None]
        numbers = range(first, first + len(parts))
        member.give(numbers, parts, open_, statistics.median_low(paces) if paces else None)
        return [_Order(Range(number, open_.number, runs_of(jobs)), open_) for number, jobs in zip(numbers, parts, strict=True)]

    def _send(self, nodes: Membership, member: Member, orders: list[_Order]) -> None:
        asked = {order.owner.number: order.owner for order in orders}.values()
        whole = [(open_, self._parameters[open_.number]) for open_ in asked]
        content = member.message([order.range for order in orders], whole, tuple(self.open_tickets))
        for open_ in asked:
            open_.down += len(content) // len(asked)

        def call() -> Any:
            return member.actor.work.remote(nodes.ray.put(content) if len(content) >= _LARGE else content)

        if (ref := nodes.called(member, call)) is not None:
            member.calls.add(ref)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the actors, and disconnect."""
        self.forget()
        nodes, self.nodes, self._tables = self.nodes, None, None
        if nodes is not None:
            nodes.close()

    def reset_after_fork(self) -> None:
        """Release the connection in a forked copy: it is the parent's."""
        never_finalise(self.nodes, self._sums, *self.open_tickets.values())  # finalisers would speak to the cluster
        self._sums, self.open_tickets, self._parameters = {}, {}, {}
        self._is_copy, self.nodes = self._is_copy or self.nodes is not None, None


def _loaded(content: bytes) -> BaseException:
    """Load an exception of a node, with its cause if that can be loaded here."""
    whole, cause = pickle.loads(content)
    try:
        error: BaseException = pickle.loads(whole)
    except Exception as failed:
        return FastESError(f"a node met an exception that cannot be loaded here ({failed})")
    try:
        error.__cause__ = pickle.loads(cause) if cause else None
    except Exception:
        error.__cause__ = None
    return error
