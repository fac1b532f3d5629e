"""Which nodes of a cluster play for this driver: they join, are refused for a reason, and are lost."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cloudpickle

from fastes.envs.worker_registry import own_registrations
from fastes.errors import ClusterError, level_outside
from fastes.pools.cluster.connection import Connection
from fastes.pools.cluster.member import Member
from fastes.pools.cluster.messages import Joined
from fastes.pools.cluster.node import Node
from fastes.pools.cluster.node_report import wanted_versions
from fastes.pools.processes.process_pool import spare_workers
from fastes.pools.unsendable import cannot_be_sent
from fastes.rollout.job import PoolSpec

LOG = logging.getLogger("fastes.cluster")
WAIT_FOR_NODES = 600.0  # seconds without a node, after which a training ends
_SAY_AFTER = 10.0  # and after which that is told
_LOOK = 1.0  # seconds between looks for nodes that are new or gone
_THREADS = 4  # of an actor: one waits for what it has to say while others take in work, and sum
_STARTS = 3  # of an actor on one node
_HELD = 8  # states that a node holds for each training: of trials side by side, and of thetas that are evaluated
_FAREWELL = 5.0  # seconds for nodes to close their environments


class ClusterLost(ClusterError):
    """The connection to the cluster is gone; the next use makes a new one."""


class Membership:
    """The nodes of a cluster, each with one actor that has all its cores.

    on_lost: called with a node's id when it is gone.
    """

    def __init__(self, spec: PoolSpec, cluster: str, on_lost: Callable[[Member], None]) -> None:
        self.cluster, self._on_lost = cluster, on_lost
        try:
            self._content = cloudpickle.dumps(spec)
        except Exception as error:
            raise cannot_be_sent(spec.source, error) from error
        self._spec, self._numbers = spec, 1  # numbers of environments that were given to nodes; the driver's own has 0
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
        """Without any node, patience begins now."""
        self._alone_since, self._has_told = time.monotonic(), False

    def ready(self) -> list[Member]:
        return [member for member in self._members.values() if member.state == "ready"]

    def find(self, node_id: object) -> Member | None:
        return self._members.get(str(node_id))

    def awaited(self) -> dict[Any, Member]:
        """Pending calls of `join` or `work`, and the member that each will answer."""
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
        """Ray's answer."""
        try:
            return ask()
        except (self.ray.exceptions.RayError, ConnectionError) as error:
            raise ClusterLost(
                f"the connection to the cluster {self.cluster!r} is lost ({error}). What was learned before this generation "
                "stays: save it, and go on from there"
            ) from error

    def called(self, member: Member, call: Callable[[], Any]) -> Any | None:
        """Call a member's actor; returns the pending answer, or None if the actor is dead. The member is lost in that case."""

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
        """An actor on a node, which begins to build what it needs."""
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
        """Take a node in that has answered, or refuse it."""
        if joined.refusal:
            self._refuse(member, joined.refusal)
            return
        member.state, member.max_ranges = "ready", joined.max_ranges
        self._has_played = True
        LOG.info("%s has joined, with %d workers", member.name, member.workers)

    def _refuse(self, member: Member, reason: str) -> None:
        """Stop using a node. Raises ClusterError if no other node is left, and none has ever played."""
        member.state, member.reason = "refused", reason
        member.calls.clear()
        self._asked(partial(self.ray.kill, member.actor))
        warnings.warn(f"{member.name} is not used: {reason}", RuntimeWarning, stacklevel=level_outside())
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
            member.calls.clear()  # else the next of them that fails would have it forgotten, and its actor made anew
            self._members[member.node_id] = member
        said = f"{member.name} is lost; others play its jobs, results do not change"
        warnings.warn(said, RuntimeWarning, stacklevel=level_outside())
        LOG.info("%s: %s", said, reason)

    def _wait_without_nodes(self, seconds: float) -> None:
        """Say once that there is no node, and give up when that lasts."""
        if seconds >= _SAY_AFTER and not self._has_told:
            self._has_told = True
            lines = [f"waiting for a node of the cluster {self.cluster!r}, for {WAIT_FOR_NODES:.0f} s at most"]
            for member in self._members.values():
                lines.append(f"{member.name} {member.reason or 'has not joined (are its CPUs in use?)'}")
            warnings.warn("\n".join(lines), RuntimeWarning, stacklevel=level_outside())
        if seconds >= WAIT_FOR_NODES:
            raise ClusterError(
                f"{self._no_node()}, for {seconds:.0f} seconds now. What was learned before this generation stays: save it, "
                "and go on from there"
            )

    def _no_node(self) -> str:
        reasons = [f"{member.name}: {member.reason}" for member in self._members.values() if member.reason]
        return "\n".join([f"no node of the cluster {self.cluster!r} can be used", *reasons])

    def close(self) -> None:
        """End what runs on the nodes, and hang up."""
        members, self._members = list(self._members.values()), {}
        if not self.ray.is_initialized():
            return
        with contextlib.suppress(Exception):  # the cluster may be gone: nothing is left to end then
            leaving = [member.actor.leave.remote() for member in members if member.state == "ready"]
            if leaving:
                self.ray.wait(leaving, num_returns=len(leaving), timeout=_FAREWELL)
            for member in members:
                self.ray.kill(member.actor)
        with contextlib.suppress(Exception):
            self._connection.close()
