"""Risk: a pool that is opened again is another one, or trainings on one pool hold each other up or leave something behind."""

from __future__ import annotations

import gc
import mmap
import warnings
import weakref
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from faults import SETTINGS, toy
from gymnasium.vector import SyncVectorEnv
from pools import played

from fastes import FastES, FastESError
from fastes.envs.source import make_env_source
from fastes.pools.make_pool import make_pool
from fastes.pools.pool import Pool, PoolChoice, run_to_end, side_by_side
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.serial_pool import SerialPool
from fastes.pools.vector_pool import VectorPool
from fastes.rollout.job import Request


@pytest.mark.parametrize(("n_workers", "kind"), [(None, ProcessPool), (0, SerialPool), (3, ProcessPool)])
def test_the_arguments_choose_a_pool(n_workers: int | None, kind: type[Pool]) -> None:
    pool = make_pool(make_env_source("CartPole-v1"), PoolChoice(n_workers))
    assert type(pool) is kind
    assert not pool.is_open
    assert pool.steps_played() == (0, 0)
    pool.close()


def test_a_vector_environment_is_driven_without_workers() -> None:
    envs = SyncVectorEnv([toy() for _ in range(2)])
    source = make_env_source(envs)
    assert type(make_pool(source, PoolChoice())) is VectorPool
    with pytest.raises(ValueError, match="n_workers = 2 cannot be used with"):
        make_pool(source, PoolChoice(2))


def _memory_of(array: Any) -> mmap.mmap:
    while not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else array.base
    return array


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_pool_can_be_opened_again(n_workers: int) -> None:
    """For evaluation alone, for a training, for evaluation: it is the same object, and gives the same bits."""
    with FastES(toy(), n_workers=n_workers, preset="default", **SETTINGS) as model:
        pool: Any = model.pool
        evaluator = model.evaluator
        seeds = np.arange(4, dtype=np.int64)
        request = Request(model.theta, model.normalizer, model.training.episode_settings()[1], eval_seeds=seeds)
        found = []
        for training in (False, True, False):
            pool.open(evaluator.pool_spec(training))
            found.append(played(pool, request))
            assert pool.steps_played().evaluations == found[-1].lengths.sum()
            memory = weakref.ref(_memory_of(pool.block.workers))
            pool.close()
            gc.collect()
            assert memory() is None, "its memory is given back"
            assert not pool.is_open
            with pytest.raises(FastESError, match="open it before"):
                pool.submit(request)
        assert len({batch.returns.tobytes() for batch in found}) == 1
        model.learn(100)
        assert model.pool is pool
        assert pool.is_open
        assert model.evaluate(4).returns.shape == (4,)
        model.close()
        assert not pool.is_open


class Scripted(SerialPool):
    """A pool whose requests are finished in the order in which tickets are listed."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order, self.done, self.waits = order, set[int](), list[list[int]]()

    def wait(self, tickets: Collection[int]) -> None:
        self.waits.append(sorted(tickets))
        self.done.add(next(ticket for ticket in self.order if ticket in tickets and ticket not in self.done))

    def is_finished(self, ticket: int) -> bool:
        return ticket in self.done

    def collect(self, ticket: int) -> Any:
        return f"results of {ticket}"


def test_a_training_goes_on_while_others_wait() -> None:
    pool = Scripted([2, 3, 1])
    happened: list[str] = []

    async def training(name: str, *tickets: int) -> str:
        for ticket in tickets:
            happened.append(f"{name} waits")
            assert await pool.result(ticket) == f"results of {ticket}"
        happened.append(f"{name} ends")
        return name

    assert run_to_end(side_by_side(training("a", 1), training("b", 2, 3))) == ["a", "b"]
    assert happened == ["a waits", "b waits", "b waits", "b ends", "a ends"]
    assert pool.waits == [[1, 2], [1, 3], [1]], "all that wait are waited for together"
    assert run_to_end(side_by_side()) == []


def test_an_error_ends_all_trainings() -> None:
    """Also those that have not begun, of which Python would warn."""
    ended: list[str] = []

    async def fails() -> None:
        raise KeyError("one of them")

    async def waits(pool: Pool) -> None:
        try:
            await pool.result(1)
        finally:
            ended.append("closed")

    async def never() -> Any:
        ended.append("begun")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError, match="one of them"):
            run_to_end(side_by_side(waits(Scripted([1])), fails(), never()))
    assert ended == ["closed"]
