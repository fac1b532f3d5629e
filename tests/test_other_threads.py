"""Risk: another thread changes or ends a model while one trains it, and the training fails where nobody looks."""

from __future__ import annotations

import copy
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from faults import SETTINGS, toy
from training import Result, assert_same_records, learn

from fastes import FastES, FastESError

CHANGES: dict[str, Callable[[FastES], Any]] = {
    "learn()": lambda model: model.learn(100),
    "evaluate()": lambda model: model.evaluate(1),
    "replay()": lambda model: model.replay(2, 0),
    "close()": lambda model: model.close(),
    "set_env()": lambda model: model.set_env(Toy),
    "set_parameters()": lambda model: model.set_parameters(model.get_parameters()),
    "set_random_seed()": lambda model: model.set_random_seed(7),
    "set_obs_statistics()": lambda model: model.set_obs_statistics(np.zeros(3), np.ones(3), 1),
    "loading parameters": lambda model: model.policy.load_state_dict(model.policy.state_dict()),
    "setting num_timesteps": lambda model: setattr(model, "num_timesteps", 0),
}


@pytest.mark.parametrize("n_workers", [0, 2])
def test_what_changes_a_model_waits_for_the_thread_that_trains(n_workers: int, undisturbed: Result) -> None:
    model = FastES(toy(), preset="default", n_workers=n_workers, normalize_obs=True, **SETTINGS)
    in_generation, go_on = threading.Event(), threading.Event()
    records: list[Any] = []

    def wait(record: Any) -> None:
        if record.generation == 1:
            in_generation.set()
            assert go_on.wait(60.0)

    thread = threading.Thread(target=lambda: records.extend(learn(model, 4, on_record=wait)), name="trainer")
    thread.start()
    try:
        assert in_generation.wait(60.0)
        for name, change in CHANGES.items():
            with pytest.raises(FastESError, match=r"while learn\(\) in thread 'trainer' is at work") as caught:
                change(model)
            assert str(caught.value).startswith(name)
        saved = io.BytesIO()
        model.save(saved)
        twin = copy.deepcopy(model)
        assert twin.generation == model.generation == 1
        assert (
            model.predict(np.zeros(3), deterministic=True)[0].tobytes()
            == twin.predict(np.zeros(3), deterministic=True)[0].tobytes()
        )
        twin.close()
    finally:
        go_on.set()
        thread.join()
    assert_same_records(undisturbed.records, records)
    model.close()


class Held(Toy):
    """Says that it plays, and stops until it may go on. folder: where both are files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.begun, self.free = folder / "begun", folder / "free"

    def step(self, action: Any) -> Any:
        self.begun.touch()
        while not self.free.exists():
            time.sleep(0.01)
        return super().step(action)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_nor_does_it_harm_episodes_that_are_played(n_workers: int, undisturbed: Result, tmp_path: Path) -> None:
    model = FastES(lambda: Held(tmp_path), preset="default", n_workers=n_workers, **SETTINGS)
    records: list[Any] = []
    thread = threading.Thread(target=lambda: records.extend(learn(model, 4)), name="trainer")
    thread.start()
    try:
        ends_at = time.monotonic() + 60.0
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < ends_at
            time.sleep(0.01)
        for change in CHANGES.values():
            with pytest.raises(FastESError, match="is at work"):
                change(model)
    finally:
        (tmp_path / "free").touch()
        thread.join()
    assert_same_records(undisturbed.records, records)
    model.close()


def test_a_callback_may_close_its_model(undisturbed: Result) -> None:
    """It runs in the thread that trains: workers start anew."""
    model = FastES(toy(), preset="default", n_workers=1, **SETTINGS)
    assert_same_records(undisturbed.records, learn(model, 4, on_record=lambda _: model.close()))
    model.close()


def test_threads_that_predict_get_their_own_actions() -> None:
    """The model's actor is there once; a server's threads, and a callback, share it."""
    large = {**SETTINGS, "policy_kwargs": {"net_arch": [800, 800]}, "noise_table_size": 700_000}
    random = np.random.default_rng(0)
    with FastES(toy(), preset="default", n_workers=0, **large) as model:
        model.policy.load_from_vector(random.normal(size=model.num_params) / 20)
        observations = random.normal(size=(4, 60, 3))
        expected = [model.predict(rows, deterministic=True)[0] for rows in observations]
        found: list[Any] = [None] * 4

        def act(number: int) -> None:
            found[number] = [model.predict(row, deterministic=True)[0] for row in observations[number]]

        threads = [threading.Thread(target=act, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert np.array(found).tobytes() == np.array(expected).tobytes()
