"""Risk: NES utilities are not those of the paper, differ from system to system, or favour one of two equal candidates."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_fastes
from training import assert_same, train
from twins.same_bits import assert_same_bits

from fastes import EvolutionStrategy
from fastes.checkpoints.reader import read_checkpoint
from fastes.es.fitness_shaping import nes_utilities, shape_returns


def papers(count: int) -> Any:
    """Utilities times count, best first, by libm."""
    raw = [max(0.0, math.log(count / 2 + 1) - math.log(place)) for place in range(1, count + 1)]
    return np.array([count * (u / math.fsum(raw) - 1 / count) for u in raw])


@pytest.mark.parametrize("count", [2, 4, 6, 16, 64, 1000])
def test_utilities_are_the_papers(count: int) -> None:
    order = np.random.default_rng(count).permutation(count)
    utilities = nes_utilities(-order.astype(np.float64))
    assert utilities[np.argsort(order)] == pytest.approx(papers(count), rel=1e-13, abs=1e-13)


def test_the_gradient_is_the_papers() -> None:
    """1/sigma sum over all candidates of u_k eps_k; the best two pairs of three."""
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "shaping": "nes", "top_fraction": 0.6}
    es = EvolutionStrategy(np.zeros(4), sigma=0.25, learning_rate=0.5, population_size=6, seed=1, **settings)
    eps = np.array(list(es.ask()), dtype=np.float64) / 0.25
    es.tell([3.0, -1.0, 10.0, 2.0, 2.5, -7.0])
    utilities = papers(4)[[1, 3, 0, 2]] / 4
    gradient = (utilities[:, np.newaxis] * eps[:4]).sum(axis=0) / 0.25
    assert es.theta == pytest.approx(0.5 * gradient, abs=1e-6)


def test_equal_returns_share_their_places() -> None:
    u = papers(8)
    values = np.array([5.0, 7.0, 5.0, math.nan, 5.0, -math.inf, 0.0, math.inf])
    worst, middle = u[5:8].mean(), u[1:4].mean()
    assert nes_utilities(values) == pytest.approx(
        np.array([middle, u[0], middle, worst, middle, worst, u[4], worst]), rel=1e-13
    )
    returns = np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0]])
    weights = shape_returns(returns, 0.1, "nes").weights
    assert weights[0] == 0.0
    assert weights[1] == -weights[2]


def test_utilities_are_the_same_bits_everywhere() -> None:
    """Sums, products and quotients alone: what this machine computes, all do."""
    digest = hashlib.sha256()
    for count in (2, 10, 64, 5000):
        digest.update(nes_utilities(np.arange(count) // 3 * 1.0).tobytes())
    assert digest.hexdigest() == "f0b1ab8cdf6c81341080f0f91a8e17a85e66379756b4768b86585997db788ef4"


def test_no_libm_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = nes_utilities(np.arange(64.0))
    for library in (math, np):
        for name in ("log", "log2", "log10", "log1p", "exp"):
            monkeypatch.delattr(library, name)
    assert_same_bits("utilities", nes_utilities(np.arange(64.0)), expected)


def test_a_training_is_the_same_on_workers() -> None:
    settings: dict[str, Any] = {"shaping": "nes", "population_size": 8, "policy": "LinearPolicy"}
    assert_same(train("Toy-v0", 4, **settings), train("Toy-v0", 4, 2, **settings))


def test_the_command_line_trains_with_it(tmp_path: Path) -> None:
    flags = [
        "--shaping",
        "nes",
        "--population-size",
        "4",
        "--seed",
        "1",
        "--target-return",
        "none",
        "--workers",
        "0",
        "--quiet",
    ]
    result = run_fastes("train", "CartPole-v1", *flags, "--total-timesteps", "200", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (run,) = (tmp_path / "runs").glob("*/1")
    assert read_checkpoint(run / "checkpoint.zip").data["settings"]["shaping"] == "nes"
