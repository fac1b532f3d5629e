"""Risk: what an environment has started outlives its worker, because nobody calls env.close; or closing holds somebody up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from closing_envs import Simulated, Slow, Stubborn, Unclosable
from envs_for_tests import Toy
from faults import SETTINGS, caught_warnings, seed_of
from processes import alive, children, run_fastes, run_script, wait_until
from training import Result, assert_same_records, learn, train

from fastes import FastES, WorkerError
from fastes.envs.closing import close_env
from fastes.pools.processes import process_pool
from fastes.pools.processes.worker_process import end_gracefully
from fastes.training.record import Record


@pytest.fixture(autouse=True)
def _time_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is loaded; tests that are about env.close that hangs set it back."""
    monkeypatch.setattr("fastes.pools.processes.worker_process.CLOSE_SECONDS", 60.0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "log"
    yield path
    for pid in started(path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def started(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split() if int(line) > 0] if log.exists() else []


def all_closed(log: Path) -> bool:
    numbers = [int(line) for line in log.read_text().split()]
    return sorted(n for n in numbers if n > 0) == sorted(-n for n in numbers if n < 0)


def all_ready(model: FastES) -> bool:
    """Whether each worker has its environment; one that is still building holds up nobody, short trainings neither."""
    pool: Any = model.evaluator.pool
    return all(worker.ready for worker in pool.workers.values()) if model.n_workers else True


def learn_with_all(model: FastES, generations: int) -> list[Record]:
    """Go on until so many are done, and wait for workers that start late."""
    records = learn(model, generations)
    wait_until(lambda: all_ready(model), "every worker has its environment")
    return records


def assert_all_ended(log: Path, at_least: int) -> None:
    assert len(started(log)) >= at_least
    assert all_closed(log)
    assert not any(alive(pid) for pid in started(log))


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("how", ["program", "fork"])
def test_closing_a_model_closes_its_environments(how: str, n_workers: int, log: Path) -> None:
    """A process that was forked must end by SIGTERM, or its environment waits for it without end."""
    with FastES(partial(Simulated, str(log), how), preset="default", n_workers=n_workers, **SETTINGS) as model:
        learn_with_all(model, 2)
        assert len(started(log)) == max(1 + n_workers, 2)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60.0
    assert_all_ended(log, 1)


def test_workers_of_an_idle_pool_end_by_themselves() -> None:
    with FastES(Toy, preset="default", n_workers=2, **SETTINGS) as model:
        learn_with_all(model, 1)
        pool: Any = model.evaluator.pool
        workers = list(pool.workers.values())
    assert [worker.process.returncode for worker in workers] == [0, 0]


@pytest.mark.parametrize("kind", [Simulated, Stubborn])
@pytest.mark.parametrize("end", ["error", "interrupt"])
def test_workers_in_the_middle_of_an_episode_close_their_environments(
    end: str, kind: type[Simulated], log: Path, tmp_path: Path
) -> None:
    """Others raise, or the user presses Ctrl-C, while one sleeps in a step."""
    marker, switch = tmp_path / "marker", tmp_path / "switch"
    habits: dict[str, Any] = {"hang_seeds": [seed_of(0, 0)], "marker": str(marker)}

    class Waiting(kind):  # type: ignore[valid-type, misc]
        def _misbehave(self) -> None:
            if end == "error" and self.env_seed == seed_of(0, 3):
                wait_until(switch.exists, "told to raise")
                raise ValueError("this one raises")
            super()._misbehave()

    def meddle() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "a worker sleeps in a step")
        if end == "error":
            switch.touch()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    meddler = threading.Thread(target=meddle)
    with FastES(partial(Waiting, str(log), **habits), preset="default", n_workers=2, **SETTINGS) as model:
        meddler.start()
        with caught_warnings() as messages, pytest.raises(WorkerError if end == "error" else KeyboardInterrupt):
            learn(model, 2)
        meddler.join()
        assert messages == []
        assert children() == []
    assert_all_ended(log, 2)


def test_a_worker_that_hangs_closes_its_environment_before_it_is_replaced(
    log: Path, tmp_path: Path, undisturbed: Result
) -> None:
    env = partial(Simulated, str(log), hang_seeds=[seed_of(1, 1)], marker=str(tmp_path / "marker"))
    with caught_warnings() as messages:
        result = train(env, 4, 2, **{**SETTINGS, "step_timeout": 1.0})
    assert_same_records(undisturbed.records, result.records)
    (message,) = messages
    assert "hung" in message
    assert_all_ended(log, 3)


def test_a_stopped_worker_is_waited_for_by_nobody(log: Path) -> None:
    with FastES(partial(Simulated, str(log)), preset="default", n_workers=2, **SETTINGS) as model:
        learn_with_all(model, 1)
        pool: Any = model.evaluator.pool
        os.kill(pool.workers[0].process.pid, signal.SIGSTOP)
        begun = time.monotonic()
    assert time.monotonic() - begun < 60.0
    assert children() == []
    assert len([line for line in log.read_text().split() if line.startswith("-")]) == 2, "the parent's, and the other's"


@pytest.mark.parametrize("closing", ["raise", "print", "exit"])
def test_a_close_that_raises_or_prints_does_no_harm(
    closing: str, log: Path, undisturbed: Result, capfd: pytest.CaptureFixture[str]
) -> None:
    env = partial(Simulated, str(log), closing=closing, worker_only=os.getpid())
    begun = time.monotonic()
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=2, **SETTINGS) as model:
        records = learn_with_all(model, 4)
    assert time.monotonic() - begun < 60.0
    assert messages == []
    assert_same_records(undisturbed.records, records)
    assert_all_ended(log, 3)
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert ("env.close of Simulated raised" in err) == (closing != "print")


def test_a_close_that_hangs_is_ended_with_one_warning(log: Path, undisturbed: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.pools.processes.worker_process.CLOSE_SECONDS", 1.0)
    together: list[int] = []
    monkeypatch.setattr(
        process_pool, "end_gracefully", lambda workers, show: together.append(len(workers)) or end_gracefully(workers, show)
    )
    env = partial(Simulated, str(log), closing="hang", worker_only=os.getpid())
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=3, **SETTINGS) as model:
        records = learn_with_all(model, 4)
    assert together == [3], "all are waited for together"
    assert_same_records(undisturbed.records, records)
    (message,) = messages
    for word in ("env.close of Simulated", "did not return within 1 s", "3 of the workers", "killed"):
        assert word in message
    assert children() == []


@pytest.mark.parametrize(
    ("n_workers", "end"),
    [
        (0, ""),
        (0, "raise ValueError('the script fails')"),
        (0, "import json; json.model = model"),
        (0, "sys.exit(3)"),
        (1, ""),
        (1, "import json; json.model = model"),
    ],
)
def test_a_script_that_ends_without_close_closes_its_environments(n_workers: int, end: str, log: Path) -> None:
    script = f"""
        import sys
        from functools import partial
        from faults import SETTINGS
        from closing_envs import Simulated
        from training import learn
        from fastes import FastES
        model = FastES(partial(Simulated, {str(log)!r}), n_workers={n_workers}, **SETTINGS)
        learn(model, 1)
        {end}
    """
    result = run_script(script, log.parent)
    assert "Warning" not in result.stderr
    assert result.returncode == (0 if "json" in end or not end else 3 if "exit" in end else 1)
    numbers = [int(line) for line in log.read_text().split()]
    own = [numbers[0]] if "json" in end else []  # the parent's own environment is its model's to close
    wait_until(lambda: not any(alive(pid) for pid in set(started(log)) - set(own)), "programs of the environments ended")


def test_environments_of_a_training_in_a_thread_are_closed_at_the_end(log: Path) -> None:
    """As in a program with a window. Linux ends workers with the thread that started them: it lives until they are closed."""
    script = f"""
        import threading
        from functools import partial
        from faults import SETTINGS
        from closing_envs import Simulated
        from training import learn
        from fastes import FastES

        def train():
            global model
            model = FastES(partial(Simulated, {str(log)!r}), n_workers=2, **SETTINGS)
            learn(model, 1)

        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    """
    result = run_script(script, log.parent)
    assert (result.returncode, result.stderr) == (0, "")
    wait_until(lambda: not any(alive(pid) for pid in started(log)[1:]), "programs of the environments ended")
    assert len(started(log)) > 1


# --- in this process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.filterwarnings("ignore:ToyError")
def test_an_environment_that_is_built_anew_is_closed_before(n_workers: int, log: Path) -> None:
    env = partial(Simulated, str(log), fail_seeds=[seed_of(0, 1), seed_of(1, 2)])
    train(env, 2, n_workers, **{**SETTINGS, "on_env_error": "penalise"})
    assert_all_ended(log, 2 + 4)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_environment_that_raised_is_closed(n_workers: int, log: Path) -> None:
    env = partial(Simulated, str(log), fail_seeds=[seed_of(0, 1)])
    with FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError):
            learn(model, 1)
        assert [pid for pid in started(log) if alive(pid)] == []
    assert_all_ended(log, 2)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_environment_that_cannot_be_used_is_closed(n_workers: int, log: Path) -> None:
    """It is there, and then something else raises before it is played on."""

    class Changing(Simulated):
        def __init__(self, *arguments: Any, **habits: Any) -> None:
            super().__init__(*arguments, **habits)
            if len(started(Path(self.log))) > 1:
                del self.observation_space

    with (
        FastES(partial(Changing, str(log)), preset="default", n_workers=n_workers, **SETTINGS) as model,
        pytest.raises(Exception),  # noqa: B017
    ):
        learn(model, 1)
    assert_all_ended(log, 2)


def test_an_environment_that_is_being_built_is_closed_when_it_is_whole(log: Path, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    env = partial(Slow, str(log), str(tmp_path / "slow"), os.getpid())
    with FastES(env, preset="default", n_workers=2, **SETTINGS) as model:
        model.evaluator.start()
        wait_until(lambda: (tmp_path / "slow").read_text().count("building") == 2, "two workers build")
    assert_all_ended(log, 3)
    assert all_closed(log)


def test_an_interrupt_while_an_environment_is_built_anew_leaves_none(log: Path, tmp_path: Path) -> None:
    """After an exception that only costs an episode its rank."""
    slow = tmp_path / "slow"
    env = partial(Slow, str(log), str(slow), os.getpid(), fail_seeds=[seed_of(1, pair) for pair in range(4)])

    def interrupt() -> None:
        wait_until(lambda: slow.exists() and "building" in slow.read_text(), "an environment is built anew")
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    with FastES(env, preset="default", n_workers=2, **{**SETTINGS, "on_env_error": "penalise"}) as model, caught_warnings():
        learn_with_all(model, 1)
        slow.touch()
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4)
        sender.join()
    assert_all_ended(log, 4)
    assert all_closed(log)


def test_the_warning_of_a_close_that_hangs_comes_before_an_interrupt(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.pools.processes.worker_process.CLOSE_SECONDS", 1.0)
    env = partial(Simulated, str(log), closing="hang", worker_only=os.getpid())
    model = FastES(env, preset="default", n_workers=1, **SETTINGS)
    learn_with_all(model, 1)

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return end_gracefully(*arguments)

    monkeypatch.setattr(process_pool, "end_gracefully", interrupted)
    with caught_warnings() as messages, pytest.raises(KeyboardInterrupt):
        model.close()
    assert any("env.close" in message for message in messages)


def test_a_worker_that_meets_a_training_while_it_imports_closes_its_environment(log: Path, tmp_path: Path) -> None:
    (tmp_path / "trains.py").write_text("from fastes import FastES\nFastES('CartPole-v1', n_workers=2).learn(100)\n")
    result = run_script(
        f"""
        import sys, time
        from closing_envs import Simulated
        from fastes import FastES
        class Importing(Simulated):
            def step(self, action):
                while open(self.log).read().count("\\n") < 3:
                    time.sleep(0.01)  # until both workers have an environment, beside this process
                import trains
                return super().step(action)
            def close(self):
                time.sleep(0.5)  # the parent asks both workers to leave meanwhile
                super().close()
        FastES(lambda: Importing({str(log)!r}), n_workers=2, population_size=4).learn(100)
        """,
        tmp_path,
    )
    assert "starts a training while it is imported" in result.stderr
    assert_all_ended(log, 2)


def test_a_process_that_is_ended_as_soon_as_it_was_forked_ends(tmp_path: Path) -> None:
    """A worker has a handler of SIGTERM; what came to the copy before it ran was dropped, and its parent waited for ever."""
    result = run_script(
        """
        import multiprocessing, os, time
        from fastes.pools.processes import worker
        worker.leave_signals_to_parent(lambda *_: None)
        worker.watch_forks()
        alive = 0
        for _ in range(20):
            process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100.0,), daemon=True)
            process.start()
            process.terminate()
            process.join(60.0)
            alive += process.is_alive()
            process.kill()
            if alive:
                break
        print("alive", alive)
        """,
        tmp_path,
    )
    assert result.stdout.split() == ["alive", "0"], result.stderr


# --- close that raises in this process -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("how", ["raise", "exit"])
def test_what_close_raises_here_is_a_warning(how: str, n_workers: int, undisturbed: Result) -> None:
    env = partial(Unclosable, how)
    with caught_warnings() as messages, FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
        records = learn(model, 4)
        assert len(model.evaluate(2).returns) == 2
        assert model.replay(5, 0).length > 0
        assert model.env.how == how
        model.set_env(env)
    assert_same_records(undisturbed.records, records)
    assert set(messages) == {
        f"env.close of Unclosable raised {'SystemExit: 3' if how == 'exit' else 'ValueError: close raises'}; nothing else is "
        "lost; what it has started may still run"
    }


def test_the_warning_of_a_close_points_at_the_line_of_the_user() -> None:
    with pytest.warns(RuntimeWarning, match=r"env\.close of Unclosable raised") as caught:
        FastES(partial(Unclosable, "raise"), preset="default", n_workers=0, **SETTINGS).close()
    assert {warning.filename for warning in caught} == {__file__}


def test_a_close_that_takes_long_here_is_named(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fastes.envs.closing.LATE_SECONDS", 0.01)
    said: list[str] = []

    class Slow(Toy):
        def close(self) -> None:
            wait_until(lambda: said.append(capfd.readouterr().err) or "Ctrl-C ends it" in "".join(said), "it is named")

    close_env(Slow())
    assert "env.close of Slow has not returned for 0.01 s: Ctrl-C ends it" in "".join(said)


@pytest.mark.slow
def test_a_run_whose_environment_cannot_be_closed_is_finished(tmp_path: Path) -> None:
    (tmp_path / "unclosable.py").write_text(
        "import gymnasium\ngymnasium.register('Unclosable-v0', 'closing_envs:Unclosable', max_episode_steps=20)\n"
    )
    small = ["--population-size", "4", "--noise-table-size", "20000", "--preset", "default", "--workers", "1", "--seed", "0"]
    result = run_fastes("train", "unclosable:Unclosable-v0", "--total-timesteps", "300", *small, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "Unclosable-v0 raised ValueError: close raises" in result.stderr
    (config,) = (tmp_path / "runs").rglob("config.toml")
    assert "finished = true" in config.read_text()
    played = run_fastes("play", str(config.parent), "--env", "unclosable:Unclosable-v0", cwd=tmp_path)
    assert (played.returncode, "return" in played.stdout) == (0, True), played.stderr
