"""Risk: the one call for all environments acts otherwise than each one's own, or reads and writes what is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from kernel_cases import Ends, actors, mlp, normals, unbounded
from twins.same_bits import assert_same_bits

from fastes import _core
from fastes.policies.action_head import make_action_head

OBS_SIZE, OUTPUTS = 5, 3
OBSERVATIONS = normals(2 * OBS_SIZE).reshape(2, OBS_SIZE)


def pair_of_actors() -> list[_core.Actor]:
    return [actors(mlp(OBS_SIZE, (8,), unbounded(OUTPUTS)), normals(8 * 6 + 9 * 3, seed))[0] for seed in (1, 2)]


def given(**changes: Any) -> list[Any]:
    """Arguments of act_rows that fit, but for the changes."""
    right = {"actors": pair_of_actors(), "observations": OBSERVATIONS, "actions": np.zeros((2, OUTPUTS), dtype=np.float32)}
    return list({**right, **changes}.values())


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def on_odd_bytes(array: Any) -> Any:
    """A copy of the array that begins at an address that its dtype must not have."""
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
    moved = memory[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


@pytest.mark.parametrize("space", [spaces.Box(-2.0, 2.0, (OUTPUTS,), dtype=np.float64), spaces.Discrete(4, start=3)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
def test_rows_are_each_actors_own_steps(variant: str, dtype: str, space: Any) -> None:
    head, rows = make_action_head(space), 7
    in_rows, alone = ([actors(mlp(OBS_SIZE, (8,), head), normalizer=True)[0] for _ in range(rows)] for _ in range(2))
    counts = [np.zeros(1, dtype=np.int64) for _ in range(rows)]
    for key, (both, count) in enumerate(zip(zip(in_rows, alone, strict=True), counts, strict=True)):
        both[0].count_steps(count)
        for actor in both:
            actor.parameters[:] = normals(actor.num_params, key)
            actor.begin_episode(key, 0.3, sample=True)
    actions = np.empty((rows, *space.shape), dtype=space.dtype)
    for step in range(3):
        observations = np.random.default_rng(step).uniform(0, 256, (rows, OBS_SIZE)).astype(dtype)
        _core.act_rows(in_rows, read_only(observations), actions)
        for row, actor in enumerate(alone):
            expected = np.asarray(actor.act(observations[row]), dtype=space.dtype)
            assert_same_bits(f"{variant}, row {row} of step {step}", actions[row], expected)
            assert_same_bits("moments", in_rows[row].observation_moments, actor.observation_moments)
    assert [int(count[0]) for count in counts] == [3] * rows


def test_no_rows_are_nothing() -> None:
    _core.act_rows([], np.zeros((0, OBS_SIZE)), np.zeros((0, OUTPUTS), dtype=np.float32))


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "None for an actor": ({"actors": [pair_of_actors()[0], None]}, TypeError, r"actors\[1\] = None is a NoneType: expected an"),
    "a word for an actor": ({"actors": ["x", "y"]}, TypeError, r"actors\[0\] = 'x' is a str: expected an Actor"),
    "no list of actors": ({"actors": tuple(pair_of_actors())}, TypeError, "'actors' .*list"),
    "None for the actors": ({"actors": None}, TypeError, "'actors' .*None"),
    "an actor without layers": ({"actors": [_core.Actor(Ends(OBS_SIZE, unbounded(OUTPUTS)))] * 2}, TypeError, "no layers"),
    "an actor that was never set up": ({"actors": [_core.Actor.__new__(_core.Actor)] * 2}, TypeError, "no layers"),
    "too few actors": (
        {"actors": pair_of_actors()[:1]},
        ValueError,
        r"1 actors for observations \(2, 5\) and actions \(2, 3\)",
    ),
    "too many actors": ({"actors": pair_of_actors() * 2}, ValueError, "4 actors for"),
    "no array of observations": ({"observations": OBSERVATIONS.tolist()}, TypeError, "list"),
    "None for the observations": ({"observations": None}, TypeError, "'observations' .*None"),
    "int32 observations": (
        {"observations": OBSERVATIONS.astype("i4")},
        TypeError,
        r"dtype int32: expected one of \('float64', 'float32', 'uint8'\)",
    ),
    "float16 observations": ({"observations": OBSERVATIONS.astype("f2")}, TypeError, "dtype float16"),
    "objects for observations": ({"observations": OBSERVATIONS.astype(object)}, TypeError, "dtype object"),
    "swapped observations": ({"observations": OBSERVATIONS.astype(">f4")}, ValueError, "must be C-contiguous"),
    "observations column by column": ({"observations": np.asfortranarray(OBSERVATIONS)}, ValueError, "must be C-contiguous"),
    "every other observation": ({"observations": np.repeat(OBSERVATIONS, 2, 0)[::2]}, ValueError, "must be C-contiguous"),
    "observations on odd bytes": ({"observations": on_odd_bytes(OBSERVATIONS)}, ValueError, "must be C-contiguous"),
    "longer observations": (
        {"observations": np.zeros((2, 6))},
        ValueError,
        r"observation has shape \(6,\), the policy expects",
    ),
    "one observation": ({"observations": OBSERVATIONS[0]}, ValueError, "2 actors for"),
    "a number for observations": ({"observations": np.array(1.0)}, ValueError, "2 actors for"),
    "no array of actions": ({"actions": [0.0] * 6}, TypeError, "list"),
    "None for the actions": ({"actions": None}, TypeError, "'actions' .*None"),
    "float64 actions": ({"actions": np.zeros((2, OUTPUTS))}, ValueError, "dtype float64: not what the policy gives"),
    "int8 actions": ({"actions": np.zeros((2, OUTPUTS), np.int8)}, ValueError, "dtype int8: not what the policy gives"),
    "shorter actions": ({"actions": np.zeros((2, 2), np.float32)}, ValueError, r"shape \(2, 2\) .*not what the policy gives"),
    "actions for three": ({"actions": np.zeros((3, OUTPUTS), np.float32)}, ValueError, "2 actors for"),
    "a number for actions": ({"actions": np.array(0, np.float32)}, ValueError, "2 actors for"),
    "actions column by column": (
        {"actions": np.zeros((OUTPUTS, 2), np.float32).T},
        ValueError,
        "must be C-contiguous",
    ),
    "read-only actions": ({"actions": read_only(np.zeros((2, OUTPUTS), np.float32))}, ValueError, "and actions writable"),
    "swapped actions": ({"actions": np.zeros((2, OUTPUTS), ">f4")}, ValueError, "must be C-contiguous"),
    "actors of which the second sees less": (
        {"actors": [pair_of_actors()[0], actors(mlp(4, (8,), unbounded(OUTPUTS)))[0]]},
        ValueError,
        "observation has shape",
    ),
    "actors of which the second does less": (
        {"actors": [pair_of_actors()[0], actors(mlp(OBS_SIZE, (8,), unbounded(2)))[0]]},
        ValueError,
        "not what the policy gives",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    changes, kind, message = REFUSED[name]
    _core.act_rows(*given())
    arguments = given(**changes)
    before = np.copy(arguments[2]) if isinstance(arguments[2], np.ndarray) else None
    with pytest.raises(kind, match=message):
        _core.act_rows(*arguments)
    if before is not None:
        assert_same_bits("actions are left alone", arguments[2], before)
