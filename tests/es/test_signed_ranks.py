"""Risk: signed ranks compare candidates of two pairs, favour a side, or let a tie or a broken episode push theta."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from training import assert_same, train
from twins.same_bits import assert_same_bits

from fastes import EvolutionStrategy
from fastes.es.fitness_shaping import shape_returns, signed_ranks


def test_the_size_of_a_difference_is_ranked_and_its_sign_kept() -> None:
    returns = np.array([[1.0, 0.0], [-50.0, -47.0], [9.0, 9.5], [3.0, 3.0]])
    assert signed_ranks(returns).tolist() == [0.75, -1.0, -0.5, 0.0]


def test_equal_differences_share_their_ranks() -> None:
    returns = np.array([[2.0, 1.0], [7.0, 8.0], [0.0, 0.0], [5.0, 1.0]])
    assert signed_ranks(returns).tolist() == [2.5 / 4, -2.5 / 4, 0.0, 1.0]


def test_what_a_pair_has_in_common_is_nothing_to_it() -> None:
    """Exactly so for integers. Centred ranks of the same returns do change: else nothing would be seen here."""
    random = np.random.default_rng(0)
    returns, common = random.integers(-8, 8, (20, 2)).astype(float), random.integers(-100, 100, (20, 1)).astype(float)
    weights = {
        shaping: [shape_returns(r, 0.1, shaping).weights for r in (returns, returns + common)]
        for shaping in ("signed_ranks", "centered_ranks")
    }
    assert_same_bits("signed", *weights["signed_ranks"])
    assert not np.array_equal(*weights["centered_ranks"])


def test_a_side_that_is_not_finite_is_the_worse_one_by_most() -> None:
    """Also beside the worst finite return of all, -12."""
    returns = np.array([[-12.0, math.nan], [3.0, math.inf], [-math.inf, 5.0], [math.nan, math.inf], [9.0, 0.0]])
    assert shape_returns(returns, 0.1, "signed_ranks").weights.tolist() == pytest.approx([0.8, 0.8, -0.8, 0.0, 0.4])


@pytest.mark.filterwarnings("error")
def test_differences_beyond_the_largest_float_are_equally_large() -> None:
    assert signed_ranks(np.array([[1e308, -1e308], [-1.7e308, 1.7e308], [1e308, 0.0]])).tolist() == [2.5 / 3, -2.5 / 3, 1 / 3]


def test_the_gradient_is_the_documented_one() -> None:
    """1/(2b sigma) sum w eps; the best two pairs of three."""
    settings: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.0, "shaping": "signed_ranks", "top_fraction": 0.6}
    es = EvolutionStrategy(np.zeros(4), sigma=0.25, learning_rate=0.5, population_size=6, seed=1, **settings)
    eps = np.array(list(es.ask()), dtype=np.float64)[::2] / 0.25
    es.tell([3.0, -1.0, 10.0, 12.0, 2.5, -7.0])
    assert es.theta == pytest.approx(0.5 * (1.0 * eps[0] - 0.5 * eps[1]) / (2 * 2 * 0.25), abs=1e-6)


def test_a_training_is_the_same_on_workers() -> None:
    settings: dict[str, Any] = {"shaping": "signed_ranks", "population_size": 8, "policy": "LinearPolicy"}
    assert_same(train("Toy-v0", 4, **settings), train("Toy-v0", 4, 2, **settings))
