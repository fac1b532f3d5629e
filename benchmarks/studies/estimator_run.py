"""One run of one estimator, in this process: FastES with another strategy, on its own workers. Records on stdout."""

from __future__ import annotations

import json
import sys
from unittest import mock

from benchmarks.head_to_head.clock import Budget, Clock
from benchmarks.head_to_head.contestant import import_first, records_to_stdout, run_fastes
from benchmarks.head_to_head.evaluation import Act, Task
from benchmarks.studies.short import short_settings
from benchmarks.studies.strategies import STRATEGIES, Explicit
from fastes import FastES
from fastes.predictor import Predictor


def make_model(env: str, strategy: str, seed: int, n_workers: int) -> FastES:
    """FastES with a study's settings and a strategy of STRATEGIES in the place of its own."""
    chosen = STRATEGIES[strategy]
    with mock.patch("fastes.training_state.EvolutionStrategy", chosen):
        model = FastES(env, n_workers=n_workers, seed=seed, target_return="none", **short_settings(env))
    if type(model.strategy) is not chosen or model.evaluator.table is not model.strategy.table:
        raise RuntimeError(f"FastES was made with {type(model.strategy).__name__}, expected {chosen.__name__}")
    return model


def acting(model: FastES) -> Act:
    """The deterministic action of the parameters that count for the strategy."""
    strategy, predictor = model.strategy, Predictor(model.policy_spec, model.settings.normalize_obs, 0)
    assert isinstance(strategy, Explicit)
    space = model.observation_space if model.policy_spec.flattened else None
    return lambda observation: predictor.act(strategy.evaluated, model.normalizer, observation, (0.0, False), space)


def main() -> None:
    given = json.loads(sys.argv[1])
    write = records_to_stdout()
    task = Task(**{**given["task"], "budget": Budget(*given["task"]["budget"])})
    import_first("fastes")
    run_fastes(
        task,
        given["cores"],
        Clock(task.budget),
        write,
        lambda task, cores: make_model(task.env, task.algo, task.seed, cores),
        acting,
    )


if __name__ == "__main__":
    main()
