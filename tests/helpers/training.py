"""Short trainings whose every result can be compared bit by bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastes import FastES
from fastes.checkpoints.file_format import Checkpoint
from fastes.training.record import Record

TIMES = ("seconds", "cpu_seconds", "steps_per_second", "utilisation", "jobs_rerun")
MANY = 10**9  # timesteps: more than any test takes


class Result(NamedTuple):
    """A model's state after training, and the record of each generation."""

    state: Checkpoint
    records: list[Record]


def train(env: Any, generations: int, n_workers: int = 0, **settings: Any) -> Result:
    """Train a new model for some generations."""
    with FastES(env, n_workers=n_workers, **{"seed": 5, "target_return": "none", "preset": "default", **settings}) as model:
        records = learn(model, generations)
        return Result(model.snapshot(), records)


def learn(model: FastES, generations: int, total: int = MANY, on_record: Callable[[Record], Any] | None = None) -> list[Record]:
    """Go on until the model has done `generations` in all, within a budget of `total` timesteps in all."""
    records: list[Record] = []

    def note(_: FastES, record: Record) -> bool:
        records.append(record)
        if on_record is not None:
            on_record(record)
        return record.generation < generations

    model.learn(total - model.num_timesteps, note, reset_num_timesteps=False)
    return records


def tell_the_rest(model: FastES) -> None:
    """What the end of `learn` does, which an exception, or a copy's birth, has kept it from."""
    if not model.solved:
        model.evaluator.run(model.trainer.drain_evaluations())


def without_times(record: Record) -> dict[str, Any]:
    """A record's fields but those that the clock decides; NaN as a word, so that it equals itself."""
    fields = record._asdict().items()
    return {
        name: "nan" if isinstance(value, float) and math.isnan(value) else value for name, value in fields if name not in TIMES
    }


def assert_same_records(first: list[Record], second: list[Record]) -> None:
    assert [without_times(record) for record in first] == [without_times(record) for record in second]


def assert_same_state(first: Checkpoint, second: Checkpoint) -> None:
    """Same counters, settings and policy, and the same bits in every array."""
    assert set(first.arrays) == set(second.arrays)
    for group, arrays in first.arrays.items():
        assert set(arrays) == set(second.arrays[group])
        for name, array in arrays.items():
            other = second.arrays[group][name]
            assert array.dtype == other.dtype, (group, name)
            assert array.shape == other.shape, (group, name)
            assert array.tobytes() == other.tobytes(), (group, name)
    said = [_json({key: value for key, value in each.data.items() if key != "env_not_kept"}) for each in (first, second)]
    assert said[0] == said[1]


def _json(data: dict[str, Any]) -> Any:
    """data as a file holds it: lists for tuples, and without what only files say."""
    return {name: value for name, value in json.loads(json.dumps(data)).items() if not name.startswith("format")}


def assert_same(first: Result, second: Result) -> None:
    assert_same_state(first.state, second.state)
    assert_same_records(first.records, second.records)


def theta_of(state: Checkpoint) -> Any:
    theta = state.arrays["trainings"]["0.theta"]
    assert theta.dtype == np.float32
    return theta


def label(value: Any) -> str | None:
    """A short id for a parametrised test: the settings in a dict; pytest names other arguments."""
    return ",".join(f"{name}={setting!s:.24}" for name, setting in value.items()) if isinstance(value, dict) else None
