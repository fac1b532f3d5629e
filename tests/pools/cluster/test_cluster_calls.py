"""Risk: what a node has to say comes late or never, or costs messages that nobody needs; all without Ray."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from faults import SETTINGS, caught_warnings, toy
from processes import wait_until

from fastes import FastES
from fastes.errors import ClusterError
from fastes.es.noise_table import NoiseTable
from fastes.pools.cluster.members import Member, Parameters
from fastes.pools.cluster.messages import (
    Failed,
    Joined,
    Played,
    Range,
    Reply,
    StateMismatch,
    Work,
    jobs_of,
    pack,
    runs_of,
    unpack,
)
from fastes.pools.cluster.node import Node
from fastes.pools.cluster.ray_pool import RayPool
from fastes.pools.cluster.schedule import OpenTicket
from fastes.rollout.batch import Batch
from fastes.rollout.job import PoolSpec, Request

_MOMENT = 0.05  # seconds that a call gets to return although it should not
_SECONDS = 60.0  # for one that should


class ByHand:
    """A node's pool whose requests end when a test says so."""

    def __init__(self, n_workers: int, spare: int) -> None:
        self.waits = 0
        self.requests: dict[int, Request] = {}
        self._finished: set[int] = set()
        self._read, self._write = os.pipe()

    def open(self, spec: PoolSpec) -> None:
        self.spec = spec

    def wake_by(self, fd: int) -> None:
        self._bell = fd

    def place_table(self, table: NoiseTable, training: int = 0) -> None:
        """Its candidates are not played."""

    def submit(self, request: Request) -> int:
        self.requests[len(self.requests)] = request
        return len(self.requests) - 1

    def finish(self, ticket: int) -> None:
        """Called by the test; the node has taken that in when it waits again."""
        self._finished.add(ticket)
        os.write(self._write, b".")

    def wait(self, tickets: Collection[int]) -> None:
        self.waits += 1
        ready, _, _ = select.select([self._bell, self._read], [], [])
        if self._read in ready:
            os.read(self._read, 1)

    def is_finished(self, ticket: int) -> bool:
        return ticket in self._finished

    def collect(self, ticket: int) -> Batch:
        request = self.requests[ticket]
        assert request.jobs is not None
        ones = np.ones(len(request.jobs))
        moments = np.zeros((0 if request.perturbations is None else len(ones), 2, 3))
        return Batch(ones, ones.astype(np.int64), ones, 0 * ones.astype(np.int64), moments, 0.0, 0, "")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Requests:
    """Of two trainings that are alike."""

    MANY = 1200  # candidates, whose moments are not sent but summed

    def __init__(self) -> None:
        with FastES(toy(), n_workers=0, preset="default", **SETTINGS) as model:
            spec = model.evaluator.pool_spec()
            self.spec = replace(spec, trainings=2 * spec.trainings)
            self._theta, self._normalizer, self._perturbations = model.theta, model.normalizer, model.training.ask()
            self._episodes = model.training.episode_settings()

    def candidates(self, generation: int, training: int = 0) -> Request:
        perturbations = replace(self._perturbations, generation=generation)
        return Request(self._theta, self._normalizer, self._episodes[0], perturbations, training=training)

    def many_candidates(self, generation: int) -> Request:
        few, times = self._perturbations, self.MANY // len(self._perturbations)
        index, seeds, keys = (np.repeat(each, times, axis=0) for each in (few.noise_index, few.env_seed, few.action_key))
        many = replace(few, generation=generation, noise_index=index, env_seed=seeds, action_key=keys)
        return self.candidates(generation)._replace(perturbations=many)

    def evaluation(self, generation: int) -> Request:
        seeds = np.array([7], dtype=np.int64)
        return Request(self._theta, self._normalizer, self._episodes[1], eval_seeds=seeds, generation=generation)


class Called:
    """A node, the pool that it has, and what the driver knows of it."""

    def __init__(self, spec: PoolSpec) -> None:
        self.spec, self.node, self.member = spec, Node("node", 1), Member("id", "node", 1, None, 8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            joined: Joined = unpack(self.node.join({}, cloudpickle.dumps(spec), cloudpickle.dumps({})))
        assert joined.refusal == ""
        self.pool: ByHand = self.node.pool  # type: ignore[assignment]
        self._tickets: list[int] = []
        self._has_left = False

    def call(self, *requests: Request, unknown: Sequence[int] = (), over: int | None = None) -> Future[Reply]:
        """Send them, each in a range of its own, with numbers and pool's tickets from 0; what the call will give.

        unknown: ranges of requests whose terms the node does not have. over: a request that is.
        """
        asked, ranges = [], [Range(number, 99, runs_of(np.arange(2))) for number in unknown]
        for request in requests:
            number = len(self._tickets)
            self._tickets.append(number)
            open_ = OpenTicket(number, request, self.spec)
            asked.append((open_, Parameters(open_, False, None)))
            ranges.append(Range(number, number, runs_of(open_.schedule.jobs)))
        open_ones = tuple(ticket for ticket in self._tickets if ticket != over)
        content, reply = self.member.message(ranges, asked, open_ones), Future[Reply]()
        threading.Thread(target=lambda: reply.set_result(unpack(self.node.work(content))), daemon=True).start()
        return reply

    def finish(self, number: int, others_play: bool = True) -> None:
        """Let a range's jobs end; where others play, the node has decided what to do about that then."""
        wait_until(lambda: number in self.pool.requests, "the node has begun with it")
        before = self.pool.waits
        self.pool.finish(number)
        if others_play:
            wait_until(lambda: self.pool.waits > before, "the node waits again")

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self.node.leave()


def numbers(call: Future[Reply]) -> list[int]:
    """The ranges that a call's answer is about."""
    return [answer.number for answer in call.result(_SECONDS).answers]


def is_held(call: Future[Reply]) -> bool:
    return not wait([call], _MOMENT).done


@pytest.fixture(scope="module")
def requests() -> Requests:
    return Requests()


@pytest.fixture
def called(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> Iterator[Called]:
    monkeypatch.setattr("fastes.pools.cluster.node.ProcessPool", ByHand)
    made = Called(requests.spec)
    yield made
    made.leave()


# --- what a node tells, and when -------------------------------------------------------------------------------------


def test_an_evaluation_comes_with_the_next_generations_candidates(called: Called, requests: Requests) -> None:
    """Nobody can use it before."""
    call = called.call(requests.evaluation(3), requests.candidates(4))
    called.finish(0)
    assert is_held(call)
    called.finish(1, others_play=False)
    assert numbers(call) == [0, 1]


@pytest.mark.parametrize(
    ("generation", "training"),
    [(None, 0), (3, 0), (5, 0), (4, 1)],
    ids=["no candidates", "its own generation", "the one after the next", "another training"],
)
def test_where_no_such_candidates_play_an_evaluation_comes_at_once(
    generation: int | None, training: int, called: Called, requests: Requests
) -> None:
    other = requests.evaluation(4) if generation is None else requests.candidates(generation, training)
    call = called.call(requests.evaluation(3), other)
    called.finish(0)
    assert numbers(call) == [0]


def test_candidates_come_at_once(called: Called, requests: Requests) -> None:
    call = called.call(requests.candidates(4), requests.candidates(4), requests.evaluation(3))
    called.finish(1)
    assert numbers(call) == [1]


def test_what_is_held_comes_when_the_candidates_have_gone_to_a_later_generation(called: Called, requests: Requests) -> None:
    """Others have played what this node is slow with: the driver goes on, and an order of it takes along what is here."""
    first = called.call(requests.evaluation(3), requests.candidates(4))
    called.finish(0)
    assert is_held(first)
    second = called.call(requests.candidates(5))
    assert numbers(first) == [0]
    called.finish(2)
    assert numbers(second) == [2]


def test_candidates_that_others_have_played_hold_nothing_up(called: Called, requests: Requests) -> None:
    """They go on here, and the driver has told that it waits for them no longer."""
    first = called.call(requests.evaluation(3), requests.candidates(4))
    wait_until(lambda: called.pool.waits > 0, "the node plays")
    second = called.call(over=1)
    assert numbers(first) == []
    called.finish(0)
    assert numbers(second) == [0]


def test_a_newer_call_sends_an_older_one_home(called: Called, requests: Requests) -> None:
    first = called.call(requests.candidates(4))
    second = called.call(requests.evaluation(3))
    assert numbers(first) == []
    called.finish(0)
    assert numbers(second) == [0]


def test_who_asks_for_what_is_held_gets_it(called: Called, requests: Requests) -> None:
    """A message without orders."""
    first = called.call(requests.evaluation(3), requests.candidates(4))
    called.finish(0)
    assert is_held(first)
    second = called.call()
    assert numbers(first) == [0]
    assert is_held(second), "nothing is told twice"
    called.finish(1, others_play=False)
    assert numbers(second) == [1]


def test_a_range_that_cannot_be_played_is_told_at_once(called: Called, requests: Requests) -> None:
    call = called.call(requests.candidates(4), unknown=(7,))
    assert numbers(call) == [7]


def test_what_a_pool_cannot_take_is_told_at_once(called: Called, requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a worker cannot be started again: the ranges behind it, and those that played, are told, too."""
    first = called.call(requests.candidates(4))
    wait_until(lambda: called.pool.waits > 0, "the node plays")
    monkeypatch.setattr(called.pool, "submit", lambda _: (_ for _ in ()).throw(OSError("no process")))
    second = called.call(requests.candidates(4), requests.evaluation(3), unknown=(7,))

    def told(*calls: Future[Reply]) -> list[Any]:
        return [answer for call in calls if call.done() for answer in call.result().answers]

    wait_until(lambda: len(told(first, second)) == 4, "one of the calls brings all")
    answers = told(first, second)
    assert sorted(answer.number for answer in answers) == [0, 1, 2, 7]
    assert [type(answer) for answer in sorted(answers, key=lambda answer: answer.number)] == [
        Failed,
        Failed,
        Failed,
        StateMismatch,
    ]
    monkeypatch.undo()
    third = called.call(requests.candidates(5))
    wait_until(lambda: 1 in called.pool.requests, "the node has begun with it")
    called.pool.finish(1)
    wait_until(
        lambda: [answer.number for answer in told(second, third)][-1:] == [3], "either brings it, if the first has brought all"
    )


def test_who_waits_for_a_node_that_leaves_waits_no_longer(called: Called, requests: Requests) -> None:
    call = called.call(requests.candidates(4))
    wait_until(lambda: called.pool.waits > 0, "the node plays")
    called.leave()
    assert numbers(call) == []


# --- what a driver sends ---------------------------------------------------------------------------------------------


class RayError(Exception):
    """As ray.exceptions has it."""


class RayActorError(RayError):
    """The same of an actor that is dead."""


class Driver:
    """A pool of nodes, which say what a test has them say.

    alive: nodes that the cluster has. pool: the driver's. members: the nodes. works: what these were sent, and to whom.
    fails: what any call raises.
    """

    def __init__(self, spec: PoolSpec, count: int = 1, workers: int = 2) -> None:
        self.workers, self.alive = workers, list("abc"[:count])
        self.works: list[tuple[str, Work]] = []
        self.fails: Exception | None = None
        self.ray = SimpleNamespace(
            get=lambda reply: reply,
            put=lambda content: content,
            nodes=lambda: [self._node(name) for name in self.alive],
            is_initialized=lambda: False,
            exceptions=SimpleNamespace(RayError=RayError, RayActorError=RayActorError),
        )
        self.pool = RayPool("auto")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fastes.pools.cluster.members.Connection", lambda _: self)
            self.pool.open(spec)
        assert self.pool.nodes is not None
        self.nodes = self.pool.nodes
        self.members: dict[str, Member] = {}
        self.welcome()

    def _node(self, name: str) -> dict[str, Any]:
        return {"NodeID": name, "Alive": True, "Resources": {"CPU": float(self.workers)}, "NodeManagerAddress": name}

    def actor_on(self, node_id: str, *_: Any) -> Any:
        """As Connection has it: an actor that notes what it is sent."""
        work = SimpleNamespace(remote=lambda content: self._sent(node_id, content))
        actor = SimpleNamespace(
            work=work, sums=SimpleNamespace(remote=self._asked), join=SimpleNamespace(remote=lambda *_: object())
        )
        return SimpleNamespace(remote=lambda *_: actor)

    def close(self) -> None:
        """As Connection has it."""

    def welcome(self) -> None:
        """The cluster's nodes answer `join`."""
        for name in self.alive:
            member = self.nodes.find(name)
            assert member is not None
            member.calls.clear()
            self.nodes.welcome(member, Joined({}, "", self.workers + 2))
            self.members[name] = member

    def _sent(self, name: str, content: bytes) -> object:
        if self.fails is not None:
            raise self.fails
        self.works.append((name, unpack(content)))
        return object()

    def _asked(self, *_: Any) -> object:
        if self.fails is not None:
            raise self.fails
        return object()

    def turn(self) -> list[tuple[str, Work]]:
        """Who is sent what now."""
        before = len(self.works)
        self.pool.hand_out(self.nodes)
        return self.works[before:]

    def answer(self, name: str, *ranges: Range, rows: bool = True) -> None:
        """A node's call ends with results of these."""
        answers = []
        for number, _, runs in ranges:
            ones = np.ones(len(jobs_of(runs)))
            moments = np.ones((len(ones), 2, 3)) if rows else None
            counts = ones.astype(np.int32)
            answers.append(Played(number, ones, counts, ones, 0 * counts, moments, 0.0, 0, ""))
        self.members[name].calls.clear()
        self.pool.handle(self.nodes, pack(Reply(tuple(answers), ())), self.members[name])


@pytest.fixture
def driver(requests: Requests) -> Driver:
    return Driver(requests.spec)


def test_a_node_gets_all_its_orders_in_one_message(driver: Driver, requests: Requests) -> None:
    evaluation, candidates = driver.pool.submit(requests.evaluation(3)), driver.pool.submit(requests.candidates(4))
    ((_, work),) = driver.turn()
    assert [order.ticket for order in work.ranges] == [candidates, evaluation]
    assert {terms.ticket for terms in work.requests} == {candidates, evaluation}
    assert driver.turn() == [], "its call is out"


def test_somebody_waits_for_what_a_node_still_plays(driver: Driver, requests: Requests) -> None:
    """Its evaluation outlasts its candidates, and no further ones come."""
    evaluation, candidates = driver.pool.submit(requests.evaluation(3)), driver.pool.submit(requests.candidates(4))
    ((_, work),) = driver.turn()
    driver.answer("a", work.ranges[0])
    assert driver.pool.is_finished(candidates)
    ((_, empty),) = driver.turn()
    assert (empty.ranges, empty.requests, empty.number) == ((), (), work.number + 1)
    assert evaluation in empty.open_tickets
    assert driver.turn() == []
    driver.answer("a", work.ranges[1])
    assert driver.pool.is_finished(evaluation)
    assert driver.turn() == [], "a node that has nothing is left alone"


@pytest.mark.parametrize("first", [True, False])
def test_noise_free_episodes_that_go_first_wait_for_no_idle_worker(first: bool, requests: Requests) -> None:
    driver = Driver(replace(requests.spec, evaluations_first=first), 2)
    candidates = driver.pool.submit(requests.many_candidates(4))
    assert all(order.ticket == candidates for _, work in driver.turn() for order in work.ranges)
    evaluation = driver.pool.submit(requests.evaluation(4))
    assert [order.ticket for _, work in driver.turn() for order in work.ranges] == [evaluation] * first, "all are busy"


def test_a_new_generation_goes_out_beside_a_call(driver: Driver, requests: Requests) -> None:
    driver.pool.submit(requests.evaluation(3))
    driver.turn()
    candidates = driver.pool.submit(requests.candidates(4))
    ((_, work),) = driver.turn()
    assert [order.ticket for order in work.ranges] == [candidates]
    assert len(driver.members["a"].calls) == 2


def has_played(member: Member, requests: Requests, now: list[float]) -> None:
    """A candidate, in a second: the time of other nodes' ranges is measured by it."""
    member.give([0], [np.array([0])], OpenTicket(0, requests.candidates(3), requests.spec), None)
    now[0] += 1.0
    member.answered(0)


def test_a_node_that_is_late_is_heard_to_the_end(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets no orders while it is, and would be late for ever if nobody took the rest of what it had."""
    driver, now = Driver(requests.spec, 2), [100.0]
    monkeypatch.setattr("fastes.pools.cluster.members.time.monotonic", lambda: now[0])
    has_played(driver.members["b"], requests, now)
    driver.pool.submit(requests.candidates(4))
    given = dict(driver.turn())
    driver.answer("b", *given["b"].ranges)
    now[0] = 200.0
    driver.answer("a", given["a"].ranges[0])
    assert driver.members["a"].is_late(now[0])
    assert len(driver.members["a"].ranges) == 1
    assert dict(driver.turn())["a"].ranges == ()


def test_a_node_is_told_when_others_have_played_what_it_still_plays(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold an evaluation that everybody waits for now."""
    driver, now = Driver(requests.spec, 2), [100.0]
    monkeypatch.setattr("fastes.pools.cluster.members.time.monotonic", lambda: now[0])
    has_played(driver.members["b"], requests, now)
    candidates = driver.pool.submit(requests.candidates(4))
    evaluation = driver.pool.submit(requests.evaluation(3))
    driver.answer("b", *dict(driver.turn())["b"].ranges)
    now[0] = 200.0
    while not driver.pool.is_finished(candidates):
        driver.answer("b", *dict(driver.turn())["b"].ranges)
    assert driver.members["a"].ranges
    driver.pool.collect(candidates)
    assert [(name, work.ranges, work.open_tickets) for name, work in driver.turn() if name == "a"] == [("a", (), (evaluation,))]
    assert "a" not in dict(driver.turn()), "it is told once"


# --- what Ray raises when it is called -------------------------------------------------------------------------------


def test_an_actor_that_is_found_dead_when_it_is_called_is_a_lost_node(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("fastes.pools.cluster.members.time.monotonic", lambda: now[0])
    driver = Driver(requests.spec, 2)
    candidates = driver.pool.submit(requests.candidates(4))
    driver.fails = RayActorError("it is dead")
    with caught_warnings() as messages:
        assert driver.turn() == []
    assert [message.partition(" is lost;")[0] for message in messages] == ["node a (a)", "node b (b)"]
    assert driver.nodes.ready() == []
    driver.fails, driver.alive = None, ["c"]
    now[0] += 5.0  # nodes are looked for at times
    driver.nodes.look()
    driver.welcome()
    ((name, work),) = driver.turn()
    driver.answer(name, *work.ranges)
    assert driver.pool.is_finished(candidates), "nothing of theirs is missing"


@pytest.mark.parametrize("error", [RayError("the store is full"), ConnectionError("the client is gone")])
def test_whatever_else_ray_raises_is_the_loss_of_the_connection(error: Exception, driver: Driver, requests: Requests) -> None:
    driver.pool.submit(requests.candidates(4))
    driver.fails = error
    with pytest.raises(ClusterError, match=rf"the connection to the cluster 'auto' is lost \({error}\)"):
        driver.turn()


@pytest.mark.parametrize("is_dead", [True, False])
def test_the_same_where_a_sum_is_asked_for(is_dead: bool, requests: Requests) -> None:
    driver = Driver(requests.spec, workers=20)  # one range has all candidates
    candidates = driver.pool.submit(requests.many_candidates(4))
    ((name, work),) = driver.turn()
    driver.fails = RayActorError("it is dead") if is_dead else ConnectionError("the client is gone")
    with caught_warnings(), contextlib.nullcontext() if is_dead else pytest.raises(ClusterError, match="is lost"):
        driver.answer(name, *work.ranges, rows=False)
    assert bool(driver.nodes.ready()) != is_dead
    if is_dead:
        assert driver.pool.open_tickets[candidates].schedule.waiting == requests.MANY, "only it had their moments"
