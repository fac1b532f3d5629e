"""Risk: requests that are open at once get each other's results, lose a job, or one's error ends another."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, toy
from pools import opened, played, with_needs
from processes import children, sent_by_value, wait_until

from fastes import FastES, FastESError, WorkerError
from fastes.pools.pool import Pool
from fastes.pools.processes.offers import Offers
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.processes.worker import claim, is_last_done
from fastes.pools.processes.worker_failures import HangDetector
from fastes.rollout.batch import Batch
from fastes.rollout.job import Request
from fastes.rollout.shared_block import READY, SLOT

sent_by_value(__name__)
POOLS = [0, 3]


def prepared(env: Any, n_workers: int, generations: int = 3) -> tuple[FastES, Pool, list[Request]]:
    """A model, a pool for several requests, and requests: a generation, its evaluation, and so on."""
    model = FastES(env, n_workers=0, preset="default", **SETTINGS)
    spec = with_needs(model.evaluator.pool_spec(), num_generations=generations, num_evaluations=generations)
    pool, requests = opened(spec, n_workers), []
    training, evaluation = model.training.episode_settings()
    for number in range(generations):
        perturbations = model.strategy.ask()
        seeds = model.training.eval_seeds(number)
        requests.append(Request(model.theta, model.normalizer, training, perturbations))
        requests.append(Request(model.theta, model.normalizer, evaluation, eval_seeds=seeds, generation=number))
        model.strategy.tell(np.arange(8.0))
    pool.place_table(model.strategy.table)
    return model, pool, requests


def assert_same_batch(first: Batch, second: Batch) -> None:
    for name in ("returns", "lengths", "successes", "moments"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


@pytest.fixture(scope="module")
def alone() -> list[Batch]:
    """What each request gives alone."""
    model, pool, requests = prepared(toy(), 0)
    try:
        return [played(pool, request) for request in requests]
    finally:
        model.close()
        pool.close()


@pytest.fixture
def closing() -> Iterator[list[Any]]:
    things: list[Any] = []
    yield things
    for thing in things:
        thing.close()


@pytest.mark.parametrize("n_workers", POOLS)
@pytest.mark.parametrize("order", ["as submitted", "last first"])
def test_requests_at_once_give_what_each_gives_alone(
    n_workers: int, order: str, alone: list[Batch], closing: list[Any]
) -> None:
    model, pool, requests = prepared(toy(), n_workers)
    closing += [model, pool]
    for _ in range(3):
        tickets = [pool.submit(request) for request in requests]
        found = dict.fromkeys(tickets)
        for ticket in tickets if order == "as submitted" else reversed(tickets):
            pool.wait((ticket,))
            found[ticket] = pool.collect(ticket)
        for ticket, expected in zip(tickets, alone, strict=True):
            assert_same_batch(found[ticket], expected)
            assert not pool.knows(ticket)


@pytest.mark.parametrize("n_workers", POOLS)
def test_any_of_several_is_waited_for(n_workers: int, alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), n_workers)
    closing += [model, pool]
    left = {pool.submit(request): expected for request, expected in zip(requests, alone, strict=True)}
    while left:
        pool.wait(list(left))
        finished = [ticket for ticket in left if pool.is_finished(ticket)]
        assert finished
        for ticket in finished:
            assert_same_batch(pool.collect(ticket), left.pop(ticket))


class Noted(Toy):
    """Notes the seeds of its episodes in a file, in their order."""

    def __init__(self, path: str) -> None:
        super().__init__(step_seconds=0.01)
        self.path = path

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{seed}\n")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("lag", [0, 1])
def test_noise_free_episodes_begin_first_where_they_are_waited_for(lag: int, closing: list[Any], tmp_path: Path) -> None:
    """One worker, which already plays a candidate."""
    path = tmp_path / "seeds"
    model = FastES(partial(Noted, str(path)), n_workers=0, preset="default", **SETTINGS, eval_lag=lag)
    pool = opened(with_needs(model.evaluator.pool_spec(), num_evaluations=1), 1)
    closing += [model, pool]
    pool.place_table(model.strategy.table)
    training, evaluation = model.training.episode_settings()
    seeds = model.training.eval_seeds(0)
    candidates = pool.submit(Request(model.theta, model.normalizer, training, model.strategy.ask()))
    wait_until(lambda: path.exists() and len(path.read_text().split()) > 0, "a candidate is played")
    noise_free = pool.submit(Request(model.theta, model.normalizer, evaluation, eval_seeds=seeds, generation=0))
    for ticket in (candidates, noise_free):
        pool.wait((ticket,))
    played = [int(seed) for seed in path.read_text().split()]
    first = min(played.index(seed) for seed in seeds.tolist())
    assert first <= 2 if lag == 0 else first == len(played) - len(seeds)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_single_jobs_of_a_request(n_workers: int, alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), n_workers)
    closing += [model, pool]
    batch = played(pool, requests[0]._replace(jobs=np.array([1, 4, 7])))
    assert batch.returns.tolist() == alone[0].returns.ravel()[[1, 4, 7]].tolist()
    assert batch.moments.tobytes() == alone[0].moments[[1, 4, 7]].tobytes()


@pytest.mark.parametrize("n_workers", [0, 2])
def test_there_are_as_many_places_as_were_asked_for(n_workers: int, closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), n_workers, generations=1)
    closing += [model, pool]
    tickets = [pool.submit(request) for request in requests]
    for request in requests:
        with pytest.raises(FastESError, match="no slot is free"):
            pool.submit(request)
    pool.wait(tickets[:1])
    pool.collect(tickets[0])
    pool.submit(requests[0])


def test_lost_workers_lose_no_job_of_any_request(tmp_path: Path, alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    seeds = [int(requests[2].perturbations.env_seed[1, 0]), int(requests[3].eval_seeds[0])]  # type: ignore[union-attr]
    env = toy(kill_seeds=seeds, marker=str(tmp_path / "marker"))
    model, pool, requests = prepared(env, 2)
    closing += [model, pool]
    with caught_warnings() as messages:
        tickets = [pool.submit(request) for request in requests]
        for ticket, expected in zip(tickets, alone, strict=True):
            pool.wait((ticket,))
            assert_same_batch(pool.collect(ticket), expected)
    assert messages
    assert all("results do not change" in message for message in messages)


def test_workers_that_are_killed_at_any_moment_lose_nothing(alone: list[Batch], closing: list[Any]) -> None:
    before = set(children())
    model, pool, requests = prepared(toy(), 3)
    closing += [model, pool]
    rng = np.random.default_rng(0)
    with caught_warnings():
        for _ in range(12):
            tickets = [pool.submit(request) for request in requests]
            victims = sorted(set(children()) - before)
            if victims:
                os.kill(int(rng.choice(victims)), signal.SIGKILL)
            for ticket, expected in zip(tickets, alone, strict=True):
                pool.wait((ticket,))
                assert_same_batch(pool.collect(ticket), expected)


class Failing(Toy):
    """Raises for one environment seed."""

    bad_seed = -1

    def __init__(self, bad_seed: int, **habits: Any) -> None:
        super().__init__(**habits)
        self.bad_seed = bad_seed

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == self.bad_seed:
            raise RuntimeError("this seed is a bad one")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_error_belongs_to_its_request(n_workers: int, alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    bad = int(requests[2].perturbations.env_seed[1, 0])  # type: ignore[union-attr]
    model, pool, requests = prepared(lambda: Failing(bad), n_workers)
    closing += [model, pool]
    tickets = [pool.submit(request) for request in requests]
    for number, (ticket, expected) in enumerate(zip(tickets, alone, strict=True)):
        pool.wait((ticket,))
        if number == 2:
            with pytest.raises(WorkerError, match="a bad one") as caught:
                pool.collect(ticket)
            assert (caught.value.generation, caught.value.job) in {(2, 2), (2, 3)}
        else:
            assert_same_batch(pool.collect(ticket), expected)


def test_an_interrupted_wait_forgets_every_request(closing: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, pool, requests = prepared(toy(), 2)
    closing += [model, pool]
    tickets = [pool.submit(request) for request in requests]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(HangDetector, "check", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.wait(tickets)
    assert not any(pool.knows(ticket) for ticket in tickets)
    ticket = pool.submit(requests[0])
    pool.wait((ticket,))
    pool.collect(ticket)


def test_each_finished_request_teaches_the_deadline_once(closing: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[float] = []
    monkeypatch.setattr(HangDetector, "learn", lambda _, seconds, begun: learned.append(seconds))
    model, pool, requests = prepared(toy(), 2)
    closing += [model, pool]
    for ticket in [pool.submit(request) for request in requests]:
        pool.wait((ticket,))
        pool.collect(ticket)
    assert len(learned) == len(requests)
    assert all(seconds > 0.0 for seconds in learned)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell the cores")
def test_a_spare_worker_takes_time_from_every_core_in_turn() -> None:
    from fastes.pools.processes.worker import Roaming, available

    cores, seen = available(), []

    class Env:
        observation_space = "a space"

        def step(self, action: int) -> int:
            seen.append(tuple(available()))
            time.sleep(0.002)
            return action

    env = Roaming(Env())
    assert [env.step(k) for k in range(2 * len(cores))] == list(range(2 * len(cores)))
    assert env.observation_space == "a space"
    assert seen == [(core,) for core in cores] * 2
    del env
    assert available() == cores


def test_a_spare_worker_plays_evaluations_alone(closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    spared: Any = opened(pool.spec, 2, spare=2)
    closing.append(spared)
    spared.place_table(model.strategy.table)
    for _ in range(5):
        tickets = [spared.submit(request) for request in requests]
        for ticket in tickets:
            spared.wait((ticket,))
            spared.collect(ticket)
        assert all(int(row[SLOT]) >= 3 or not row[8] for row in spared.block.workers[2:])


def test_evaluations_go_first_while_candidates_of_several_requests_wait(
    closing: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainings side by side always have candidates, until each waits for its evaluation and there is no work."""
    monkeypatch.setattr(ProcessPool, "start", lambda _: None)  # claim below is the only one who claims
    model, pool, requests = prepared(toy(), 1)
    assert isinstance(pool, ProcessPool)
    closing += [model, pool]
    block, generations = pool.block, 3
    kinds = [range(generations), range(generations, len(block.slots))]

    def next_is_evaluation() -> bool:
        claimed = claim(block, block.workers[0], kinds)
        assert claimed is not None
        return claimed[0] >= generations

    for request in requests[:2]:
        pool.submit(request)
    assert not next_is_evaluation(), "a single training's evaluation has time"
    pool.submit(requests[2])
    assert next_is_evaluation()
    while next_is_evaluation():
        pass
    kinds = kinds[1:]
    pool.submit(requests[3])
    assert next_is_evaluation(), "a spare worker plays nothing else"


def test_forgotten_jobs_are_not_played(closing: list[Any], monkeypatch: pytest.MonkeyPatch, alone: list[Batch]) -> None:
    """A worker that plays one later reads, and writes, a place that has a new request."""
    with monkeypatch.context() as patched:
        patched.setattr(ProcessPool, "start", lambda _: None)  # nobody claims anything before they are forgotten
        model, pool, requests = prepared(toy(), 1)
        closing += [model, pool]
        for request in requests:
            pool.submit(request)
    pool.forget()
    for _ in range(3):
        assert_same_batch(played(pool, requests[0]), alone[0])
    assert not any(slot.committed.any() for slot in pool.block.slots[1:])


def test_a_penalty_is_told_however_late_its_message_is_read(closing: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    bad = int(requests[0].perturbations.env_seed[1, 0])  # type: ignore[union-attr]
    model, pool, requests = prepared(lambda: Failing(bad), 0)
    closing += [model, pool]
    pool = opened(replace(pool.spec, on_env_error="penalise"), 1)
    closing.append(pool)
    pool.place_table(model.strategy.table)
    first, second = pool.submit(requests[0]), pool.submit(requests[1])
    committed = pool.block.slots[3].committed  # of the second, which are played last

    def see_no_message(*_: Any) -> list[Any]:
        wait_until(lambda: committed[: len(requests[1].eval_seeds)].all(), "the jobs")
        return []

    with monkeypatch.context() as patched:
        patched.setattr(selectors.DefaultSelector, "select", see_no_message)
        with pytest.warns(RuntimeWarning, match="a bad one"):
            pool.wait((second,))
    pool.collect(second)
    assert "a bad one" in pool.collect(first).penalised


class Spoilt(Toy):
    """One environment seed raises, and all episodes after that give other returns."""

    def __init__(self, bad_seed: int, **habits: Any) -> None:
        super().__init__(**habits)
        self.bad_seed, self.is_spoilt = bad_seed, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == self.bad_seed:
            self.is_spoilt = True
            raise RuntimeError("this seed is a bad one")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward + 1000.0 * self.is_spoilt, *rest


def test_no_other_request_gets_results_of_an_environment_that_has_raised(alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    bad = int(requests[0].perturbations.env_seed[3, 0])  # type: ignore[union-attr]
    model, pool, requests = prepared(lambda: Spoilt(bad), 1)
    closing += [model, pool]
    first, second = pool.submit(requests[0]._replace(jobs=np.array([0, 6]))), pool.submit(requests[1])
    row = pool.block.workers[0]
    wait_until(lambda: row[READY] and pool.block.slots[0].committed[0], "the first job")
    time.sleep(0.3)  # the parent does something else, and so could the worker
    pool.wait((first,))
    with pytest.raises(WorkerError, match="a bad one"):
        pool.collect(first)
    pool.wait((second,))
    assert_same_batch(pool.collect(second), alone[1])


def test_jobs_that_nobody_had_begun_are_not_counted_as_played_again(alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 0)
    closing += [model, pool]
    bad = int(requests[0].perturbations.env_seed[0, 0])  # type: ignore[union-attr]
    model, pool, requests = prepared(lambda: Failing(bad), 1)
    closing += [model, pool]
    tickets = [pool.submit(request) for request in requests]
    for number, ticket in enumerate(tickets):
        pool.wait((ticket,))
        if number:
            batch = pool.collect(ticket)
            assert_same_batch(batch, alone[number])
            assert batch.rerun == 0


def test_an_interrupted_submit_leaves_no_place_taken(
    closing: list[Any], monkeypatch: pytest.MonkeyPatch, alone: list[Batch]
) -> None:
    model, pool, requests = prepared(toy(), 2, generations=1)
    closing += [model, pool]
    evaluation = pool.submit(requests[1])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Offers, "wake", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(requests[0])
    assert not pool.knows(evaluation)
    for request, expected in zip(requests, alone[:2], strict=True):
        assert_same_batch(played(pool, request), expected)


def test_a_count_that_comes_late_finishes_no_later_request(alone: list[Batch], closing: list[Any]) -> None:
    """A slow worker's count of the slot's last request, which lost another worker, falls on the slot's next one."""
    model, pool, requests = prepared(toy(), 1)
    closing += [model, pool]
    assert isinstance(pool, ProcessPool)
    assert_same_batch(played(pool, requests[2]), alone[2])
    (worker,) = pool.workers.values()
    os.kill(worker.process.pid, signal.SIGSTOP)
    ticket = pool.submit(requests[0])
    for _ in range(len(alone[0].lengths.ravel())):
        is_last_done(pool.block, 0)
    os.kill(worker.process.pid, signal.SIGCONT)
    pool.wait((ticket,))
    assert_same_batch(pool.collect(ticket), alone[0])


@pytest.mark.parametrize("n_workers", POOLS)
def test_requests_that_are_submitted_together_wake_workers_once(
    n_workers: int, alone: list[Batch], closing: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pool, requests = prepared(toy(), n_workers)
    closing += [model, pool]
    woken, wake = list[int](), Offers.wake

    def noted(offers: Offers, count: int) -> None:
        woken.append(count)
        wake(offers, count)

    monkeypatch.setattr(Offers, "wake", noted)
    tickets = pool.submit_all(requests)
    assert len(woken) == min(n_workers, 1)
    for ticket, expected in zip(tickets, alone, strict=True):
        pool.wait((ticket,))
        assert_same_batch(pool.collect(ticket), expected)


def test_requests_without_a_place_for_each_are_not_submitted(alone: list[Batch], closing: list[Any]) -> None:
    model, pool, requests = prepared(toy(), 1, generations=1)
    closing += [model, pool]
    with pytest.raises(FastESError, match="no slot is free"):
        pool.submit_all([requests[1], requests[0], requests[0]])
    assert not pool.tickets()
    for request, expected in zip(requests, alone[:2], strict=True):
        assert_same_batch(played(pool, request), expected)
