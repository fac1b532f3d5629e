"""Risk: an action lies outside of its space, or a parameter is not where its name says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_spaces import DISCRETE_HAS_DTYPE
from envs_for_tests import AnySpaces, Toy
from gymnasium import spaces
from training import assert_same_state, learn, train

from fastes import CheckpointMismatch, FastES, _core
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec

OBSERVATION = spaces.Box(-1.0, 1.0, (4,))
TINY = {"population_size": 4, "seed": 5, "preset": "default", "target_return": "none"}

BOXES: dict[str, spaces.Box] = {
    "symmetric": spaces.Box(-1.0, 1.0, (3,)),
    "asymmetric": spaces.Box(0.3, 0.7, (2,)),
    "one value": spaces.Box(-2.0, 2.0, (1,)),
    "mixed bounds": spaces.Box(np.array([-1.0, 0.0, -7.5], np.float32), np.array([2.0, 0.1, -7.0], np.float32)),
    "two dimensions": spaces.Box(-0.4, 0.4, (2, 3)),
    "no dimension": spaces.Box(-1.0, 1.0, ()),
    "float64": spaces.Box(-0.1, 0.1, (2,), np.float64),
    "float64 thirds": spaces.Box(np.array([1 / 3, -2 / 3]), np.array([2 / 3, -1 / 3]), (2,), np.float64),
    "huge": spaces.Box(-3e38, 3e38, (2,)),
    "tiny": spaces.Box(-1e-38, 1e-38, (2,)),
    "far away": spaces.Box(16777216.0, 16777218.0, (2,)),
    "equal bounds": spaces.Box(0.5, 0.5, (2,)),
}
UNBOUNDED: dict[str, spaces.Box] = {
    "unbounded": spaces.Box(-np.inf, np.inf, (2,)),
    "above": spaces.Box(0.0, np.inf, (2,)),
    "below": spaces.Box(-np.inf, 2.0, (2,)),
    "unbounded float64": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "some": spaces.Box(np.array([-np.inf, -1.0, 0.0], np.float32), np.array([np.inf, np.inf, 2.0], np.float32)),
}
CHOICES: dict[str, Any] = {
    "Discrete": spaces.Discrete(4),
    "Discrete of one": spaces.Discrete(1),
    "Discrete from 5": spaces.Discrete(3, start=5),
    "Discrete from -5": spaces.Discrete(3, start=-5),
    **({"Discrete int32": spaces.Discrete(4, dtype=np.int32)} if DISCRETE_HAS_DTYPE else {}),  # type: ignore[call-arg,unused-ignore]
    "MultiDiscrete": spaces.MultiDiscrete([3, 1, 4]),
    "MultiDiscrete with starts": spaces.MultiDiscrete([3, 4], start=[2, -5]),
    "MultiDiscrete of two dimensions": spaces.MultiDiscrete([[3, 4], [2, 2]]),
    "MultiDiscrete int32": spaces.MultiDiscrete([3, 4], dtype=np.int32),
    "MultiDiscrete int8": spaces.MultiDiscrete([3, 4], dtype=np.int8),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary of two dimensions": spaces.MultiBinary((2, 3)),
}
CASES = [
    *((f"{name}, {mapping}", space, mapping) for name, space in BOXES.items() for mapping in ("clip", "squash", "bins")),
    *((f"{name}, clip", space, "clip") for name, space in UNBOUNDED.items()),
    *((name, space, "clip") for name, space in CHOICES.items()),
]
ALL_ACTIONS = pytest.mark.parametrize(("space", "mapping"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])


def any_spaces(observation_space: Any, action_space: Any) -> Callable[[], AnySpaces]:
    return partial(AnySpaces, observation_space, action_space)


# --- actions ---------------------------------------------------------------------------------------------------------


@ALL_ACTIONS
def test_actions_lie_in_the_space(space: Any, mapping: str) -> None:
    """For parameters of any size, with noise and without."""
    rng = np.random.default_rng(0)
    kwargs = {"net_arch": [3], "action_mapping": mapping, "num_bins": 5}
    actor = _core.Actor(make_policy_spec("MlpPolicy", OBSERVATION, space, kwargs))
    outside = []
    for trial in range(400):
        size = 0.0 if trial == 0 else 10.0 ** rng.uniform(-3.0, 8.0)
        actor.parameters[:] = size * rng.standard_normal(actor.num_params)
        actor.begin_episode(trial, 0.5 * (trial % 3), sample=trial % 2 == 1)
        action = actor.act(rng.standard_normal(4))
        if not space.contains(action):
            outside.append(action)
    assert outside == []


@ALL_ACTIONS
def test_predict_and_learn_stay_in_the_space(space: Any, mapping: str) -> None:
    """AnySpaces refuses an action that its space does not contain."""
    kwargs = {"net_arch": [3], "action_mapping": mapping, "num_bins": 4}
    numbers = isinstance(space, spaces.Box)
    noise = {"action_noise": 0.3} if numbers and mapping != "bins" else {} if numbers else {"sample_actions": True}
    with FastES(any_spaces(OBSERVATION, space), n_workers=0, policy_kwargs=kwargs, **noise, **TINY) as model:
        learn(model, 3)
        for deterministic in (True, False):
            action, state = model.predict(np.ones(4, dtype=np.float32), deterministic=deterministic)
            assert state is None
            assert space.contains(action)
            rows, _ = model.predict(np.ones((5, 4), dtype=np.float32), deterministic=deterministic)
            assert rows.shape == (5, *space.shape)
            assert rows.dtype == np.asarray(action).dtype
            assert all(space.contains(row) for row in rows)
        (empty, _) = model.predict(np.ones((0, 4), dtype=np.float32), deterministic=True)
        assert empty.shape == (0, *space.shape)


def test_bounds_are_reached() -> None:
    space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
    for mapping in ("clip", "squash", "bins"):
        actor = _core.Actor(make_policy_spec("LinearPolicy", spaces.Box(-1, 1, (1,)), space, {"action_mapping": mapping}))
        weights = np.tile(np.linspace(-1e6, 1e6, 10), 2) if mapping == "bins" else np.full(2, 1e6)
        for sign, bound in ((-1.0, space.low), (1.0, space.high)):
            actor.parameters[:] = sign * weights
            assert actor.act(np.ones(1)) == pytest.approx(bound, abs=1e-6), mapping


def test_zero_output_is_the_middle() -> None:
    space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
    for mapping in ("clip", "squash"):
        actor = _core.Actor(make_policy_spec("LinearPolicy", OBSERVATION, space, {"action_mapping": mapping}))
        assert actor.act(np.ones(4)).tolist() == [0.5, 0.25]


def test_unbounded_actions_are_the_outputs() -> None:
    space = spaces.Box(-np.inf, np.inf, (2,))
    actor = _core.Actor(make_policy_spec("LinearPolicy", spaces.Box(-1, 1, (1,)), space))
    actor.parameters[:] = [123.5, -4.0]
    assert actor.act(np.array([2.0])).tolist() == [247.0, -8.0]


def test_sampling_visits_every_choice_and_the_mode_does_not() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 10])
    with FastES(any_spaces(OBSERVATION, space), n_workers=0, sample_actions=True, **TINY) as model:
        observations = np.zeros((300, 4))
        sampled, _ = model.predict(observations, deterministic=False)
        assert {tuple(row) for row in sampled.tolist()} == {(a, b) for a in (0, 1) for b in (10, 11, 12)}
        mode, _ = model.predict(observations, deterministic=True)
        assert len({tuple(row) for row in mode.tolist()}) == 1


# --- observations ----------------------------------------------------------------------------------------------------

OBSERVATIONS: dict[str, Any] = {
    "Box": spaces.Box(-1.0, 1.0, (3,)),
    "Box float64": spaces.Box(-1.0, 1.0, (3,), np.float64),
    "Box float16": spaces.Box(-1.0, 1.0, (3,), np.float16),
    "Box uint8": spaces.Box(0, 255, (4, 3, 1), np.uint8),
    "Box int64": spaces.Box(-5, 5, (3,), np.int64),
    "Box of two dimensions": spaces.Box(-1.0, 1.0, (2, 3)),
    "Box without dimension": spaces.Box(-1.0, 1.0, ()),
    "Box unbounded": spaces.Box(-np.inf, np.inf, (2,)),
    "Discrete": spaces.Discrete(5),
    "Discrete with start": spaces.Discrete(5, start=3),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiDiscrete with start": spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(-1.0, 1.0, (2, 2))}),
    "Tuple": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2), spaces.Box(-1.0, 1.0, (2,))]),
    "nested": spaces.Dict({"x": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"y": spaces.Box(0, 1, (2,))})])}),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observation_spaces(name: str) -> None:
    space = OBSERVATIONS[name]
    env = any_spaces(space, spaces.Box(-1.0, 1.0, (2,)))
    others = 2 if name in ("Box uint8", "Discrete", "nested") else 0
    first, second = (train(env, 3, n_workers, population_size=4, action_noise=0.1) for n_workers in (0, others))
    assert_same_state(first.state, second.state)
    with FastES(env, n_workers=0, **TINY) as model:
        learn(model, 2)
        space.seed(1)
        observations = [space.sample() for _ in range(6)]
        actions = [model.predict(observation, deterministic=True)[0] for observation in observations]
        assert all(action.shape == (2,) for action in actions)
        assert len({action.tobytes() for action in actions}) > 1, "the policy sees its observation"
        assert model.policy_spec.obs_size == spaces.flatdim(space)


@pytest.mark.parametrize("name", [name for name, space in OBSERVATIONS.items() if not hasattr(space, "spaces")])
def test_batches_equal_their_rows(name: str) -> None:
    space = OBSERVATIONS[name]
    with FastES(any_spaces(space, spaces.Box(-1.0, 1.0, (2,))), n_workers=0, **TINY) as model:
        learn(model, 2)
        space.seed(1)
        observations = [space.sample() for _ in range(7)]
        rows = np.array([model.predict(observation, deterministic=True)[0] for observation in observations])
        batch, _ = model.predict(np.array(observations), deterministic=True)
        assert (batch == rows).all()
        assert batch.dtype == rows.dtype
        one, _ = model.predict(np.array(observations[:1]), deterministic=True)
        assert (one == rows[:1]).all()


def test_memory_layout_of_an_observation_does_not_matter() -> None:
    with FastES(any_spaces(spaces.Box(-1, 1, (2, 3), np.float64), spaces.Box(-1, 1, (2,))), n_workers=0, **TINY) as model:
        learn(model, 2)
        observation = np.arange(6.0).reshape(2, 3) / 6
        expected, _ = model.predict(observation, deterministic=True)
        swapped = observation.astype(observation.dtype.newbyteorder())
        strided = np.zeros((4, 6))[::2, ::2]
        strided[:] = observation
        read_only = observation.copy()
        read_only.flags.writeable = False
        for same in (
            np.asfortranarray(observation),
            swapped,
            strided,
            read_only,
            observation.tolist(),
            observation.astype("f2"),
        ):
            got, _ = model.predict(same, deterministic=True)
            if getattr(same, "dtype", None) == np.float16:
                assert got == pytest.approx(expected, abs=1e-2)
            else:
                assert (got == expected).all()
        assert (observation == np.arange(6.0).reshape(2, 3) / 6).all(), "the caller's array is not written"


def test_integers_are_seen_as_their_values() -> None:
    with FastES(any_spaces(spaces.Box(0, 255, (3,), np.uint8), spaces.Box(-9, 9, (2,))), n_workers=0, **TINY) as model:
        observation = np.array([0, 128, 255])
        expected, _ = model.predict(observation.astype(np.float64), deterministic=True)
        for dtype in (np.uint8, np.int16, np.int64, np.uint16, np.float32):
            assert (model.predict(observation.astype(dtype), deterministic=True)[0] == expected).all(), dtype


def test_predict_follows_training_and_parameters() -> None:
    observation = np.ones(3)
    with FastES(Toy, n_workers=0, **TINY) as model:
        seen = [model.predict(observation, deterministic=True)[0].tobytes()]
        for generation in (1, 2):
            learn(model, generation)
            seen.append(model.predict(observation, deterministic=True)[0].tobytes())
        model.set_parameters({"policy": {k: np.zeros_like(v) for k, v in model.get_parameters()["policy"].items()}})
        assert (model.predict(observation, deterministic=True)[0] == 0.0).all()
        assert len(set(seen)) == 3


def test_action_noise_is_drawn_for_each_call_and_row() -> None:
    with FastES(Toy, n_workers=0, action_noise=0.3, **TINY) as model:
        calls = {model.predict(np.ones(3))[0].tobytes() for _ in range(10)}
        assert len(calls) == 10
        rows, _ = model.predict(np.ones((10, 3)))
        assert len({row.tobytes() for row in rows}) == 10
        certain = {model.predict(np.ones(3), deterministic=True)[0].tobytes() for _ in range(10)}
        assert len(certain) == 1


def test_what_a_policy_computes() -> None:
    """A NumPy network from the named parameters gives the same actions."""
    kwargs = {"net_arch": [5, 4], "activation_fn": "tanh"}
    with FastES(Toy, n_workers=0, policy_kwargs=kwargs, **TINY) as model:
        learn(model, 4)
        p = model.get_parameters()["policy"]
        assert [(name, value.shape) for name, value in p.items()] == [
            *(("layers.0.weight", (5, 3)), ("layers.0.bias", (5,)), ("layers.1.weight", (4, 5)), ("layers.1.bias", (4,))),
            *(("layers.2.weight", (2, 4)), ("layers.2.bias", (2,))),
        ]
        observations = np.random.default_rng(0).standard_normal((20, 3))
        x = np.clip((observations - model.normalizer.mean) / model.normalizer.std, -5, 5)
        for layer in range(3):
            x = x @ p[f"layers.{layer}.weight"].T + p[f"layers.{layer}.bias"]
            x = np.tanh(x) if layer < 2 else np.clip(x, -1, 1)
        assert model.predict(observations, deterministic=True)[0] == pytest.approx(x, abs=1e-5)


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["MlpPolicy", "LinearPolicy"])
def test_parameters_round_trip(policy: str) -> None:
    with FastES(Toy, policy, n_workers=0, **TINY) as model, FastES(Toy, policy, n_workers=0, **{**TINY, "seed": 6}) as other:
        learn(model, 2)
        other.set_parameters(model.get_parameters())
        assert other.theta.tobytes() == model.theta.tobytes()
        together = np.concatenate([value.ravel() for value in model.get_parameters()["policy"].values()])
        assert together.tobytes() == model.policy.parameters_to_vector().tobytes()
        assert sorted(together) == sorted(model.theta)
        assert together.dtype == np.float32
        assert len(model.theta) == model.num_params


def test_parameters_are_copies() -> None:
    with FastES(Toy, n_workers=0, **TINY) as model:
        before = model.theta.tobytes()
        given = model.get_parameters()
        for value in given["policy"].values():
            value[...] = 7.0
        assert model.theta.tobytes() == before
        model.set_parameters(given)
        assert (model.theta == 7.0).all()
        for value in given["policy"].values():
            value[...] = 0.0
        assert (model.theta == 7.0).all()


def test_theta_is_read_only_and_kept_by_who_took_it() -> None:
    with FastES(Toy, n_workers=0, **TINY) as model:
        theta = model.theta
        kept = theta.copy()
        with pytest.raises(ValueError, match="read-only"):
            theta += 1.0
        learn(model, 2)
        assert (theta == kept).all()
        assert (model.theta != kept).any()
        with pytest.raises(ValueError, match="read-only"):
            model.theta[0] = 1.0


def test_training_goes_on_from_parameters_that_were_set() -> None:
    with FastES(Toy, n_workers=2, **TINY) as model:
        learn(model, 1)
        model.set_parameters({"policy": {k: np.full_like(v, 0.01) for k, v in model.get_parameters()["policy"].items()}})
        learn(model, 2)
        assert np.abs(model.theta - 0.01).max() < 0.1


def test_the_first_parameters() -> None:
    spec = make_policy_spec("MlpPolicy", spaces.Box(-1, 1, (100,)), spaces.Box(-1, 1, (50,)), {"net_arch": [80]})
    theta = spec.initial_theta(3)
    views = spec.split(theta)
    assert views["layers.0.weight"].std() == pytest.approx(0.1, rel=0.05)
    assert views["layers.1.weight"].std() == pytest.approx(0.01 / np.sqrt(80), rel=0.05)
    assert not views["layers.0.bias"].any()
    assert (spec.initial_theta(3) == theta).all()
    assert (spec.initial_theta(4) != theta).any()
    linear = make_policy_spec("LinearPolicy", spaces.Box(-1, 1, (100,)), spaces.Box(-1, 1, (50,)))
    assert not linear.initial_theta(3).any()
    assert linear.num_params == 5000


def test_policy_kwargs_build_what_they_say() -> None:
    class ReLU:
        """Stands for torch.nn.ReLU."""

    def spec(policy: str, **kwargs: Any) -> PolicySpec:
        return make_policy_spec(policy, OBSERVATION, spaces.Box(-1, 1, (2,)), kwargs)

    assert spec("MlpPolicy").layer_sizes == (4, 64, 64, 2)
    assert spec("MlpPolicy", net_arch=[]).layer_sizes == (4, 2)
    assert spec("MlpPolicy", net_arch=(7,)).layer_sizes == (4, 7, 2)
    assert spec("MlpPolicy", activation_fn=ReLU).layers[0].activation == "relu"
    assert spec("MlpPolicy", activation_fn="ReLU").layers[0].activation == "relu"
    assert spec("MlpPolicy", net_arch={"pi": [5, 6], "vf": [7], "qf": [8]}).layer_sizes == (4, 5, 6, 2)
    assert spec("MlpPolicy", net_arch={"pi": []}).layer_sizes == (4, 2)
    with pytest.raises(ValueError, match=r"'net_arch'.*LinearPolicy has no hidden layers: use 'MlpPolicy'"):
        spec("LinearPolicy", net_arch={"pi": [], "vf": [7]})
    assert spec("MlpPolicy", use_bias=False).num_params == 4 * 64 + 64 * 64 + 64 * 2
    assert spec("LinearPolicy").num_params == 8
    assert spec("LinearPolicy", use_bias=True).num_params == 10
    assert spec("MlpPolicy", action_mapping="bins", num_bins=7).layer_sizes[-1] == 14


def test_policy_kwargs_of_sb3_survive_a_file(tmp_path: Path) -> None:
    """torch's classes and functions, NumPy's numbers and tuples."""
    nn = pytest.importorskip("torch.nn")
    layers = {"pi": (np.int64(5), 3), "vf": [64]}
    plain = {"population_size": 4, "n_workers": 0, "seed": 1, "preset": "default"}
    with FastES("Toy-v0", policy_kwargs={"net_arch": [5, 3], "activation_fn": "relu"}, **plain) as model:
        expected = model.predict(np.ones(3), deterministic=True)[0]
    for activation in (nn.ReLU, "ReLU", "relu", nn.functional.relu):
        with FastES("MlpPolicy", "Toy-v0", policy_kwargs={"net_arch": layers, "activation_fn": activation}, **plain) as model:
            assert model.policy_spec.layer_sizes == (3, 5, 3, 2)
            model.save(tmp_path / "m")
        with FastES.load(tmp_path / "m", n_workers=0) as again:
            assert again.settings.policy_kwargs == model.settings.policy_kwargs
            assert (again.predict(np.ones(3), deterministic=True)[0] == expected).all()
    for other in (nn.GELU, nn.GELU()):
        with pytest.raises(ValueError, match=r"GELU.*'tanh', 'relu', 'elu'.*TorchPolicy"):
            FastES("Toy-v0", policy_kwargs={"activation_fn": other}, **plain)


def test_sb3_order_of_arguments() -> None:
    with (
        FastES("MlpPolicy", "Toy-v0", n_workers=0, **TINY) as first,
        FastES("Toy-v0", "MlpPolicy", n_workers=0, **TINY) as second,
    ):
        assert_same_state(first.snapshot(), second.snapshot())
        action, state = first.predict(np.ones(3), None, None, True)
        assert (action.shape, state) == ((2,), None)


@pytest.mark.parametrize("name", CHOICES)
def test_nonfinite_observations_make_choices_of_the_space(name: str) -> None:
    space = CHOICES[name]
    actor = _core.Actor(make_policy_spec("MlpPolicy", OBSERVATION, space, {"net_arch": [3]}))
    actor.parameters[:] = 1.0
    for bad in (np.nan, np.inf, -np.inf):
        for sample in (False, True):
            actor.begin_episode(1, 0.0, sample)
            action = np.asarray(actor.act(np.array([bad, 0.0, 0.0, 0.0])), dtype=getattr(space, "dtype", None))
            assert space.contains(action if action.ndim else int(action)), (bad, action)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"activation_fn": "relu"}, r"\(activation 'relu'\), the checkpoint's is dense 3 -> 64 \(activation 'tanh'\)"),
        ({"use_bias": False}, r"\(use_bias False\), the checkpoint's is dense 3 -> 64 \(use_bias True\)"),
    ],
)
def test_how_a_layer_of_a_file_differs_is_named(kwargs: dict[str, Any], said: str, tmp_path: Path) -> None:
    with FastES(Toy, n_workers=0, **TINY) as model:
        model.save(tmp_path / "m")
    with pytest.raises(CheckpointMismatch, match=f"layer 0 would be dense 3 -> 64 {said}"):
        FastES.load(tmp_path / "m", Toy, n_workers=0, policy_kwargs=kwargs)
