"""Risk: a worker, an environment, the parent or the user ends things halfway."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy, ToyError, TwoArgumentsError, UnpicklableError
from processes import alive, children, started_script, wait_until
from training import MANY, Result, assert_same, assert_same_state, learn, theta_of, train

from fastes import FastES, FastESError, WorkerCrashed, WorkerError
from fastes.noise import NoiseTable, draw_eval_seeds, draw_pairs
from fastes.parallel.process import Worker

PAIRS = 4
SETTINGS: dict[str, Any] = {
    "population_size": 2 * PAIRS,
    "policy_kwargs": {"net_arch": [4]},
    "seed": 5,
    "target_return": "none",
    "noise_table_size": 5000,
}


def env_seeds(generation: int, episodes: int = 1) -> np.ndarray[Any, Any]:
    """The env seeds (PAIRS, episodes) of a generation of a model with SETTINGS."""
    return draw_pairs(5, generation, PAIRS, episodes, 30, 5000)[1]


def seed_of(generation: int, pair: int) -> int:
    return int(env_seeds(generation)[pair, 0])


def toy(**habits: Any) -> partial[Toy]:
    return partial(Toy, **habits)


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return train(toy(), 4, **SETTINGS)


def test_env_seeds_are_those_of_the_model() -> None:
    with FastES(toy(), n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        assert (model.strategy.ask().env_seed == env_seeds(2)).all()


# --- workers that die ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def caught_warnings() -> Iterator[list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        messages: list[str] = []
        yield messages
    messages.extend(str(warning.message) for warning in caught)


@pytest.mark.parametrize("n_workers", [1, 3])
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


@pytest.mark.parametrize("n_workers", [2, 4])
def test_workers_killed_while_idle_are_replaced(n_workers: int, undisturbed: Result) -> None:
    """Nobody's job killed them: one death each is no reason to give up, however many workers there are."""
    with FastES(toy(), n_workers=n_workers, **SETTINGS) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = learn(model, 2)
        workers = children()
        assert len(workers) == n_workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in workers), "killed workers ended")
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))
        assert len(children()) == n_workers


def test_the_thread_that_started_the_workers_may_end(undisturbed: Result) -> None:
    records: list[Any] = []
    with FastES(toy(), n_workers=3, **SETTINGS) as model:
        thread = threading.Thread(target=lambda: records.extend(learn(model, 2)))
        thread.start()
        thread.join()
        time.sleep(0.2)
        with caught_warnings() as messages:
            records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))
    assert messages == []


@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_job_that_always_kills_its_worker_is_named(n_workers: int) -> None:
    seed = seed_of(1, 3)
    with FastES(toy(kill_seeds=[seed]), n_workers=n_workers, **SETTINGS) as model, warnings.catch_warnings():
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


def test_a_worker_that_cannot_start_is_no_endless_loop() -> None:
    env = toy(build_kill=True, parent_pid=os.getpid())
    with FastES(env, n_workers=2, **SETTINGS) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(WorkerCrashed, match="SIGKILL"):
            learn(model, 1)
        assert model.generation == 0
        assert children() == []


# --- environments that raise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_an_exception_reaches_the_user_whole(n_workers: int) -> None:
    seed = seed_of(2, 1)
    with FastES(toy(fail_seeds=[seed]), n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError) as caught:
            learn(model, 4)
        error = caught.value
        assert not isinstance(error, WorkerCrashed)
        assert (error.generation, error.env_seed) == (3, seed)
        assert error.job in (2, 3)
        for part in ("ToyError", "toy fails", f"candidate {error.job}", "pair 1", "generation 3", "Toy", str(seed)):
            assert part in str(error)
        assert isinstance(error.__cause__, ToyError)
        assert error.__cause__.args == ("toy fails", seed)
        shown = "".join(traceback.format_exception(error))
        assert "envs_for_tests.py" in shown
        assert "_misbehave" in shown
        assert model.generation == 2


@pytest.mark.parametrize("n_workers", [0, 2])
def test_the_env_seed_is_that_of_the_episode_that_failed(n_workers: int) -> None:
    """A candidate has several episodes, each with a seed of its own."""
    seed = int(env_seeds(0, episodes=3)[2, 1])
    with FastES(toy(fail_seeds=[seed]), n_workers=n_workers, episodes_per_candidate=3, **SETTINGS) as model:
        with pytest.raises(WorkerError) as caught:
            learn(model, 1)
        assert isinstance(caught.value.__cause__, ToyError)
        assert caught.value.__cause__.args[1] == seed
        assert caught.value.env_seed == seed


@pytest.mark.parametrize("n_workers", [0, 2])
def test_the_model_is_usable_after_an_exception(n_workers: int, tmp_path: Path, undisturbed: Result) -> None:
    switch = tmp_path / "switch"
    switch.touch()
    env = toy(fail_seeds=[seed_of(2, 1)], while_exists=str(switch))
    records: list[Any] = []
    with FastES(env, n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError):
            learn(model, 4, on_record=records.append)
        assert model.generation == len(records) == 2
        model.save(tmp_path / "m")
        assert model.predict(np.zeros(3))[0].shape == (2,)
        switch.unlink()
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_exception_in_an_evaluation_names_its_seed(n_workers: int) -> None:
    with FastES(toy(fail_seeds=[3]), n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError) as caught:
            model.evaluate(5, first_seed=0)
        assert caught.value.env_seed == 3
        assert "evaluation episode 3" in str(caught.value)
        assert model.evaluate(3, first_seed=0).returns.shape == (3,)


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("kind", [UnpicklableError, TwoArgumentsError])
def test_an_exception_that_pickle_cannot_carry_is_reported_all_the_same(kind: type[Exception], n_workers: int) -> None:
    env = toy(fail_seeds=[seed_of(0, 0)], error=kind.__name__)
    with FastES(env, n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError, match="toy fails") as caught:
            learn(model, 1)
        assert isinstance(caught.value.__cause__, kind if n_workers == 0 else kind | None)
        assert kind.__name__ in str(caught.value)


def test_an_environment_that_only_workers_cannot_build_is_reported() -> None:
    env = toy(build_error="no licence here", parent_pid=os.getpid())
    with FastES(env, n_workers=2, **SETTINGS) as model:
        with pytest.raises(WorkerError, match="no licence here") as caught:
            learn(model, 1)
        assert not isinstance(caught.value, WorkerCrashed)
        assert caught.value.job is None
        assert "built" in str(caught.value)
        assert isinstance(caught.value.__cause__, ToyError)


def test_a_generation_without_a_finite_return_changes_nothing(undisturbed: Result) -> None:
    with FastES(toy(all_nan=True), n_workers=0, **SETTINGS) as model:
        model.budget = MANY  # as learn sets it
        before = model.snapshot()
        with pytest.raises(FastESError, match="finite"):
            learn(model, 1)
        assert_same_state(before, model.snapshot())
    assert theta_of(undisturbed.state).tobytes() != theta_of(before).tobytes()


def test_a_single_bad_return_is_data() -> None:
    with FastES(toy(nan_seeds=[seed_of(0, 1)]), n_workers=0, **SETTINGS) as model:
        (record,) = learn(model, 1)
        assert record.num_nonfinite == 2
        assert np.isfinite(model.theta).all()
        assert np.isfinite([record.return_mean, record.return_max, record.gradient_norm]).all()


# --- the user and the parent -----------------------------------------------------------------------------------------


def test_interrupt_leaves_the_last_whole_generation(tmp_path: Path, undisturbed: Result) -> None:
    """A real SIGINT while workers are in the middle of generation 2."""
    marker = tmp_path / "marker"

    def interrupt() -> None:
        wait_until(lambda: marker.exists() and marker.read_text().endswith("\n"), "a worker hangs in an episode")
        os.kill(os.getpid(), signal.SIGINT)

    states: list[Any] = []
    records: list[Any] = []
    with FastES(toy(hang_seeds=[seed_of(2, 0)], marker=str(marker)), n_workers=2, **SETTINGS) as model:

        def note(record: Any) -> None:
            records.append(record)
            states.append(model.snapshot())

        sender = threading.Thread(target=interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=note)
        sender.join()
        assert model.generation == 2
        assert_same_state(states[-1], model.snapshot())
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


def test_interrupt_without_workers_leaves_the_last_whole_generation(tmp_path: Path, undisturbed: Result) -> None:
    records: list[Any] = []
    env = toy(interrupt_seeds=[seed_of(2, 3)], marker=str(tmp_path / "marker"))
    with FastES(env, n_workers=0, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=records.append)
        assert model.generation == 2
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_interrupt_while_the_noise_table_is_filled(
    n_workers: int, monkeypatch: pytest.MonkeyPatch, undisturbed: Result
) -> None:
    """Workers must never train on a table that was not filled."""
    with FastES(toy(), n_workers=n_workers, **SETTINGS) as model:
        with monkeypatch.context() as patch:

            def interrupted(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(NoiseTable, "place", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learn(model, 4)
        records = learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


def test_interrupt_in_the_confirmation_of_the_target_counts_nothing(tmp_path: Path) -> None:
    """The evaluation that confirms the target comes before the generation is whole."""
    settings = {**SETTINGS, "target_return": -1e9}
    confirming = draw_eval_seeds(5, 2**32 - 1, 20).tolist()
    env = toy(interrupt_seeds=confirming, marker=str(tmp_path / "marker"))
    with FastES(toy(), n_workers=0, **settings) as model:
        records = learn(model, 4)
        whole = Result(model.snapshot(), records)
        assert model.solved
    with FastES(env, n_workers=0, **settings) as model:
        model.budget = MANY  # as learn sets it
        before = model.snapshot()
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4)
        assert_same_state(before, model.snapshot())
        records = learn(model, 4)
        assert_same(whole, Result(model.snapshot(), records))


def test_interrupt_from_a_callback_leaves_a_whole_generation(undisturbed: Result) -> None:
    def interrupt(record: Any) -> None:
        if record.generation == 2:
            raise KeyboardInterrupt

    with FastES(toy(), n_workers=2, **SETTINGS) as model:
        with pytest.raises(KeyboardInterrupt):
            learn(model, 4, on_record=interrupt)
        learn(model, 4)
        assert_same_state(undisturbed.state, model.snapshot())


ENDLESS = """
    import envs_for_tests
    from fastes import FastES
    model = FastES(lambda: envs_for_tests.Toy(step_seconds=0.01, started="started"), n_workers=3, population_size=50, seed=0)
    model.learn()
"""


@pytest.mark.parametrize("when", ["working", "starting"])
def test_workers_die_with_a_killed_parent(when: str, tmp_path: Path) -> None:
    with started_script(ENDLESS, tmp_path) as parent:
        wait_until(lambda: len(children(parent.pid)) == 3, "three workers run")
        if when == "working":
            wait_until((tmp_path / "started").exists, "an episode was started")
        workers = children(parent.pid)
        for pid in (parent.pid, *workers):
            with contextlib.suppress(FileNotFoundError):
                assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()
    wait_until(lambda: not any(alive(pid) for pid in workers), "workers ended after their parent", 2.0)


def test_workers_die_with_a_killed_parent_even_while_they_sleep_in_an_episode(tmp_path: Path) -> None:
    """A hung-up pipe alone would not be noticed before the episode ends."""
    with started_script(ENDLESS.replace("step_seconds=0.01", "step_seconds=100.0"), tmp_path) as parent:
        wait_until((tmp_path / "started").exists, "an episode was started")
        workers = children(parent.pid)
        assert len(workers) == 3
    wait_until(lambda: not any(alive(pid) for pid in workers), "workers ended after their parent", 2.0)


# --- what workers write ----------------------------------------------------------------------------------------------


def test_lines_of_many_workers_appear_once(capfd: pytest.CaptureFixture[str]) -> None:
    with FastES(toy(noisy=True), n_workers=3, **SETTINGS) as model:
        learn(model, 3)
    lines = capfd.readouterr().err.splitlines()
    assert lines.count("toy: built") == 1
    assert lines.count("toy: reset") == 1


def test_a_line_that_comes_right_after_the_start_is_not_lost(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker is quicker than its parent: it has built its environment and played before the parent looks."""
    offer, started = Worker.offer, tmp_path / "started"

    def slow_offer(self: Worker, round_: Any) -> None:
        offer(self, round_)
        wait_until(started.exists, "an episode was started")

    monkeypatch.setattr(Worker, "offer", slow_offer)
    with FastES(toy(noisy=True, started=str(started)), n_workers=1, **SETTINGS) as model:
        learn(model, 1)
    assert capfd.readouterr().err.splitlines().count("toy: first reset of a process") == 1


def test_a_loaded_model_shows_what_its_environment_says_when_it_is_built(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with FastES("Toy-v0", env_kwargs={"noisy": True}, n_workers=2, **SETTINGS) as model:
        model.save(tmp_path / "m")
    capfd.readouterr()
    with FastES.load(tmp_path / "m", n_workers=2) as model:
        model.evaluate(2)
    assert capfd.readouterr().err.splitlines().count("toy: built") == 1
