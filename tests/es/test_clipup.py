"""Risk: ClipUp's steps are not those of the paper, grow without a limit, or stop the training where there is no gradient."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_fastes
from training import assert_same, label, learn, theta_of, train

from fastes import CheckpointMismatch, EvolutionStrategy, FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.es.optimizers import ClipUp

GRADIENTS = np.random.default_rng(3).normal(size=(30, 40)).astype(np.float32)


def lengths(steps: list[np.ndarray]) -> np.ndarray:
    return np.array([np.linalg.norm(step.astype(np.float64)) for step in steps])


@pytest.mark.parametrize("max_speed", [0.0, 0.03, 0.15, 1e9])
def test_steps_are_the_papers(max_speed: float) -> None:
    """Algorithm 1 in float64; the limits cut all steps, some, and none."""
    optimizer, velocity, momentum, rate = ClipUp(40, 0.9, max_speed), np.zeros(40), 0.9, 0.05
    for gradient in GRADIENTS:
        velocity = momentum * velocity + rate * gradient / np.linalg.norm(gradient.astype(np.float64))
        speed, limit = np.linalg.norm(velocity), max_speed or 2 * rate
        velocity = velocity * limit / speed if speed > limit else velocity
        np.testing.assert_allclose(optimizer.step(gradient, rate), velocity, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e38])
def test_the_size_of_a_gradient_does_not_matter(scale: float) -> None:
    """Also where its square lies outside of float32."""
    gradient = np.array([scale, 0.0, -scale], dtype=np.float32)
    assert ClipUp(3, 0.9, 0.0).step(gradient, 0.1) == pytest.approx(np.array([1.0, 0.0, -1.0]) * 0.1 / math.sqrt(2.0), rel=1e-6)


def test_a_gradient_of_zeros_pushes_nowhere() -> None:
    optimizer, zeros = ClipUp(40, 0.5, 0.0), np.zeros(40, dtype=np.float32)
    assert not optimizer.step(zeros, 0.1).any()
    first = optimizer.step(GRADIENTS[0], 0.1)
    assert optimizer.step(zeros, 0.1).tobytes() == (first * np.float32(0.5)).tobytes()


def test_the_speed_follows_a_schedule_or_stays() -> None:
    """0 is twice the learning rate of the generation; a number holds, whatever the learning rate."""
    along, fixed = ClipUp(40, 0.99, 0.0), ClipUp(40, 0.99, 0.02)
    rates = [0.1 * 0.8**k for k in range(20)]
    speeds = [lengths([optimizer.step(GRADIENTS[0], rate) for rate in rates]) for optimizer in (along, fixed)]
    assert speeds[0][2:] == pytest.approx(2 * np.array(rates[2:]), rel=1e-5)
    assert speeds[1][2:8] == pytest.approx(np.full(6, 0.02), rel=1e-5)


def test_a_step_that_is_handed_out_is_the_callers() -> None:
    optimizer = ClipUp(40, 0.9, 0.0)
    optimizer.step(GRADIENTS[0], 0.1)[:] = math.nan
    assert np.isfinite(optimizer.step(GRADIENTS[1], 0.1)).all()


@pytest.mark.parametrize("max_speed", [-0.1, math.nan, math.inf])
def test_a_speed_that_is_none_is_refused(max_speed: float) -> None:
    with pytest.raises(ValueError, match="max_speed"):
        EvolutionStrategy(np.zeros(3), optimizer="clipup", max_speed=max_speed)
    with pytest.raises(ValueError, match="max_speed"):
        FastES("Toy-v0", preset="unbiased", max_speed=max_speed, n_workers=0)


@pytest.mark.parametrize("changes", [{}, {"max_speed": 0.02}, {"learning_rate": "lin_0.2_0.01"}], ids=label)
def test_a_training_moves_at_that_speed(changes: dict[str, Any]) -> None:
    settings = {"optimizer": "clipup", "population_size": 8, "policy": "LinearPolicy", "learning_rate": 0.1, **changes}
    one, two = (train("Toy-v0", 6, n_workers, **settings) for n_workers in (0, 2))
    assert_same(one, two)
    for record in one.records[1:]:
        step = record.update_ratio * record.theta_norm
        assert 0.0 < step <= (changes.get("max_speed") or 2.0 * record.learning_rate) * 1.00001


def test_a_file_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    """SGD's velocity is no step: a training would jump."""
    for number, (saved, loaded) in enumerate((("sgd", "clipup"), ("clipup", "sgd"))):
        with FastES("Toy-v0", preset="unbiased", n_workers=0, seed=1, optimizer=saved, population_size=4) as model:
            learn(model, 2)
            model.save(tmp_path / str(number))
        with pytest.raises(CheckpointMismatch, match=f"optimizer = '{loaded}' cannot change on loading.* has '{saved}'"):
            FastES.load(tmp_path / str(number), n_workers=0, optimizer=loaded)


def test_the_command_line_trains_with_it(tmp_path: Path) -> None:
    flags = ["--optimizer", "clipup", "--max-speed", "0.05", "--population-size", "4", "--seed", "1", "--target-return", "none"]
    result = run_fastes("train", "CartPole-v1", *flags, "--workers", "0", "--quiet", "--total-timesteps", "200", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (run,) = (tmp_path / "runs").glob("*/1")
    saved = read_checkpoint(run / "checkpoint.zip")
    assert (saved.data["settings"]["optimizer"], saved.data["settings"]["max_speed"]) == ("clipup", 0.05)
    assert 0.0 < np.linalg.norm(saved.arrays["trainings"]["0.optimizer.step"]) <= 0.05 * 1.00001
    assert np.isfinite(theta_of(saved)).all()
