"""Risk: a worker dies, stops or hangs; its episodes are lost, counted twice, or never end."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, seed_of, toy
from processes import alive, children, sent_by_value, wait_until
from training import Result, assert_same, assert_same_records, assert_same_state, learn, theta_of, train
from watched_workers import Clock, Watched

from fastes import FastES, WorkerCrashed, WorkerTimeout
from fastes.es.perturbations import draw_eval_seeds
from fastes.pools.processes.offers import Offers
from fastes.pools.processes.process_pool import ProcessPool
from fastes.pools.processes.worker_failures import HangDetector
from fastes.pools.processes.worker_process import Worker

sent_by_value(__name__)
needs_waitid = pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system does not tell that a process is stopped")


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_killed_worker_changes_no_result(n_workers: int, tmp_path: Path, undisturbed: Result) -> None:
    env = toy(kill_seeds=[seed_of(1, 2)], marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        result = train(env, 4, n_workers, **SETTINGS)
    assert (tmp_path / "marker").exists()
    assert_same(undisturbed, result)
    (message,) = messages
    assert "SIGKILL" in message
    assert "candidate" in message
    assert "generation 2" in message
    reruns = [record.jobs_rerun for record in result.records]
    assert reruns[1] >= 1
    assert reruns[0] == reruns[2] == reruns[3] == 0


def test_a_worker_killed_in_an_evaluation_episode_changes_no_result(tmp_path: Path, undisturbed: Result) -> None:
    env = toy(kill_seeds=draw_eval_seeds(5, 2, 1).tolist(), marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        assert_same(undisturbed, train(env, 4, 2, **SETTINGS))
    (message,) = messages
    assert "evaluation episode 0" in message


def test_a_worker_killed_from_outside_changes_no_result(tmp_path: Path, undisturbed: Result) -> None:
    marker = tmp_path / "marker"

    def kill() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "a worker hangs in an episode")
        os.kill(int(marker.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with caught_warnings() as messages:
        result = train(toy(hang_seeds=[seed_of(2, 0)], marker=str(marker)), 4, 2, **SETTINGS)
    killer.join()
    assert_same(undisturbed, result)
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("segfault", "died by signal SIGSEGV"),
        ("SIGABRT", "died by signal SIGABRT"),
        ("exit", "died by exit status 7"),
        pytest.param("SIGSTOP", "was stopped by a signal", marks=needs_waitid),
    ],
)
def test_other_ways_to_lose_a_worker(death: str, words: str, tmp_path: Path, undisturbed: Result) -> None:
    env = toy(kill_seeds=[seed_of(2, 1)], marker=str(tmp_path / "marker"), death=death)
    with caught_warnings() as messages:
        result = train(env, 4, 2, **SETTINGS)
    assert_same(undisturbed, result)
    (message,) = messages
    assert words in message
    assert "generation 3" in message
    assert result.records[2].jobs_rerun >= 1


@pytest.mark.parametrize("status", [0, 4])
def test_a_worker_that_exits_is_told_with_its_own_status(
    status: int, tmp_path: Path, undisturbed: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up before it has ended; whoever kills it then reports its own signal."""
    monkeypatch.setattr("fastes.pools.processes.process_pool.END_SECONDS", 60.0)  # it ends when a busy machine lets it

    class Quitter(Toy):
        def _misbehave(self) -> None:
            if self.env_seed == seed_of(1, 2) and self._first_time(str(tmp_path / "marker")):
                atexit.register(time.sleep, 0.2)
                sys.exit(status)

    with caught_warnings() as messages:
        result = train(Quitter, 4, 2, **SETTINGS)
    assert_same_records(undisturbed.records, result.records)
    (message,) = messages
    assert f"died by exit status {status} in Quitter, generation 2" in message


def test_a_worker_that_exits_and_cannot_is_replaced(tmp_path: Path, undisturbed: Result) -> None:
    """A thread that it leaves behind keeps its process."""

    class Quitter(Toy):
        def _misbehave(self) -> None:
            if self.env_seed == seed_of(1, 2) and self._first_time(str(tmp_path / "marker")):
                threading.Thread(target=time.sleep, args=(100.0,)).start()
                sys.exit(4)

    with caught_warnings() as messages:
        result = train(Quitter, 4, 2, **SETTINGS)
    assert_same_records(undisturbed.records, result.records)
    (message,) = messages
    assert "hung up and did not end in Quitter, generation 2" in message


@needs_waitid
def test_a_stopped_worker_is_noticed_within_a_second(tmp_path: Path) -> None:
    """No deadline is waited for, and a worker that has nothing to do is noticed as well."""
    marker = tmp_path / "marker"
    env = toy(hang_seeds=[seed_of(0, 0)], marker=str(marker))
    times: list[float] = []

    def stop() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "a worker hangs in an episode")
        for pid in children():
            os.kill(pid, signal.SIGSTOP)
        times.append(time.monotonic())

    stopper = threading.Thread(target=stop)
    stopper.start()
    with (
        FastES(env, preset="default", n_workers=2, step_timeout=500.0, **SETTINGS) as model,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        shown: list[float] = []
        show, warnings.showwarning = warnings.showwarning, lambda *_, **__: shown.append(time.monotonic())
        learn(model, 1)
        warnings.showwarning = show
    stopper.join()
    assert len(shown) + len(caught) == 2
    assert max(shown) - times[0] < 60.0, "far from the deadline, even on a machine that is busy"


def test_a_step_that_never_returns_is_ended(tmp_path: Path, undisturbed: Result) -> None:
    env = toy(hang_seeds=[seed_of(1, 1)], marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        result = train(env, 4, 2, **{**SETTINGS, "step_timeout": 1.0})
    assert_same_records(undisturbed.records, result.records)
    assert theta_of(undisturbed.state).tobytes() == theta_of(result.state).tobytes()
    (message,) = messages
    for words in ("hung", "step_timeout", "generation 2", "pair 1", str(seed_of(1, 1))):
        assert words in message


def test_an_environment_that_hangs_while_it_is_built_does_not_stop_the_others(
    tmp_path: Path, undisturbed: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastes.pools.processes.worker_process.CLOSE_SECONDS", 1.0)
    env = toy(build_hang=str(tmp_path / "marker"), parent_pid=os.getpid())
    started = time.monotonic()
    assert_same(undisturbed, train(env, 4, 2, **SETTINGS))
    assert time.monotonic() - started < 60.0
    assert (tmp_path / "marker").exists()


def test_a_step_that_hangs_each_time_is_named() -> None:
    seed = seed_of(1, 3)
    with (
        FastES(toy(hang_seeds=[seed]), preset="default", n_workers=2, step_timeout=0.5, **SETTINGS) as model,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        with pytest.raises(WorkerTimeout) as caught:
            learn(model, 4)
        assert (caught.value.generation, caught.value.env_seed) == (2, seed)
        for words in ("hung", "step_timeout", f"model.replay(2, {caught.value.job})", str(seed)):
            assert words in str(caught.value)


@pytest.mark.slow
def test_slow_steps_are_no_hang(undisturbed: Result) -> None:
    """The time counts from step to step: an episode may take longer than the deadline."""
    with caught_warnings() as messages:
        result = train(toy(step_seconds=0.1), 1, 3, **{**SETTINGS, "step_timeout": 1.2})
    assert messages == []
    assert result.records[0].seconds > 1.2
    assert_same_records(undisturbed.records[:1], result.records)


def test_the_deadline_is_learned() -> None:
    clock = Clock()
    watch = HangDetector(None, clock)
    assert watch.limit == 600.0
    for seconds, longest in ((0.1, 0.1), (30.0, 30.0), (1.0, 1.0)):
        begun = watch.counted
        for _ in range(int(seconds / 0.5) + 1):
            clock.now += 0.5
            watch.check([])
        watch.learn(longest, begun)
    assert watch.limit == 600.0
    assert HangDetector(7.0).limit == 7.0


def test_a_night_of_suspension_is_no_long_episode() -> None:
    """Hours by the wall clock, of which a few seconds were seen, teach a few seconds."""
    clock = Clock()
    watch = HangDetector(None, clock)
    begun = watch.counted
    for clock.now in (0.3, 0.6, 28800.0, 28800.3):
        watch.check([])
    watch.learn(28800.0, begun)
    assert watch.limit == 60.0


def test_a_training_that_was_suspended_blames_nobody() -> None:
    """After Ctrl-Z and `fg`, hours have passed, and workers may look stopped once."""
    clock, worker = Clock(), Watched()
    watch = HangDetector(10.0, clock)
    for clock.now in (0.3, 0.6, 7200.0):
        worker.stopped = clock.now == 7200.0
        assert watch.check([worker]) == []  # type: ignore[list-item]
    worker.stopped = False
    for clock.now in np.arange(7200.5, 7208.0, 0.5):
        assert watch.check([worker]) == []  # type: ignore[list-item]
    for clock.now in np.arange(7208.0, 7212.0, 0.5):
        found = watch.check([worker])  # type: ignore[list-item]
    ((who, what),) = found
    assert who is worker
    assert "hung" in what


def test_workers_killed_while_idle_are_replaced(undisturbed: Result) -> None:
    """Nobody's job killed them: one death each is no reason to give up, however many workers there are."""
    n_workers, spare = 4, 2
    with FastES(toy(), preset="default", n_workers=n_workers, **SETTINGS) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = learn(model, 2)
        workers = children()
        assert len(workers) == n_workers + spare
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in workers), "killed workers ended")
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))
        assert len(children()) == n_workers + spare


def test_workers_leave_polite_signals_to_their_parent(undisturbed: Result) -> None:
    """Batch systems and terminals send them to every process; the parent decides what to do."""
    with FastES(toy(), preset="default", n_workers=2, **SETTINGS) as model:
        records = learn(model, 2)
        workers = children()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            for pid in workers:
                os.kill(pid, number)
        with caught_warnings() as messages:
            records += learn(model, 4)
        assert messages == []
        assert sorted(children()) == sorted(workers)
        assert_same(undisturbed, Result(model.snapshot(), records))


def test_the_thread_that_started_the_workers_may_end(undisturbed: Result) -> None:
    records: list[Any] = []
    with FastES(toy(), preset="default", n_workers=3, **SETTINGS) as model:
        thread = threading.Thread(target=lambda: records.extend(learn(model, 2)))
        thread.start()
        thread.join()
        time.sleep(0.2)
        with caught_warnings() as messages:
            records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))
    assert messages == []


def test_a_job_that_always_kills_its_worker_is_named() -> None:
    seed = seed_of(1, 3)
    with FastES(toy(kill_seeds=[seed]), preset="default", n_workers=2, **SETTINGS) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before: list[Any] = []
        with pytest.raises(WorkerCrashed) as caught:
            learn(model, 4, on_record=lambda _: before.append(model.snapshot()))
        error = caught.value
        assert (error.generation, error.env_seed) == (2, seed)
        assert error.job in (6, 7)
        for part in (f"candidate {error.job}", "pair 3", "generation 2", "Toy", str(seed), "SIGKILL"):
            assert part in str(error)
        assert_same_state(before[-1], model.snapshot())
        assert model.evaluate(2, first_seed=0).returns.shape == (2,)


class Dying(Toy):
    """Ends its process in each episode."""

    def step(self, action: Any) -> Any:
        os._exit(3)


@pytest.mark.slow
def test_where_no_episode_is_ever_finished_few_are_tried() -> None:
    """Each job has three tries, and a generation many jobs: minutes, or hours where each try has to time out."""
    message = "6 workers were lost before any episode was finished, the last one in .*status 3"
    settings = {**SETTINGS, "population_size": 100}
    with FastES(Dying, preset="default", n_workers=1, **settings) as model, caught_warnings() as messages:  # noqa: SIM117
        with pytest.raises(WorkerCrashed, match=message):
            learn(model, 1)
    assert len(messages) == 2
    assert messages[1].endswith("until an episode is finished, further losses are only counted")


class Doomed(Toy):
    """The first one that is built plays an episode without end; a thread of any other ends its process when that is ready."""

    def __init__(self, marker: str, parent: int) -> None:
        super().__init__(hang_seeds=range(1000), at_step=1)
        if os.getpid() != parent and not self._first_time(marker):
            threading.Thread(target=self._end, daemon=True).start()

    @staticmethod
    def _end() -> None:
        main = threading.main_thread().ident
        while "in work\n" not in "".join(traceback.format_stack(sys._current_frames()[main or 0])):
            time.sleep(0.005)
        os._exit(7)


def test_workers_that_die_again_and_again_outside_any_episode_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are ready, and would be replaced for ever while nobody finishes an episode."""
    monkeypatch.setattr("fastes.pools.processes.worker_failures.MAX_IDLE", 2)
    env = partial(Doomed, str(tmp_path / "marker"), os.getpid())
    message = r"2 workers were lost outside any episode; the last one died by exit status 7"
    with FastES(env, preset="default", n_workers=2, **SETTINGS) as model, caught_warnings() as messages:
        with pytest.raises(WorkerCrashed, match=message):
            model.evaluate(1, first_seed=0)
        assert children() == []
    assert 1 <= len(messages) <= 3, "one more where a doomed one was the first to play"


def test_workers_killed_now_and_then_while_idle_end_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often: episodes are finished in between."""
    monkeypatch.setattr("fastes.pools.processes.worker_failures.MAX_IDLE", 2)

    def kill(_: Any) -> None:
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), "the worker ended")

    with FastES(toy(), preset="default", n_workers=1, **{**SETTINGS, "eval_lag": 0}) as model, caught_warnings() as messages:
        learn(model, 3, on_record=kill)
    assert len([message for message in messages if "outside any episode" in message]) == 2


@pytest.mark.slow
def test_a_slow_starter_gets_no_pile_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others finish hundreds of generations while one worker builds its environment; its pipe must not fill up."""
    monkeypatch.setattr("fastes.pools.processes.worker_process.CLOSE_SECONDS", 1.0)
    env = toy(build_hang=str(tmp_path / "marker"), parent_pid=os.getpid())
    started = time.monotonic()
    with FastES(env, preset="default", n_workers=2, **SETTINGS) as model:
        learn(model, 1000)
        assert time.monotonic() - started < 60.0
        assert (tmp_path / "marker").exists()
        assert len(children()) == 2


def test_a_worker_that_cannot_start_is_no_endless_loop() -> None:
    env = toy(build_kill=True, parent_pid=os.getpid())
    with FastES(env, preset="default", n_workers=1, **SETTINGS) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(WorkerCrashed, match="SIGKILL"):
            learn(model, 1)
        assert model.generation == 0
        assert children() == []


# --- what workers write ----------------------------------------------------------------------------------------------


def test_lines_of_many_workers_appear_once(capfd: pytest.CaptureFixture[str]) -> None:
    with FastES(toy(noisy=True), preset="default", n_workers=3, **SETTINGS) as model:
        learn(model, 3)
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("toy: built") == 1
    assert lines.count("toy: reset") == 1


def test_a_line_that_comes_right_after_the_start_is_not_lost(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker is quicker than its parent: it has built its environment and played before the parent looks."""
    wake, started = Offers.wake, tmp_path / "started"

    def slow_wake(self: Offers, count: int) -> None:
        wake(self, count)
        wait_until(started.exists, "an episode was started")

    monkeypatch.setattr(Offers, "wake", slow_wake)
    with FastES(toy(noisy=True, started=str(started)), preset="default", n_workers=1, **SETTINGS) as model:
        learn(model, 1)
    assert capfd.readouterr().err.splitlines().count("toy: first reset of a process") == 1


def test_a_loaded_model_shows_what_its_environment_says_when_it_is_built(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with FastES("Toy-v0", preset="default", env_kwargs={"noisy": True}, n_workers=2, **SETTINGS) as model:
        model.save(tmp_path / "m")
    capfd.readouterr()
    with FastES.load(tmp_path / "m", n_workers=2) as model:
        model.evaluate(2)
    assert capfd.readouterr().err.splitlines().count("toy: built") == 1


# --- starting and stopping at bad moments ----------------------------------------------------------------------------


@needs_waitid
def test_a_large_environment_does_not_go_through_a_pipe() -> None:
    """Workers that are stopped before they read a word, with megabytes to read: the parent goes on."""
    ballast = np.zeros(3_000_000)

    def large() -> Toy:
        assert ballast.size
        return Toy()

    stopped: list[int] = []
    popen = subprocess.Popen.__init__

    def stop_the_first(self: Any, *arguments: Any, **kwargs: Any) -> None:
        popen(self, *arguments, **kwargs)
        if not stopped:
            stopped.append(self.pid)
            os.kill(self.pid, signal.SIGSTOP)

    with pytest.MonkeyPatch.context() as patch, caught_warnings() as messages:
        patch.setattr(subprocess.Popen, "__init__", stop_the_first)
        with FastES(large, preset="default", n_workers=2, **SETTINGS) as model:
            learn(model, 2)
            wait_until(
                lambda: bool(learn(model, model.generation + 1)) and not alive(stopped[0]), "the stopped one is replaced"
            )
    assert any("was stopped" in message for message in messages)


@pytest.mark.parametrize("how", ["redirect", "close"])
def test_an_environment_that_silences_its_output_works_as_any_other(how: str, undisturbed: Result) -> None:
    parent = os.getpid()

    def silent() -> Toy:
        if os.getpid() != parent:
            if how == "redirect":
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            else:
                os.close(2)
        return Toy()

    ends = Counter[Worker]()
    read_stderr = Worker.read_stderr

    def count(self: Worker) -> tuple[list[str], bool]:
        lines, open_ = read_stderr(self)
        ends[self] += not open_
        return lines, open_

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "read_stderr", count)
        result = train(silent, 4, 2, **SETTINGS)
    assert_same_records(undisturbed.records, result.records)
    per_generation = max(ends.values()) / len(result.records)
    assert per_generation <= 20, "an end of file is looked at once, and once more with each message, of which jobs have few"


@pytest.mark.parametrize("begin", [b"\r%d ", b"%d "])
def test_a_worker_that_never_ends_its_line_fills_no_memory(begin: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    class Bar(Toy):
        def step(self, action: Any) -> Any:
            os.write(2, begin % self.steps + b"=" * 2000)
            return super().step(action)

    with FastES(Bar, preset="default", n_workers=1, **SETTINGS) as model:
        learn(model, 3)
        pool: Any = model.evaluator.pool
        (worker,) = pool.workers.values()
        assert len(worker.last_output()) <= 1 << 17, "30 lines, and 64 KiB of one that has not ended"
    assert ("1 ===" in capfd.readouterr().err) == begin.startswith(b"\r"), "progress bars are shown"


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="all signals of this system have names")
def test_a_signal_without_a_name_is_survived(tmp_path: Path, undisturbed: Result) -> None:
    number = signal.SIGRTMIN + 1
    env = toy(kill_seeds=[seed_of(2, 1)], marker=str(tmp_path / "marker"), death=str(int(number)))
    with caught_warnings() as messages:
        assert_same_records(undisturbed.records, train(env, 4, 2, **SETTINGS).records)
    assert f"signal {int(number)}" in messages[0]


def test_workers_of_an_interrupted_call_do_not_write_into_the_next() -> None:
    """A second Ctrl-C that comes while the workers are being ended."""
    with FastES(toy(step_seconds=0.02), preset="default", n_workers=2, **SETTINGS) as model:
        learn(model, 1)
        expected = model.evaluate(3, first_seed=0).returns
        pool: Any = model.evaluator.pool
        with pytest.MonkeyPatch.context() as patch:

            def interrupted(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(HangDetector, "check", interrupted)
            patch.setattr(ProcessPool, "kill", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.evaluate(8, first_seed=100)
        left = sorted(children())
        assert len(left) == 2
        assert model.evaluate(3, first_seed=0).returns.tolist() == expected.tolist()
        assert not set(left) & set(children())
        assert pool is model.evaluator.pool
