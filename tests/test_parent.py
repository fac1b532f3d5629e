"""Risk: the user, the system or a crash ends the training process halfway."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from faults import SETTINGS, seed_of, toy
from processes import alive, children, started_script, wait_until
from training import MANY, Result, assert_same, assert_same_state, learn

from fastes import FastES
from fastes.noise import NoiseTable, draw_eval_seeds


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
