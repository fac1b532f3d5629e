"""How many environments exist at a time, and the number that each is told."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from exclusive_env import Exclusive, built
from processes import sent_by_value, wait_until
from training import assert_same_state, theta_of

from fastes import FastES
from fastes.cli.main import main
from fastes.envs.worker_number import WORKER_INDEX, numbered

sent_by_value(__name__)
SMALL: dict[str, Any] = {"seed": 0, "noise_table_size": 10_000, "population_size": 8, "preset": "default"}


def make_with_index(folder: str, worker_index: int = -1) -> Exclusive:
    return Exclusive(folder, worker_index)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_one_environment_is_all_that_one_worker_takes(n_workers: int, tmp_path: Path) -> None:
    """Spaces, training, evaluation, prediction, saving, loading and a new environment: never two at once."""
    make = partial(Exclusive, str(tmp_path))
    with FastES(make, n_workers=n_workers, **SMALL) as model:
        assert not (tmp_path / "lock").exists(), "the one whose spaces were read is closed"
        model.learn(60)
        model.evaluate(3)
        model.predict(model.observation_space.sample())
        model.save(tmp_path / "model")
        assert built(tmp_path) == [0, 0]
        model.set_env(make)
        model.learn(30, reset_num_timesteps=False)
        model.replay(model.generation + 1, 0)
    with FastES.load(tmp_path / "model", make, n_workers) as model:
        model.learn(30, reset_num_timesteps=False)
        model.predict(model.observation_space.sample())
    assert not (tmp_path / "lock").exists()
    assert set(built(tmp_path)) == {0}


@pytest.mark.parametrize("make", ["lambda", "named", "registered"])
def test_each_environment_has_a_number_of_its_own(make: str, tmp_path: Path) -> None:
    gymnasium.register("Numbered-v0", make_with_index)
    folder = str(tmp_path)
    env: Any = {
        "lambda": lambda number: Exclusive(folder, number),
        "named": partial(make_with_index, folder),
        "registered": "Numbered-v0",
    }[make]
    kwargs = {"env_kwargs": {"folder": folder}} if make == "registered" else {}
    try:
        with FastES(env, n_workers=2, **kwargs, **SMALL) as model:
            model.learn(60)
            wait_until(lambda: 1 in built(tmp_path) and len(built(tmp_path)) == 3, "both workers build")
            assert sorted(built(tmp_path)) == [0, 0, 1], "the first was closed before the workers'"
            assert model.env.unwrapped.number == 4
    finally:
        gymnasium.registry.pop("Numbered-v0")
    assert WORKER_INDEX not in os.environ


def test_spare_processes_and_replaced_workers_have_numbers_too(tmp_path: Path) -> None:
    settings = {**SMALL, "population_size": 16, "eval_lag": 2}
    with FastES(lambda number: Exclusive(str(tmp_path), number), n_workers=4, **settings) as model:
        model.learn(100)
        pool: Any = model.evaluator.pool
        count = pool.n_processes
        assert count > 4
        wait_until(lambda: set(built(tmp_path)) == set(range(count)), "all build")
        victim = pool.workers[1].process
        victim.kill()
        victim.wait()
        (tmp_path / "lock1").unlink()
        with pytest.warns(RuntimeWarning, match="died"):
            model.learn(100)
        wait_until(lambda: len(built(tmp_path)) == count + 2, "the replacement builds")
        assert built(tmp_path)[-1] == 1


def test_the_number_of_threads_that_overlap_is_gone_when_all_have_left() -> None:
    first, second = numbered(0), numbered(3)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ[WORKER_INDEX] == "3"
    second.__exit__(None, None, None)
    assert WORKER_INDEX not in os.environ


def test_threads_that_come_and_go_while_another_looks_raise_nothing() -> None:
    failed: list[Exception] = []

    def come_and_go(number: int) -> None:
        try:
            for _ in range(1500):
                with numbered(number):
                    pass
        except Exception as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=come_and_go, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []
    assert WORKER_INDEX not in os.environ


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_copy_has_the_number_of_its_own_thread_alone() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with numbered(3):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    with numbered(5):
        inside = in_a_fork(lambda: os.environ[WORKER_INDEX] == "5")
    outside = in_a_fork(lambda: WORKER_INDEX not in os.environ)
    leave.set()
    thread.join()
    assert inside
    assert outside


def in_a_fork(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_functions_whose_parameters_mean_something_else_are_left_alone() -> None:
    """A default is a default, a class's arguments are its own, and a render mode is no number."""
    made: list[Any] = []

    def with_default(size: int = 7) -> gymnasium.Env[Any, Any]:
        made.append(size)
        return gymnasium.make("CartPole-v1")

    FastES(with_default, n_workers=0, **SMALL).close()
    assert made == [7]

    class Sized(gymnasium.Env[Any, Any]):
        def __init__(self, size: int) -> None: ...

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        FastES(Sized, n_workers=0, **SMALL)


def test_results_do_not_depend_on_numbers(tmp_path: Path) -> None:
    states = []
    for n_workers in (0, 1, 2):
        folder = tmp_path / str(n_workers)
        folder.mkdir()
        with FastES(lambda number, folder=str(folder): Exclusive(folder, number), n_workers=n_workers, **SMALL) as model:
            model.learn(200)
            states.append(model.snapshot())
    assert np.array_equal(theta_of(states[0]), theta_of(states[1]))
    assert_same_state(states[0], states[2])


def test_the_command_line_builds_no_further_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To judge the result."""
    gymnasium.register("Exclusive-v0", Exclusive)
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "Exclusive-v0", "--env-kwargs", "folder=.", "--workers", "1", "--preset", "default"]
    try:
        assert main([*arguments, "--total-timesteps", "60", "--noise-table-size", "10000", "--target-episodes", "2"]) == 0
    finally:
        gymnasium.registry.pop("Exclusive-v0")
    assert built(tmp_path) == [0, 0]
