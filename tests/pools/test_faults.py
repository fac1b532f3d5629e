"""Risk: an environment raises, and the training ends without saying where, or with half a generation."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy, ToyError, TwoArgumentsError, UnpicklableError
from faults import SETTINGS, caught_warnings, env_seeds, seed_of, toy
from processes import sent_by_value
from training import MANY, Result, assert_same, assert_same_state, learn, theta_of

from fastes import FastES, FastESError, WorkerCrashed, WorkerError

sent_by_value(__name__)


def test_env_seeds_are_those_of_the_model() -> None:
    with FastES(toy(), preset="default", n_workers=0, **SETTINGS) as model:
        learn(model, 2)
        assert (model.strategy.ask().env_seed == env_seeds(2)).all()


@pytest.mark.parametrize("n_workers", [0, 3])
def test_an_exception_reaches_the_user_whole(n_workers: int) -> None:
    seed = seed_of(2, 1)
    with FastES(toy(fail_seeds=[seed]), preset="default", n_workers=n_workers, **SETTINGS) as model:
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


@pytest.mark.parametrize("n_workers", [0, 1])
def test_the_env_seed_is_that_of_the_episode_that_failed(n_workers: int) -> None:
    """A candidate has several episodes, each with a seed of its own."""
    seed = int(env_seeds(0, episodes=3)[2, 1])
    with FastES(toy(fail_seeds=[seed]), preset="default", n_workers=n_workers, episodes_per_candidate=3, **SETTINGS) as model:
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
    with FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError):
            learn(model, 4, on_record=records.append)
        assert model.generation == len(records) == 2
        model.save(tmp_path / "m")
        assert model.predict(np.zeros(3))[0].shape == (2,)
        switch.unlink()
        records += learn(model, 4)
        assert_same(undisturbed, Result(model.snapshot(), records))


@pytest.mark.parametrize("n_workers", [0, 1])
def test_an_exception_in_an_evaluation_names_its_seed(n_workers: int) -> None:
    with FastES(toy(fail_seeds=[3]), preset="default", n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError) as caught:
            model.evaluate(5, first_seed=0)
        assert caught.value.env_seed == 3
        assert "evaluation episode 3" in str(caught.value)
        assert model.evaluate(3, first_seed=0).returns.shape == (3,)


@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("kind", [UnpicklableError, TwoArgumentsError])
def test_an_exception_that_pickle_cannot_carry_is_reported_all_the_same(kind: type[Exception], n_workers: int) -> None:
    env = toy(fail_seeds=[seed_of(0, 0)], error=kind.__name__)
    with FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
        with pytest.raises(WorkerError, match="toy fails") as caught:
            learn(model, 1)
        assert isinstance(caught.value.__cause__, kind if n_workers == 0 else kind | None)
        assert kind.__name__ in str(caught.value)


class Unspeakable(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ToyError("str fails")


SURROGATE = chr(0xD800)
ODD_ERRORS = {
    "message": ValueError(f"bad {SURROGATE} text"),
    "argument": KeyError("bad", {SURROGATE: SURROGATE}),
    "long": ValueError("bad " + SURROGATE * 5000),
    "unspeakable": Unspeakable("bad"),
}


@pytest.mark.parametrize("settings", [{}, {"on_env_error": "penalise"}])
@pytest.mark.parametrize("n_workers", [0, 1])
@pytest.mark.parametrize("name", ODD_ERRORS)
def test_an_exception_whose_text_no_encoding_can_write_is_told(name: str, n_workers: int, settings: dict[str, Any]) -> None:
    class Odd(Toy):
        def step(self, action: Any) -> Any:
            if self.env_seed == seed_of(0, 1):
                error = ODD_ERRORS[name]
                error.remark = SURROGATE  # type: ignore[attr-defined]
                raise error
            return super().step(action)

    with FastES(Odd, preset="default", n_workers=n_workers, **SETTINGS, **settings) as model, caught_warnings() as messages:
        if settings:
            learn(model, 1)
        else:
            with pytest.raises(WorkerError) as caught:
                learn(model, 1)
            assert not isinstance(caught.value, WorkerCrashed)
            messages.append(str(caught.value))
    (told,) = [message for message in messages if "not finite" not in message]
    assert told.encode()
    assert type(ODD_ERRORS[name]).__name__ in told
    assert "bad" in told or name == "unspeakable"


def test_an_environment_that_only_workers_cannot_build_is_reported() -> None:
    env = toy(build_error="no licence here", parent_pid=os.getpid())
    with FastES(env, preset="default", n_workers=2, **SETTINGS) as model:
        with pytest.raises(WorkerError, match="no licence here") as caught:
            learn(model, 1)
        assert not isinstance(caught.value, WorkerCrashed)
        assert caught.value.job is None
        assert "built" in str(caught.value)
        assert isinstance(caught.value.__cause__, ToyError)


def test_a_generation_without_a_finite_return_changes_nothing(undisturbed: Result) -> None:
    with FastES(toy(all_nan=True), preset="default", n_workers=0, **SETTINGS) as model:
        model.trainer.selection = model.selection.with_budget(MANY, anew=False)  # as learn does
        before = model.snapshot()
        with pytest.raises(FastESError, match="finite"):
            learn(model, 1)
        assert_same_state(before, model.snapshot())
    assert theta_of(undisturbed.state).tobytes() != theta_of(before).tobytes()


def test_a_single_bad_return_is_data() -> None:
    with FastES(toy(nan_seeds=[seed_of(0, 1)]), preset="default", n_workers=0, **SETTINGS) as model:
        (record,) = learn(model, 1)
        assert record.num_nonfinite == 2
        assert np.isfinite(model.theta).all()
        assert np.isfinite([record.return_mean, record.return_max, record.gradient_norm]).all()
