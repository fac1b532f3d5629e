"""Risk: jobs are offered and nobody wakes, a worker wakes for nothing, or a lost one takes others' offers with it."""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from faults import SETTINGS, toy

from fastes import FastES, _core
from fastes.pools.processes.offers import Offers, Sleep
from fastes.pools.processes.worker import is_last_done
from fastes.rollout.shared_block import TICKET_SHIFT

LOST_WORKER = """
import sys
from fastes.pools.processes.offers import Sleep

sleep = Sleep(int(sys.argv[1]), 0)
print("asleep", flush=True)
print(sleep.until_offer(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def offers() -> Iterator[Offers]:
    offers = Offers()
    yield offers
    offers.close()


class Sleeper:
    """A worker's sleep in a thread, with its line to the parent."""

    def __init__(self, offers: Offers, woken: queue.Queue[tuple[Sleeper, bool]]) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._sleep = Sleep(offers.fd, self._theirs.fileno())
        self._thread = threading.Thread(target=lambda: woken.put((self, self._sleep.until_offer())), daemon=True)
        self._thread.start()

    def hang_up(self) -> None:
        self._ours.close()

    def end(self) -> None:
        self.hang_up()
        self._thread.join()
        self._theirs.close()


def test_an_offer_wakes_as_many_sleepers_as_it_says(offers: Offers) -> None:
    woken: queue.Queue[tuple[Sleeper, bool]] = queue.Queue()
    sleepers = {Sleeper(offers, woken) for _ in range(5)}
    offers.wake(3)
    awake = [woken.get(timeout=60) for _ in range(3)]
    left = sleepers - {sleeper for sleeper, _ in awake}
    for sleeper in left:
        sleeper.hang_up()
    asleep = [woken.get(timeout=60) for _ in left]
    for sleeper in sleepers:
        sleeper.end()
    assert [is_offer for _, is_offer in awake] == [True] * 3
    assert [is_offer for _, is_offer in asleep] == [False] * 2, "the parent has hung up: there was no offer for these"


def test_an_offer_waits_for_a_worker_that_does_not_sleep_yet(offers: Offers) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sleep = Sleep(offers.fd, theirs.fileno())
        offers.wake(1)
        assert sleep.until_offer()
        ours.close()
        assert not sleep.until_offer()


def test_a_worker_whose_parent_has_hung_up_leaves_the_offer_to_others(offers: Offers) -> None:
    (ours, theirs), (_line, others) = pairs = socket.socketpair(), socket.socketpair()
    offers.wake(1)
    ours.close()
    assert not Sleep(offers.fd, theirs.fileno()).until_offer()
    assert Sleep(offers.fd, others.fileno()).until_offer()
    for pair in pairs:
        for end in pair:
            end.close()


def test_offers_that_nobody_takes_keep_no_parent_waiting(offers: Offers) -> None:
    for _ in range(1_000):
        offers.wake(1_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert Sleep(offers.fd, theirs.fileno()).until_offer()


def test_a_lost_worker_takes_its_own_offer_alone(offers: Offers) -> None:
    command = [sys.executable, "-c", LOST_WORKER, str(offers.fd)]
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[offers.fd]) as worker,
    ):
        assert worker.stdout is not None
        assert worker.stdout.readline() == "asleep\n"
        offers.wake(1)
        assert worker.stdout.readline() == "True\n"
        worker.kill()
        worker.wait()
        offers.wake(1)
        sleep = Sleep(offers.fd, theirs.fileno())
        assert sleep.until_offer(), "the pipe still works"
        ours.close()
        assert not sleep.until_offer(), "the lost worker's offer is gone: the parent opens its job again"


def test_the_worker_that_does_the_last_job_is_told_so() -> None:
    """It alone tells the parent, who would else be woken by every job."""
    with FastES(toy(), n_workers=0, preset="default", **SETTINGS) as model:
        block = model.evaluator.pool_spec().block(0, shared=False)
    ticket, jobs = 7, 3
    _core.commit(block.slots[0].unfinished, 0, ticket << TICKET_SHIFT | jobs)
    assert [is_last_done(block, 0) for _ in range(jobs)] == [False, False, True]
    assert not is_last_done(block, 0), "a job that was done again, of a lost worker, is not the last one once more"
    block.close()
