"""Risk: a space that no example shows trains wrongly, is refused without a word, or cannot be loaded again."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from drawn_spaces import ACTIONS, BAD_ACTIONS, BAD_OBSERVATIONS, BIG, OBSERVATIONS, SMALL, float_boxes, modest
from envs_for_tests import AnySpaces
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from training import assert_same_state, learn

from fastes import FastES

BOX = spaces.Box(-1.0, 1.0, (2,))


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
