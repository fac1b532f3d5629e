"""Risk: a process that an environment has forked goes on as a second worker, and everybody waits for ever."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from socket import socketpair
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings
from processes import run_script
from training import Result, assert_same_records, learn
from watched_workers import Clock, Watched

from fastes import FastES
from fastes.pools.processes.worker_failures import HangDetector
from fastes.rollout.shared_block import JOB


def _returns() -> None:
    os.fork()


def _raises() -> None:
    if os.fork() == 0:
        os.execv("/no/such/program", ["program"])


def _exits() -> None:
    child = os.fork()
    if child == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def _in_a_thread() -> None:
    thread = threading.Thread(target=os.fork)
    thread.start()
    thread.join()


def _becomes_a_program() -> None:
    assert subprocess.run(["true"], check=True).returncode == 0


def _answers() -> None:
    """A process of multiprocessing that is of use, as a simulator is."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send(theirs.recv() + 1))
    process.start()
    ours.send(41)
    assert ours.recv() == 42
    process.join()
    assert process.exitcode == 0


HABITS = (_returns, _raises, _exits, _in_a_thread, _becomes_a_program, _answers)


class Forking(Toy):
    """Forks in each of `places`, by each of HABITS in turn. `log`: gets the id of each process that takes a step."""

    def __init__(self, log: str, places: str = "init reset step close", **habits: Any) -> None:
        super().__init__(**habits)
        self.log, self.places, self.forks = log, places.split(), 0
        self._fork("init")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._fork("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()}\n")
        if self.steps < 2:
            self._fork("step")
        return super().step(action)

    def close(self) -> None:
        self._fork("close")

    def _fork(self, place: str) -> None:
        if place in self.places:
            before, self.forks = self.forks, self.forks + 1
            HABITS[before % len(HABITS)]()


TRAINING = """
import hashlib
from functools import partial
from faults import SETTINGS
from test_env_forks import Forking
from training import learn
from fastes import FastES

settings = {{"preset": "default", "n_workers": {n_workers}, "on_env_error": {on_env_error!r}, **SETTINGS}}
with FastES(partial(Forking, {log!r}), **settings) as model:
    learn(model, 4)
print(hashlib.sha256(model.theta.tobytes()).hexdigest())
"""


@pytest.mark.parametrize(
    ("n_workers", "on_env_error"), [(0, "stop"), pytest.param(1, "stop", marks=pytest.mark.slow), (2, "penalise")]
)
def test_what_an_environment_forks_plays_no_episode(
    n_workers: int, on_env_error: str, undisturbed: Result, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    result = run_script(TRAINING.format(log=str(log), n_workers=n_workers, on_env_error=on_env_error), tmp_path)
    expected = hashlib.sha256(undisturbed.state.arrays["trainings"]["0.theta"].tobytes()).hexdigest()
    assert (result.returncode, result.stdout.split()) == (0, [expected]), result.stderr
    assert len(set(log.read_text().split())) <= max(n_workers, 1), "copies end where they come back"
    assert "a process that the environment Forking has forked returned" in result.stderr
    assert "a process that env.close of Forking has forked" in result.stderr
    assert "FileNotFoundError" in result.stderr


def test_a_copy_that_an_import_forks_in_a_worker_ends(undisturbed: Result, tmp_path: Path) -> None:
    (tmp_path / "forks_at_import.py").write_text(
        "import os\nif 'FASTES_WORKER' in os.environ:\n    os.fork()\nfrom envs_for_tests import Toy\n"
    )
    script = """
        import hashlib
        from faults import SETTINGS
        from training import learn
        from fastes import FastES

        def make():
            from forks_at_import import Toy
            return Toy()

        with FastES(make, preset="default", n_workers=2, **SETTINGS) as model:
            learn(model, 4)
        print(hashlib.sha256(model.theta.tobytes()).hexdigest())
    """
    result = run_script(script, tmp_path)
    expected = hashlib.sha256(undisturbed.state.arrays["trainings"]["0.theta"].tobytes()).hexdigest()
    assert (result.returncode, result.stdout.split()) == (0, [expected]), result.stderr
    assert "has forked returned" in result.stderr


class Deaf(Toy):
    """Puts sockets of its own in the place of its worker's and of its pipes: that is alive, and hears nobody.

    marker: makes it once.
    """

    kept: tuple[Any, ...] = ()  # none of them may close, or their other ends would notice

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if "FASTES_WORKER" in os.environ and self._first_time(self.marker):
            for fd in map(int, os.listdir("/proc/self/fd")):
                if os.path.islink(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith(
                    ("socket:", "pipe:")
                ):
                    ours = socketpair()
                    self.kept = (*self.kept, os.dup(fd), ours)
                    os.dup2(ours[0].fileno(), fd)
        return super().reset(seed=seed, options=options)


def test_a_worker_that_is_alive_and_silent_is_replaced(undisturbed: Result, tmp_path: Path) -> None:
    env = partial(Deaf, marker=str(tmp_path / "marker"))
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=1, step_timeout=1.0, **SETTINGS) as model:
        records = learn(model, 4)
    assert any("hung" in message for message in messages)
    assert_same_records(undisturbed.records, records)


class Ready(Watched):
    """A worker without a job."""

    def __init__(self) -> None:
        super().__init__()
        self.row[JOB] = -1


@pytest.mark.parametrize(("awaited", "late"), [(True, [0, 1]), (False, [])])
def test_who_is_silent_while_jobs_wait_is_late(awaited: bool, late: list[int]) -> None:
    clock, workers = Clock(), [Ready(), Ready()]
    watch, found = HangDetector(10.0, clock), []
    for clock.now in np.arange(0.3, 12.0, 0.5):
        found += watch.check(workers, awaited)  # type: ignore[arg-type]
        if found:
            break
    assert [workers.index(who) for who, _ in found] == late  # type: ignore[arg-type]
