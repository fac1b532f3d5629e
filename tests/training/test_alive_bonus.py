"""Risk: a schedule of the alive bonus runs by another clock than sigma and the learning rate, or shows in the statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from envs_for_tests import Toy
from processes import run_fastes
from training import assert_same, assert_same_state, label, learn, train

from fastes import EvolutionStrategy, FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.es.schedules import ANY_NUMBER, make_schedule
from fastes.training.player import Player
from fastes.training.record import Generation
from fastes.training.training import Training

TOTAL = 1500
SETTINGS: dict[str, Any] = {"population_size": 8, "policy": "LinearPolicy", "episodes_per_candidate": 2}


def model(**changes: Any) -> FastES:
    return FastES(Toy, n_workers=0, **{"seed": 4, "target_return": "none", "preset": "default", **SETTINGS, **changes})


@pytest.mark.parametrize(
    ("value", "start", "middle", "end"),
    [
        (-2, -2.0, -2.0, -2.0),
        (0.0, 0.0, 0.0, 0.0),
        ("lin_3", 3.0, 1.5, 0.0),
        ("lin_-3", -3.0, -1.5, 0.0),
        ("lin_0_1", 0.0, 0.5, 1.0),
        ("lin_-1_-2.5", -1.0, -1.75, -2.5),
        (lambda remaining: -remaining, -1.0, -0.5, 0.0),
        (lambda remaining: np.float32(remaining > 0.4), 1.0, 1.0, 0.0),
    ],
)
def test_any_finite_number_may_be_scheduled(value: Any, start: float, middle: float, end: float) -> None:
    schedule = make_schedule("alive_bonus", value, ANY_NUMBER)
    assert [schedule(remaining) for remaining in (1.0, 0.5, 0.0)] == [start, middle, end]


@pytest.mark.parametrize("bonus", ["lin_-0.5_2", 0.25, lambda remaining: 1.0 - remaining])
def test_each_generation_has_the_bonus_of_its_progress(bonus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns less bonus x mean length, by the progress at which its sigma was drawn."""
    told: list[Any] = []
    with model(alive_bonus=bonus, sigma="lin_0.1_0.02") as trained:
        play, tell = Player.generation, EvolutionStrategy.tell
        batches: list[Any] = []

        async def watched(player: Player, training: Training) -> Generation:
            generation = await play(player, training)
            batches.append(generation.batch)
            return generation

        monkeypatch.setattr(Player, "generation", watched)
        monkeypatch.setattr(EvolutionStrategy, "tell", lambda es, fitness: told.append(fitness) or tell(es, fitness))
        records = learn(trained, 4, TOTAL)
    schedule = make_schedule("alive_bonus", bonus, ANY_NUMBER)
    for batch, fitness, record in zip(batches, told, records, strict=True):
        remaining = (record.sigma - 0.02) / 0.08
        assert fitness == pytest.approx(batch.returns - schedule(remaining) * batch.lengths / 2, rel=1e-9)
    assert records[-1].sigma < 0.9 * records[0].sigma


def test_the_three_schedules_see_the_same_progress() -> None:
    seen: dict[str, list[float]] = {"sigma": [], "learning_rate": [], "alive_bonus": []}

    def noting(name: str) -> Any:
        return lambda remaining: seen[name].append(remaining) or 0.05

    with model(**{name: noting(name) for name in seen}) as trained:
        learn(trained, 3, TOTAL)
    assert len(seen["alive_bonus"]) == 3
    assert seen["alive_bonus"] == seen["learning_rate"]
    assert set(seen["alive_bonus"]) <= set(seen["sigma"])


def test_statistics_are_those_without_a_bonus() -> None:
    first, second = (
        train(Toy, 1, **SETTINGS, shaping="standardized", eval_lag=0, alive_bonus=bonus).records[0]
        for bonus in ("lin_5_1", 0.0)
    )
    for name in ("return_mean", "return_max", "return_std", "eval_return", "eval_rank", "elite_fraction", "episode_length"):
        assert getattr(first, name) == getattr(second, name)
    assert first.gradient_norm != second.gradient_norm


def test_a_bonus_that_stays_is_a_number() -> None:
    """'lin_A_A', a function and the number are one training, on workers too."""
    number = train("Toy-v0", 3, **SETTINGS, alive_bonus=0.5).state.arrays["trainings"]["0.theta"]
    for bonus, workers in (("lin_0.5_0.5", 2), (lambda _: 0.5, 0)):
        other = train("Toy-v0", 3, workers, **SETTINGS, alive_bonus=bonus).state.arrays["trainings"]["0.theta"]
        assert other.tobytes() == number.tobytes()
    assert_same(train("Toy-v0", 3, **SETTINGS), train("Toy-v0", 3, **SETTINGS, alive_bonus=0))


def test_a_function_comes_back_as_an_argument(tmp_path: Path) -> None:
    def bonus(remaining: float) -> float:
        return 1.0 - 2.0 * remaining

    with FastES(
        "Toy-v0", preset="unbiased", n_workers=0, seed=1, target_return="none", alive_bonus=bonus, **SETTINGS
    ) as trained:
        learn(trained, 2, TOTAL)
        trained.save(tmp_path / "half")
        learn(trained, 4, TOTAL)
        whole = trained.snapshot()
    with FastES.load(tmp_path / "half", n_workers=0) as trained:
        with pytest.raises(ValueError, match="alive_bonus was a function"):
            learn(trained, 4, TOTAL)
        assert trained.generation == 2
    with FastES.load(tmp_path / "half", n_workers=0, alive_bonus=bonus) as trained:
        learn(trained, 4, TOTAL)
        assert_same_state(whole, trained.snapshot())


@pytest.mark.parametrize(
    ("bonus", "error"),
    [
        (math.inf, "finite number"),
        ("lin_x", "not a schedule"),
        ("lin_1_nan", "finite number"),
        ("lin_1e308_-1e308", "than a float"),
    ],
    ids=label,
)
def test_what_is_no_schedule_is_refused_before_anything_starts(bonus: Any, error: str) -> None:
    with pytest.raises(ValueError, match=f"alive_bonus.*{error}.*'lin_0_1'"):
        model(alive_bonus=bonus)


@pytest.mark.parametrize(("given", "error"), [(math.nan, ValueError), ("x", TypeError), (None, TypeError)])
def test_a_function_that_gives_no_number_changes_nothing(given: Any, error: type[Exception]) -> None:
    with model(alive_bonus=lambda _: given) as trained:
        before = trained.snapshot()
        with pytest.raises(error, match="alive_bonus"):
            learn(trained, 1, TOTAL)
        budget = before.data["trainings"][0]["counters"] | {"budget": TOTAL}
        assert trained.snapshot().data["trainings"][0]["counters"] == budget
        assert trained.theta.tobytes() == before.arrays["trainings"]["0.theta"].tobytes()


@pytest.mark.slow
def test_the_command_line_trains_and_resumes_with_a_schedule(tmp_path: Path) -> None:
    flags = ["--alive-bonus", "lin_-1_1", "--population-size", "4", "--seed", "1", "--target-return", "none", "--workers", "0"]
    first = run_fastes("train", "CartPole-v1", *flags, "--quiet", "--total-timesteps", "200", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (run,) = (tmp_path / "runs").glob("*/1")
    second = run_fastes("train", "--resume", str(run), "--quiet", "--total-timesteps", "400", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert read_checkpoint(run / "checkpoint.zip").data["settings"]["alive_bonus"] == "lin_-1_1"
