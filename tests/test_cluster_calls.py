"""Risk: what a node has to say comes late or never, or costs messages that nobody needs; all without Ray."""

from __future__ import annotations

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
from faults import SETTINGS, toy
from processes import wait_until

from fastes import FastES
from fastes.pools.cluster.member import Member, Parameters
from fastes.pools.cluster.messages import Joined, Played, Range, Reply, Work, jobs_of, pack, runs_of, unpack
from fastes.pools.cluster.node import Node
from fastes.pools.cluster.ray_pool import RayPool
from fastes.pools.cluster.tickets import OpenTicket
from fastes.rollout.job import Batch, PoolSpec, Request

_MOMENT = 0.05  # seconds that a call gets to return although it should not
_SECONDS = 10.0  # for one that should


class ByHand:
    """A node's pool whose requests end when a test says so."""

    def __init__(self, spec: PoolSpec, n_workers: int, spare: int) -> None:
        self.spec, self.waits = spec, 0
        self._requests: dict[int, Request] = {}
        self._finished: set[int] = set()
        self._tables = np.empty((spec.num_tables, spec.table_size), dtype=np.float32)
        self._read, self._write = os.pipe()

    def start(self) -> None: ...

    def wake_by(self, fd: int) -> None:
        self._bell = fd

    def noise_table(self, number: int = 0) -> Any:
        return self._tables[number]

    def submit(self, request: Request) -> int:
        self._requests[len(self._requests)] = request
        return len(self._requests) - 1

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
        request = self._requests[ticket]
        assert request.jobs is not None
        ones = np.ones(len(request.jobs))
        moments = np.zeros((0 if request.perturbations is None else len(ones), 2, 3))
        return Batch(ones, ones.astype(np.int64), ones, moments, 0.0, 0, "")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Requests:
    """Of one training with two noise tables."""

    def __init__(self) -> None:
        with FastES(toy(), n_workers=0, preset="default", **SETTINGS) as model:
            self.spec = replace(model.evaluator.pool_spec(), num_tables=2)
            self._theta, self._normalizer, self._perturbations = model.theta, model.normalizer, model.state.perturbations()
            self._episodes = model.state.episode_settings()

    def candidates(self, generation: int, table: int = 0) -> Request:
        perturbations = replace(self._perturbations, generation=generation)
        return Request(self._theta, self._normalizer, self._episodes[0], perturbations, table=table)

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

    def call(self, *requests: Request, unknown: Sequence[int] = ()) -> Future[Reply]:
        """Send them, each in a range of its own, with numbers and pool's tickets from 0; what the call will give.

        unknown: ranges of requests whose terms the node does not have.
        """
        asked, ranges = [], [Range(number, 99, runs_of(np.arange(2))) for number in unknown]
        for request in requests:
            number = len(self._tickets)
            self._tickets.append(number)
            open_ = OpenTicket(number, request, self.spec)
            asked.append((open_, Parameters(open_, False, None)))
            ranges.append(Range(number, number, runs_of(open_.schedule.jobs)))
        content, reply = self.member.message(ranges, asked, tuple(self._tickets)), Future[Reply]()
        threading.Thread(target=lambda: reply.set_result(unpack(self.node.work(content))), daemon=True).start()
        return reply

    def finish(self, number: int, others_play: bool = True) -> None:
        """Let a range's jobs end; where others play, the node has decided what to do about that then."""
        wait_until(lambda: number in self.pool._requests, "the node has begun with it")
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
    ("generation", "table"),
    [(None, 0), (3, 0), (5, 0), (4, 1)],
    ids=["no candidates", "its own generation", "the one after the next", "another training"],
)
def test_where_no_such_candidates_play_an_evaluation_comes_at_once(
    generation: int | None, table: int, called: Called, requests: Requests
) -> None:
    other = requests.evaluation(4) if generation is None else requests.candidates(generation, table)
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


def test_who_waits_for_a_node_that_leaves_waits_no_longer(called: Called, requests: Requests) -> None:
    call = called.call(requests.candidates(4))
    wait_until(lambda: called.pool.waits > 0, "the node plays")
    called.leave()
    assert numbers(call) == []


# --- what a driver sends ---------------------------------------------------------------------------------------------


class Driver:
    """A pool of one node, which says what a test has it say. works: what it was sent. pool: the driver's."""

    def __init__(self, spec: PoolSpec) -> None:
        self.works: list[Work] = []
        actor = SimpleNamespace(work=SimpleNamespace(remote=self._sent))
        self.member = Member("id", "node", 2, actor, 8)
        self.member.state, self.member.places = "ready", 4
        ray = SimpleNamespace(get=lambda reply: reply)
        self.nodes: Any = SimpleNamespace(ray=ray, ready=lambda: [self.member], find=lambda _: self.member, close=lambda: None)
        self.pool = RayPool(spec, "auto")
        self.pool._nodes = self.nodes

    def _sent(self, content: bytes) -> object:
        self.works.append(unpack(content))
        return object()

    def turn(self) -> list[Work]:
        """What the node is sent now."""
        before = len(self.works)
        self.pool._hand_out([self.member])
        return self.works[before:]

    def answer(self, *ranges: Range) -> None:
        """A call ends with results of these."""
        answers = []
        for number, _, runs in ranges:
            ones = np.ones(len(jobs_of(runs)))
            rows = np.ones((len(ones), 2, 3))
            answers.append(Played(number, ones, ones.astype(np.int32), ones, rows, 0.0, 0, ""))
        self.member.calls.clear()
        self.pool._meet(self.nodes, pack(Reply(tuple(answers), ())), self.member)


@pytest.fixture
def driver(requests: Requests) -> Driver:
    return Driver(requests.spec)


def test_a_node_gets_all_its_orders_in_one_message(driver: Driver, requests: Requests) -> None:
    evaluation, candidates = driver.pool.submit(requests.evaluation(3)), driver.pool.submit(requests.candidates(4))
    (work,) = driver.turn()
    assert [order.ticket for order in work.ranges] == [candidates, evaluation]
    assert {terms.ticket for terms in work.terms} == {candidates, evaluation}
    assert driver.turn() == [], "its call is out"


def test_somebody_waits_for_what_a_node_still_plays(driver: Driver, requests: Requests) -> None:
    """Its evaluation outlasts its candidates, and no further ones come."""
    evaluation, candidates = driver.pool.submit(requests.evaluation(3)), driver.pool.submit(requests.candidates(4))
    (work,) = driver.turn()
    driver.answer(work.ranges[0])
    assert driver.pool.is_finished(candidates)
    (empty,) = driver.turn()
    assert (empty.ranges, empty.terms, empty.number) == ((), (), work.number + 1)
    assert evaluation in empty.open_tickets
    assert driver.turn() == []
    driver.answer(work.ranges[1])
    assert driver.pool.is_finished(evaluation)
    assert driver.turn() == [], "a node that has nothing is left alone"


def test_a_new_generation_goes_out_beside_a_call(driver: Driver, requests: Requests) -> None:
    driver.pool.submit(requests.evaluation(3))
    driver.turn()
    candidates = driver.pool.submit(requests.candidates(4))
    (work,) = driver.turn()
    assert [order.ticket for order in work.ranges] == [candidates]
    assert len(driver.member.calls) == 2
