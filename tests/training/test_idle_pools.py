"""Models that have learned do not keep processes and memory without end."""

from __future__ import annotations

from typing import Any

import pytest
from processes import children
from training import assert_same_state

from fastes import Callback, FastES
from fastes.training.idle_pools import KEPT

SMALL: dict[str, Any] = {"noise_table_size": 10_000, "population_size": 8, "preset": "default", "eval_lag": 1}


def pools(models: list[FastES]) -> list[bool]:
    return [model.evaluator.has_pool for model in models]


@pytest.mark.parametrize("n_workers", [0, 1])
def test_the_last_models_keep_their_workers_and_all_go_on_alike(n_workers: int) -> None:
    models = [FastES("CartPole-v1", seed=seed, n_workers=n_workers, **SMALL) for seed in range(4)]
    for model in models:
        model.learn(200)
    assert KEPT == 2
    assert pools(models) == [False, True, True, True]
    assert len(children()) == 3 * n_workers
    models[1].learn(200, reset_num_timesteps=False)
    models[0].learn(200, reset_num_timesteps=False)
    assert pools(models) == [True, True, False, True], "who used its workers last keeps them"
    with FastES("CartPole-v1", seed=0, n_workers=n_workers, **SMALL) as alone:
        alone.learn(200)
        alone.learn(200, reset_num_timesteps=False)
        assert_same_state(models[0].snapshot(), alone.snapshot())
    for model in models:
        model.close()


def test_a_model_that_learns_keeps_its_workers_whatever_its_callbacks_start() -> None:
    others = [FastES("CartPole-v1", seed=seed, n_workers=0, **SMALL) for seed in range(4)]

    class Evaluates(Callback):
        def on_generation(self, model: Any, record: Any) -> bool:
            before = children()
            for other in others:
                other.evaluate(1)
            assert children() == before
            return True

    with FastES("CartPole-v1", seed=0, n_workers=1, **SMALL) as model:
        model.learn(400, Evaluates())
    for other in others:
        other.close()
