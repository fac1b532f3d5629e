"""Risk: training goes back when it should not, or to the wrong parameters, not when it should, or not after a stop."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_fastes
from training import MANY, assert_same, assert_same_state, learn, train

from fastes import CheckpointError, FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.settings.settings import Settings
from fastes.training.record import Record
from fastes.training.rollback import Rollback, medians_and_spread

COLLAPSE: dict[str, Any] = {
    "population_size": 8,
    "policy": "LinearPolicy",
    "rollback_drop": 0.6,
    "rollback_window": 4,
    "eval_episodes": 20,
    "learning_rate": 0.1,
}


def rollback(drop: float = 0.5, window: int = 4) -> Rollback:
    return Rollback(Settings(rollback_drop=drop, rollback_window=window))


def thetas_after(watch: Rollback, evaluations: list[float]) -> list[int | None]:
    """For each evaluation, the number of the one whose theta it went back to, or None."""
    answers = [watch.check(x, np.full(1, k, np.float32)) for k, x in enumerate(evaluations)]
    return [None if theta is None else int(theta[0]) for theta in answers]


RISE = [0.0, 0.0, 0.0, 0.0, 10.0, 40.0, 80.0, 90.0, 100.0, 100.0, 100.0, 100.0]

# --- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("shift", [0.0, -1000.0, 1000.0])
def test_it_goes_back_when_half_of_what_was_learned_is_lost(scale: float, shift: float) -> None:
    """Whatever the returns' sign and size: after the third bad evaluation of four, when the median follows."""
    evaluations = [scale * (x + shift) for x in [*RISE, 49.0, 49.0, 49.0, 49.0]]
    assert thetas_after(rollback(), evaluations) == [None] * 14 + [11, None]
    assert thetas_after(rollback(), [scale * (x + shift) for x in [*RISE, *[51.0] * 9]]) == [None] * 21


def test_off_means_never_and_keeps_nothing() -> None:
    watch = rollback(drop=0.0)
    assert set(thetas_after(watch, [*RISE, *[-1e9] * 20])) == {None}
    assert watch.state() == (None, {})


def test_one_bad_episode_changes_nothing() -> None:
    assert set(thetas_after(rollback(), [*RISE, -1e6, 100.0, 100.0, 100.0, -math.inf, 100.0, 100.0, 100.0])) == {None}


def test_noise_is_no_collapse() -> None:
    """Nothing is learned: what the best has by luck before the first is little, and would be lost again and again."""
    draws = (np.random.default_rng(seed).normal(size=300).tolist() for seed in range(20))
    backs = [number for evaluations in draws for number in thetas_after(rollback(window=10), evaluations)]
    assert sum(number is not None for number in backs) < 0.003 * len(backs)


def test_what_never_improved_has_nothing_to_lose() -> None:
    falling = np.linspace(100.0, -100.0, 50).tolist()
    assert set(thetas_after(rollback(), falling)) == {None}
    assert set(thetas_after(rollback(), [100.0] * 6 + falling)) == {None}, "there is a best, the first one"


def test_evaluations_that_are_not_finite_are_a_collapse() -> None:
    back = thetas_after(rollback(), [*RISE, *[-math.inf] * 4])
    assert back == [None] * 14 + [11, None]
    assert set(thetas_after(rollback(), [-math.inf] * 30)) == {None}


def test_huge_evaluations_do_no_harm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thetas_after(rollback(), [-1.7e308, 1.7e308] * 10 + [-1.7e308] * 10 + [-math.inf] * 10)
        thetas_after(rollback(drop=1e308), [-1.7e308] * 5 + [1.7e308] * 5 + [-1.7e308] * 5)


# --- where to --------------------------------------------------------------------------------------------------------


def test_a_theta_that_is_worse_than_its_window_is_not_the_best() -> None:
    """The median still rises when the first bad evaluation comes in: evaluation 7 has the best one but one."""
    evaluations = [0.0, 0.0, 0.0, 0.0, 50.0, 60.0, 70.0, 80.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    assert [back for back in thetas_after(rollback(), evaluations) if back is not None] == [7]


def test_the_window_is_forgotten_and_the_best_is_not() -> None:
    back = thetas_after(rollback(), [*RISE, *[0.0] * 3, 99.0, 0.0, 0.0, 0.0, 0.0])
    assert back == [None] * 14 + [11, None, None, None, 11, None]


def test_a_best_that_was_luck_does_not_hold_the_training() -> None:
    """Evaluations stay at 40 of 100: going back helps nothing, so that the fall that is allowed grows beyond it."""
    watch = rollback()
    back = thetas_after(watch, [*RISE, *[40.0] * 1000])
    assert sum(number is not None for number in back) == 1
    thetas_after(watch, [*[120.0] * 4, *[40.0] * 4])
    assert watch.count == 2, "a new best, and it is as careful as before"


def test_a_window_of_one_takes_evaluations_as_they_are() -> None:
    assert thetas_after(rollback(window=1), [0.0, 10.0, 8.0, 4.0]) == [None, None, None, 1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], (3.0, 3.0, 0.0)),
        ([3.0, 1.0], (1.0, 3.0, 2.0)),
        ([5.0, 1.0, 2.0], (2.0, 2.0, 4.0)),
        (range(10, 0, -1), (5, 6, 5)),
    ],
)
def test_the_median_is_one_of_the_values(values: Any, expected: tuple[float, ...]) -> None:
    assert medians_and_spread(values) == expected


# --- a training ------------------------------------------------------------------------------------------------------


def wrecked(model: FastES, generations: int, at: int) -> tuple[list[Record], dict[int, bytes]]:
    """Learn; after generation `at`, theta becomes its opposite. Records, and theta before each generation."""
    thetas = {1: model.theta.tobytes()}

    def note(record: Record) -> None:
        if record.generation == at:
            model.strategy.theta = -model.theta
        thetas[record.generation + 1] = model.theta.tobytes()

    return learn(model, generations, MANY, note), thetas


def test_a_training_that_is_wrecked_goes_on_from_its_best() -> None:
    with FastES("Toy-v0", n_workers=0, seed=5, preset="default", target_return="none", **COLLAPSE) as model:
        with pytest.warns(RuntimeWarning, match=r"rollback 1: in generation \d+ the evaluation had fallen from"):
            records, thetas = wrecked(model, 30, at=20)
        assert model.rollback.count == 1
        back = next(k for k in range(22, 32) if thetas[k] in [thetas[j] for j in range(1, 21)])
        source = next(j for j in range(1, 21) if thetas[j] == thetas[back])
        assert records[source - 1].eval_return > np.nanmedian([record.eval_return for record in records[:20]])
        assert records[back - 1].eval_return > records[back - 2].eval_return, "the next evaluation is the best one's again"
        assert (records[back - 1].generation, model.generation) == (back, 30)


def test_the_optimiser_begins_again() -> None:
    with FastES("Toy-v0", n_workers=0, seed=5, preset="default", target_return="none", **COLLAPSE) as model:
        fresh = model.strategy.optimizer.state()
        seen = []

        def note(record: Record) -> None:
            if record.generation == 20:
                model.strategy.theta = -model.theta
            if model.rollback.fall:
                seen.append({name: array.tobytes() for name, array in model.strategy.optimizer.state().items()})

        with pytest.warns(RuntimeWarning, match="fresh optimiser"):
            learn(model, 30, MANY, note)
        assert seen == [{name: array.tobytes() for name, array in fresh.items()}]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_training_with_rollbacks_is_the_same_on_workers_and_resumed(tmp_path: Path) -> None:
    settings = {**COLLAPSE, "learning_rate": 1.5, "optimizer": "sgd", "rollback_drop": 0.05, "rollback_window": 2}
    whole = train("Toy-v0", 24, **settings)
    assert_same(whole, train("Toy-v0", 24, 2, **settings))
    assert whole.state.data["rollback"]["count"] >= 2
    for stop in (1, 3, 9, 14):
        with FastES("Toy-v0", n_workers=0, seed=5, preset="default", target_return="none", **settings) as model:
            learn(model, stop)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", n_workers=0) as model:
            learn(model, 24)
            assert_same_state(whole.state, model.snapshot())


def test_off_leaves_the_file_and_the_bits_as_they_were() -> None:
    off, high = (train("Toy-v0", 5, **{**COLLAPSE, "rollback_drop": drop}) for drop in (0.0, 1e9))
    assert "rollback" not in off.state.data
    assert "rollback" not in off.state.arrays
    assert off.state.arrays["theta"]["theta"].tobytes() == high.state.arrays["theta"]["theta"].tobytes()
    assert high.state.data["rollback"]["count"] == 0


def test_parameters_that_a_user_sets_are_not_taken_back(tmp_path: Path) -> None:
    with FastES("Toy-v0", n_workers=0, seed=5, preset="default", target_return="none", **COLLAPSE) as model:
        learn(model, 15)
        model.set_parameters({"policy": {k: -v for k, v in model.get_parameters()["policy"].items()}})
        learn(model, 20)
        assert model.rollback.count == 0
        assert 0 < len(model.rollback.state()[0]["evaluations"]) <= 5
        before = model.state
        known = before.rollback.state()[0]
        model.set_env("Toy-v0")
        assert model.rollback.state()[0] == {**rollback().state()[0], "count": 0}
        assert before.rollback.state()[0] == known, "a state is replaced, not changed"


def test_it_can_begin_and_end_on_loading(tmp_path: Path) -> None:
    off = {**COLLAPSE, "rollback_drop": 0.0}
    with FastES("Toy-v0", n_workers=0, seed=5, preset="default", target_return="none", **off) as model:
        learn(model, 2)
        model.save(tmp_path / "off")
    with FastES.load(tmp_path / "off", n_workers=0, rollback_drop=0.5) as model:
        learn(model, 6)
        model.save(tmp_path / "on")
        assert "best_theta" in model.snapshot().arrays["rollback"]
    with FastES.load(tmp_path / "on", n_workers=0, rollback_drop=0.0, rollback_window=1) as model:
        learn(model, 7)
        assert "rollback" not in model.snapshot().data


# --- files that were edited ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved() -> Checkpoint:
    return train("Toy-v0", 4, **{**COLLAPSE, "rollback_window": 1}).state


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("evaluations", None),
        ("evaluations", [math.pi] * 10_001),
        ("evaluations", ["1"]),
        ("evaluations", [True]),
        ("first", "1"),
        ("first", 10**400),
        ("best", None),
        ("spread", None),
        ("spread", -1.0),
        ("in_a_row", -1),
        ("in_a_row", 2**54),
        ("count", True),
        ("count", 1.0),
        ("more", 1),
    ],
)
def test_an_edited_state_is_refused(key: str, value: Any, saved: Checkpoint, tmp_path: Path) -> None:
    data = copy.deepcopy(saved.data)
    data["rollback"][key] = value
    write_checkpoint(tmp_path / "m", Checkpoint(data, saved.arrays))
    with pytest.raises(CheckpointError, match="rollback"):
        FastES.load(tmp_path / "m", n_workers=0)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"best_theta": np.zeros(3, np.float32)},
        {"best_theta": np.zeros(6, np.float64)},
        {"best_theta": np.full(6, np.nan, np.float32)},
        {"best_theta": np.zeros(6, np.float32), "more": np.zeros(1, np.float32)},
    ],
)
def test_edited_arrays_are_refused(arrays: Any, saved: Checkpoint, tmp_path: Path) -> None:
    assert saved.arrays["rollback"]["best_theta"].shape == (6,)
    write_checkpoint(tmp_path / "m", Checkpoint(saved.data, {**saved.arrays, "rollback": arrays}))
    with pytest.raises(CheckpointError, match=r"rollback|best_theta"):
        FastES.load(tmp_path / "m", n_workers=0)
    del (data := copy.deepcopy(saved.data))["rollback"]
    write_checkpoint(tmp_path / "m", Checkpoint(data, saved.arrays))
    with pytest.raises(CheckpointError, match="rollback"):
        FastES.load(tmp_path / "m", n_workers=0)


def test_the_command_line_trains_and_resumes_with_it(tmp_path: Path) -> None:
    flags = ["--rollback-drop", "0.5", "--rollback-window", "1", "--population-size", "4", "--seed", "1", "--workers", "0"]
    first = run_fastes(
        "train", "CartPole-v1", *flags, "--target-return", "none", "--quiet", "--total-timesteps", "300", cwd=tmp_path
    )
    assert first.returncode == 0, first.stderr
    (run,) = (tmp_path / "runs").glob("*/1")
    second = run_fastes("train", "--resume", str(run), "--quiet", "--total-timesteps", "600", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert read_checkpoint(run / "checkpoint.zip").data["rollback"]["evaluations"]
