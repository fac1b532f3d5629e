"""Risk: a space that no example shows trains wrongly, is refused without a word, or cannot be loaded again."""

from __future__ import annotations

import inspect
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from envs_for_tests import AnySpaces
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from training import assert_same_state, learn

from fastes import FastES

modest = settings(max_examples=60, deadline=None, derandomize=True)
SMALL: dict[str, Any] = {
    "population_size": 4,
    "seed": 5,
    "preset": "default",
    "target_return": "none",
    "noise_table_size": 20_000,
}
BOX = spaces.Box(-1.0, 1.0, (2,))
BIG = float(np.finfo(np.float32).max)

# --- spaces ----------------------------------------------------------------------------------------------------------


@st.composite
def float_boxes(draw: Any, dtypes: tuple[Any, ...], largest: float, unbounded: bool = True) -> spaces.Box:
    """Bounds are drawn for each component: equal, infinite, far away or on one side only."""
    shape = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 2), (1, 3, 2)]))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    width = 8 * dtype.itemsize
    one = st.floats(-largest, largest, width=width) | st.sampled_from([-1.0, 0.0, 1.0])
    size = int(np.prod(shape))
    pairs = [sorted((draw(one), draw(one))) for _ in range(size)]
    if unbounded:
        open_ends = [draw(st.sampled_from([0, 0, 0, 1, 2, 3])) for _ in range(size)]
        pairs = [
            [-np.inf if e & 1 else low, np.inf if e & 2 else high] for (low, high), e in zip(pairs, open_ends, strict=True)
        ]
    low, high = (np.array([pair[k] for pair in pairs], dtype=dtype).reshape(shape) for k in (0, 1))
    return spaces.Box(low, high, shape, dtype)


@st.composite
def int_boxes(draw: Any) -> spaces.Box:
    dtype = np.dtype(draw(st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])))
    info = np.iinfo(dtype)
    low, high = sorted(draw(st.integers(max(info.min, -(2**30)), min(info.max, 2**30))) for _ in range(2))
    return spaces.Box(low, high, draw(st.sampled_from([(), (1,), (4,), (2, 3)])), dtype.type)


STARTS = st.integers(-1000, 1000)
DISCRETE_HAS_DTYPE = "dtype" in inspect.signature(spaces.Discrete).parameters  # not in every Gymnasium 1


@st.composite
def discretes(draw: Any) -> spaces.Discrete:
    kind = {"dtype": draw(st.sampled_from([np.int64, np.int32, np.int16]))} if DISCRETE_HAS_DTYPE else {}
    return spaces.Discrete(draw(st.integers(1, 6)), start=draw(STARTS), **kind)


@st.composite
def multi_discretes(draw: Any) -> spaces.MultiDiscrete:
    """Without uint64, which Gymnasium itself cannot flatten."""
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    dtype = draw(st.sampled_from([np.int64, np.int32, np.int16, np.int8, np.uint8]))
    size = int(np.prod(shape))
    nvec = np.reshape([draw(st.integers(1, 5)) for _ in range(size)], shape)
    lowest = 0 if np.dtype(dtype).kind == "u" else -100
    start = np.reshape([draw(st.integers(lowest, 100)) for _ in range(size)], shape)
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


MULTI_BINARIES = st.sampled_from([1, 4, [2], [2, 3]]).map(spaces.MultiBinary)
CHOICES = discretes() | multi_discretes() | MULTI_BINARIES
HALF = st.just(spaces.Box(-2.0, 2.0, (3,), np.float16))  # Gymnasium cannot sample from every float16 box
LEAVES = float_boxes((np.float32, np.float64), 1000.0) | HALF | int_boxes() | CHOICES
OBSERVATIONS = LEAVES | st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict)
    ),
    max_leaves=4,
)
ACTIONS = float_boxes((np.float32, np.float64), BIG) | float_boxes((np.float32, np.float64), 10.0) | CHOICES

NO_LENGTH = st.sampled_from([spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Discrete(2), None)])
EMPTY = st.sampled_from([spaces.Box(-1.0, 1.0, (0,)), spaces.Box(0, 255, (4, 0), np.uint8)])
BAD_OBSERVATIONS = (
    EMPTY
    | NO_LENGTH
    | st.tuples(LEAVES, NO_LENGTH).map(lambda pair: spaces.Tuple(list(pair)))
    | st.tuples(LEAVES, NO_LENGTH).map(lambda pair: spaces.Dict(dict(zip("ab", pair, strict=True))))
)
BAD_ACTIONS = (
    EMPTY
    | NO_LENGTH
    | st.just(spaces.Text(4))
    | int_boxes()
    | float_boxes((np.float16,), 100.0)
    | st.lists(LEAVES, min_size=1, max_size=2).map(spaces.Tuple)
    | st.dictionaries(st.sampled_from("ab"), LEAVES, min_size=1, max_size=2).map(spaces.Dict)
    | st.lists(LEAVES, min_size=1, max_size=2).map(spaces.OneOf)
)

# --- properties ------------------------------------------------------------------------------------------------------


def policies(action_space: spaces.Space[Any]) -> list[dict[str, Any]]:
    """The settings of a policy that fit an action space."""
    found: list[dict[str, Any]] = [{"policy": "LinearPolicy"}, {"policy_kwargs": {"net_arch": [3]}}]
    if isinstance(action_space, spaces.Box):
        noisy = [{**policy, "action_noise": 0.3} for policy in found]
        huge = max(np.abs(action_space.low).max(), np.abs(action_space.high).max()) >= BIG
        if not huge:
            squash = {"policy_kwargs": {"net_arch": [3], "action_mapping": "squash"}}
            found += [squash, {"policy_kwargs": {"net_arch": [2], "action_mapping": "bins", "num_bins": 4}}]
            noisy += [{**squash, "action_noise": 0.3}]
        return found + noisy
    return [{**policy, "sample_actions": sample} for policy in found for sample in (False, True)]


def assert_acts(model: FastES, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    observations = [observation_space.sample() for _ in range(4)]
    for deterministic in (True, False):
        for observation in observations:
            action, _ = model.predict(observation, deterministic=deterministic)
            assert action_space.contains(action), (action, action_space)
    if isinstance(observation_space, spaces.Box):
        batch, _ = model.predict(np.stack(observations))
        assert all(action_space.contains(action) for action in batch)


@given(OBSERVATIONS, ACTIONS, st.data())
@modest
def test_any_space_trains_acts_and_loads(observation_space: Any, action_space: Any, data: Any) -> None:
    """AnySpaces raises for an action that is not in its space."""
    changes = data.draw(st.sampled_from(policies(action_space)))
    env = partial(AnySpaces, observation_space, action_space)
    observation_space.seed(1)
    with FastES(env, n_workers=0, **SMALL, **changes) as model, tempfile.TemporaryDirectory() as folder:
        start = model.theta
        learn(model, 1)
        assert np.isfinite(model.theta).all()
        assert model.theta is not start
        assert model.normalizer.count == 4 * 6
        assert_acts(model, observation_space, action_space)
        path = Path(folder) / "m"
        model.save(path)
        with FastES.load(path, env, n_workers=0) as loaded:
            assert_same_state(model.snapshot(), loaded.snapshot())
            for _ in range(3):
                observation = observation_space.sample()
                (first, _), (second, _) = (m.predict(observation, deterministic=True) for m in (model, loaded))
                assert np.asarray(first).dtype == np.asarray(second).dtype
                assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
            learn(loaded, 2)
            learn(model, 2)
            assert_same_state(model.snapshot(), loaded.snapshot())


def assert_refused(observation_space: Any, action_space: Any, named: Any) -> None:
    env = partial(AnySpaces, observation_space, action_space)
    with mock.patch("subprocess.Popen", side_effect=AssertionError("a process was started")):
        for n_workers in (0, 2):
            with pytest.raises((ValueError, TypeError)) as caught:
                FastES(env, n_workers=n_workers, **SMALL)
            assert str(named) in str(caught.value)


@given(BAD_OBSERVATIONS, ACTIONS)
@modest
def test_observations_without_a_length_are_refused(observation_space: Any, action_space: Any) -> None:
    assert_refused(observation_space, action_space, observation_space)


@given(OBSERVATIONS, BAD_ACTIONS)
@modest
def test_actions_that_no_policy_makes_are_refused(observation_space: Any, action_space: Any) -> None:
    assert_refused(observation_space, action_space, action_space)


@given(float_boxes((np.float32, np.float64), BIG), st.sampled_from(["squash", "bins"]))
@modest
def test_mappings_need_bounds(action_space: spaces.Box, mapping: str) -> None:
    finite = bool((action_space.low > -BIG).all() and (action_space.high < BIG).all())
    env = partial(AnySpaces, BOX, action_space)
    kwargs = {"net_arch": [2], "action_mapping": mapping}
    if finite:
        with FastES(env, n_workers=0, policy_kwargs=kwargs, **SMALL) as model:
            learn(model, 1)
            assert_acts(model, BOX, action_space)
        return
    with pytest.raises(ValueError) as caught:
        FastES(env, n_workers=0, policy_kwargs=kwargs, **SMALL)
    assert str(action_space) in str(caught.value)


EDGES: dict[str, Any] = {
    "start beyond 32 bits": spaces.Discrete(3, start=2**40),
    "start at the end of int64": spaces.Discrete(3, start=-(2**63)),
    "starts beyond 32 bits": spaces.MultiDiscrete([2, 3], start=[2**40, -(2**40)]),
    "float64 beyond float32": spaces.Box(-1e300, 1e300, (2,), np.float64),
    "float64 far away": spaces.Box(1e300, 2e300, (2,), np.float64),
    "float64 from far away": spaces.Box(np.array([1e39, -np.inf]), np.array([np.inf, -1e39]), (2,), np.float64),
    "subnormal": spaces.Box(-1e-310, 1e-310, (2,), np.float64),
    "one point": spaces.Box(BIG, BIG, (2,), np.float64),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "many dimensions": spaces.Box(-1.0, 1.0, (1,) * 32, np.float32),
}


@pytest.mark.parametrize("name", EDGES)
def test_actions_at_the_edge(name: str, tmp_path: Path) -> None:
    action_space = EDGES[name]
    env = partial(AnySpaces, BOX, action_space)
    with FastES(env, n_workers=0, policy_kwargs={"net_arch": [3]}, **SMALL) as model:
        learn(model, 2)
        assert_acts(model, BOX, action_space)
        model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", env, n_workers=0) as loaded:
            assert_same_state(model.snapshot(), loaded.snapshot())
            assert_acts(loaded, BOX, action_space)


def test_too_many_dimensions_are_refused_by_name() -> None:
    action_space = spaces.Box(-1.0, 1.0, (1,) * 33, np.float32)
    assert_refused(BOX, action_space, action_space)
