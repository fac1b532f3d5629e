"""Risk: an environment with arguments that are not JSON cannot be trained, copied or saved, or trains on others than given."""

from __future__ import annotations

import copy
import enum
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from faults import SETTINGS
from gymnasium import spaces
from training import learn

from fastes import FastES
from fastes.checkpoints.reader import read_checkpoint
from fastes.cli.main import main
from fastes.envs.likeness import alike, described, same
from fastes.errors import CheckpointError


class Frame:
    """A table as pandas has them: `==` compares each cell, and the answer has no truth value."""

    def __init__(self, rows: list[float]) -> None:
        self.rows = np.array(rows)

    def __eq__(self, other: object) -> Any:
        return self.rows == getattr(other, "rows", other)

    __hash__ = None  # type: ignore[assignment]


class Liar:
    """Equals anything."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Honest(Liar):
    """Holds what the other holds."""


class Mode(enum.Enum):
    EASY = 1
    HARD = 2


def five() -> float:
    return 5.0


class Sums(gymnasium.Env[Any, Any]):
    """Each step gives what its argument is worth."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, data: Any = None, length: int = 3) -> None:
        self.data, self.length, self.left = data, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = self.length
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.ones(2, np.float32), worth(self.data), self.left == 0, False, {}


def worth(data: Any) -> float:
    if isinstance(data, enum.Enum):
        return float(data.value)
    if isinstance(data, Path):
        return float(len(data.name))
    if callable(data):
        return float(data())
    if isinstance(data, dict):
        return sum(map(worth, data.values()))
    found = np.nansum(getattr(data, "rows", data))
    return float(found)


@pytest.fixture
def sums() -> Iterator[str]:
    gymnasium.register("Sums-v0", f"{__name__}:Sums")
    yield "Sums-v0"
    del gymnasium.registry["Sums-v0"]


ARGUMENTS: dict[str, tuple[Any, float, str]] = {  # value, its worth, its words
    "table": (Frame([1.0, 2.0]), 3.0, "a Frame"),
    "array": (np.arange(3.0), 3.0, "an array of shape (3,) and dtype float64"),
    "function": (five, 5.0, "the function five"),
    "enum": (Mode.HARD, 2.0, "<Mode.HARD: 2>"),
    "path": (Path("abc"), 3.0, "PosixPath('abc')"),
    "not a number": (math.nan, 0.0, "nan"),
    "infinite": (math.inf, math.inf, "inf"),
    "nested": ({"a": np.ones(2), "b": Frame([1.0])}, 3.0, "{'a': an array of shape (2,) and dtype float64, 'b': a Frame}"),
    "NumPy's number": (np.float64(4.0), 4.0, "np.float64(4.0)"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_are_not_json_are_trained_copied_and_saved(name: str, sums: str, tmp_path: Path) -> None:
    value, expected, words = ARGUMENTS[name]
    with FastES(sums, preset="default", n_workers=0, env_kwargs={"data": value, "length": 2}, **SETTINGS) as model:
        if math.isfinite(expected):
            learn(model, 1)
        for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert each.evaluate(1).returns[0] == 2 * expected
        model.save(tmp_path / "m")
    assert read_checkpoint(tmp_path / "m.zip").data["env"] == {"id": sums, "kwargs": {"length": 2}, "lost": {"data": words}}
    with FastES.load(tmp_path / "m", n_workers=0) as loaded:
        loaded.predict(np.ones(2, np.float32))
        with pytest.raises(ValueError, match="could not keep") as caught:
            loaded.evaluate(1)
        assert f"data ({words})" in str(caught.value)
    with pytest.raises(ValueError, match=r"env_kwargs=\{'data': \.\.\.\}"):
        FastES.load(tmp_path / "m", env=sums, n_workers=0)
    for given in ({"env": sums, "env_kwargs": {"data": value}}, {"env": lambda: Sums(value, 2)}):
        with FastES.load(tmp_path / "m", n_workers=0, **given) as loaded:
            assert loaded.evaluate(1).returns[0] == 2 * expected


@pytest.mark.parametrize("name", ["table", "enum"])
def test_what_is_registered_with_such_arguments_is_rebuilt_by_id(name: str, tmp_path: Path) -> None:
    """The registration has them, and gives them again."""
    value, expected, _ = ARGUMENTS[name]
    gymnasium.register("Registered-v0", Sums, kwargs={"data": value})
    try:
        for env in ("Registered-v0", gymnasium.make("Registered-v0"), gymnasium.spec("Registered-v0")):
            with FastES(env, preset="default", n_workers=0, **SETTINGS) as model:
                model.save(tmp_path / "m")
            assert read_checkpoint(tmp_path / "m.zip").data["env"] == {"id": "Registered-v0", "kwargs": {}}
            with FastES.load(tmp_path / "m", n_workers=0) as loaded:
                assert loaded.evaluate(1).returns[0] == 3 * expected
    finally:
        del gymnasium.registry["Registered-v0"]


def test_tables_of_pandas(sums: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    one, other = (pandas.DataFrame({"a": [1.0, last]}) for last in (2.0, 3.0))
    assert same(one, one.copy())
    assert not same(one, other)
    with FastES(gymnasium.make(sums, data=one), preset="default", n_workers=0, **SETTINGS) as model:
        assert copy.deepcopy(model).evaluate(1).returns[0] == 9.0
        model.save(tmp_path / "m")
    assert read_checkpoint(tmp_path / "m.zip").data["env"]["lost"] == {"data": "a DataFrame"}


def test_objects_with_such_arguments_train_the_same_in_workers(sums: str) -> None:
    env = gymnasium.make(sums, data=Frame([1.0, 0.5]))
    returns = []
    for n_workers in (0, 1):
        with FastES(env, preset="default", n_workers=n_workers, **SETTINGS) as model:
            returns.append(learn(model, 1)[0].return_mean)
    assert returns == [4.5, 4.5]


def test_the_commands_train_and_say_what_is_missing(sums: str, tmp_path: Path, capsys: Any) -> None:
    gymnasium.register("Registered-v0", Sums, kwargs={"data": Frame([1.0])})
    few = ["--total-timesteps", "30", "--population-size", "4", "--eval-episodes", "1", "--workers", "0"]
    try:
        assert main(["train", "Registered-v0", "--runs", str(tmp_path), *few]) == 0
        assert main(["eval", str(tmp_path / "Registered-v0" / "1"), "--episodes", "1", "--workers", "0"]) == 0
    finally:
        del gymnasium.registry["Registered-v0"]
    with FastES(sums, preset="default", n_workers=0, env_kwargs={"data": np.ones(2)}, **SETTINGS) as model:
        model.save(tmp_path / "m")
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "m.zip"), "--episodes", "1", "--workers", "0"]) == 2
    said = capsys.readouterr().err
    assert "data (an array of shape (2,) and dtype float64)" in said
    assert "gymnasium.register" in said


@pytest.mark.parametrize("lost", [1, [], {"data": 1}, None])
def test_a_damaged_list_of_what_was_lost_is_an_error(lost: Any, sums: str, tmp_path: Path) -> None:
    from fastes.checkpoints.writer import write_checkpoint

    with FastES(sums, preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    checkpoint = read_checkpoint(tmp_path / "m.zip")
    checkpoint.data["env"]["lost"] = lost
    write_checkpoint(tmp_path / "n", checkpoint)
    with pytest.raises(CheckpointError, match=r"env\.lost"):
        FastES.load(tmp_path / "n")


def test_the_reason_why_nothing_is_kept_is_in_the_file(tmp_path: Path) -> None:
    with FastES(lambda: Sums(1.0), preset="default", n_workers=0, **SETTINGS) as model:
        model.save(tmp_path / "m")
    with (
        FastES.load(tmp_path / "m", n_workers=0) as loaded,
        pytest.raises(ValueError, match="it was made by 'lambda', a factory"),
    ):
        loaded.evaluate(1)


SAME: list[tuple[Any, Any]] = [
    (math.nan, math.nan),
    (np.array([1.0, math.nan]), np.array([1.0, math.nan])),
    (Frame([1.0]), Frame([1.0])),
    ({"a": [1, (2, {3})]}, {"a": [1, (2, {3})]}),
    (Mode.EASY, Mode.EASY),
    (np.random.default_rng(3), np.random.default_rng(3)),
    (spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-np.inf, np.inf, (2,))),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0.0, -0.0),
    ("1", b"1"),
    ([1], (1,)),
    (Liar(1.0), Liar(2.0)),
    (Liar(1.0), Honest(1.0)),
    ([1, True], [1, 1]),
    ((0.0,), (-0.0,)),
    (Frame([1.0]), Frame([2.0])),
    (np.ones(2), np.ones(2, np.float32)),
    (np.ones(2), np.ones((1, 2))),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: 2}, {"1": 2}),
    (Mode.EASY, Mode.HARD),
    (np.random.default_rng(3), np.random.default_rng(4)),
    (lambda: 3, lambda: 4),
    (int, float),
]


def test_what_is_the_same_is_told_without_asking_the_objects() -> None:
    """Lambdas of one line have different code objects, by their column, and are told apart by their line."""
    for one, other in SAME:
        assert same(one, other), (one, other)
        assert same([one], [other])
    made = [lambda: 3 for _ in range(2)]
    assert same(*made)
    for one, other in DIFFERENT:
        assert not same(one, other), (one, other)
        assert not same({"a": one}, {"a": other})
    ring: list[Any] = []
    ring.append(ring)
    assert same(ring, ring)
    assert not same(ring, [[]])
    assert alike(spaces.Discrete(2), spaces.Discrete(2))
    assert not alike(spaces.Discrete(2), spaces.Discrete(3))
    assert described([1, (2,), "x"]) == "[1, (2,), 'x']"
