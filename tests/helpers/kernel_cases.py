"""Values, policies and actors on which the tests of kernels compare each kernel with its NumPy twin."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from twins import numpy_kernels
from twins.same_bits import assert_same_bits

from fastes import _core
from fastes.policies.action_head import ActionHead, make_action_head
from fastes.policies.layers import Layer, dense_layers
from fastes.policies.policy_spec import PolicySpec


def normals(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def awkward(n: int, seed: int = 0) -> np.ndarray:
    """Values of every magnitude, among them zeros of both signs, subnormals, infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-38, 38, n)).astype(np.float32)
    special = np.array([0.0, -0.0, 1e-45, -1e-40, np.inf, -np.inf, np.nan, 3e38, 1.0, -1.0], dtype=np.float32)
    at = rng.random(n) < 0.2
    x[at] = rng.choice(special, int(at.sum()))
    return x


def actors(spec: Any, params: np.ndarray | None = None, normalizer: bool = False) -> tuple[_core.Actor, numpy_kernels.Actor]:
    """The kernel's actor and its twin with the same parameters and normaliser."""
    pair = _core.Actor(spec), numpy_kernels.Actor(spec)
    for actor in pair:
        actor.parameters[:] = normals(spec.num_params, 3) / np.float32(2) if params is None else params
        if normalizer:
            mean = np.random.default_rng(4).standard_normal(spec.obs_size)
            actor.set_normalizer(mean, np.linspace(0.3, 40.0, spec.obs_size), 5.0)
            actor.count_moments(True)
    return pair


def check_steps(name: str, pair: tuple[_core.Actor, numpy_kernels.Actor], observations: Any) -> list[Any]:
    kernel, twin = pair
    before = kernel.parameters.copy()
    actions = []
    for step, obs in enumerate(observations):
        action, expected = kernel.act(obs), twin.act(obs)
        assert type(action) is type(expected), f"{name}: {type(action)}, expected {type(expected)}"
        assert_same_bits(f"{name}, action {step}", action, expected)
        assert_same_bits(f"{name}, moments {step}", kernel.observation_moments, twin.observation_moments)
        actions.append(action)
    assert_same_bits(f"{name}, parameters", kernel.parameters, before)
    return actions


def unbounded(size: int) -> ActionHead:
    """Actions that are the last layer's outputs themselves."""
    return make_action_head(spaces.Box(-np.inf, np.inf, (size,)))


def mlp(
    obs_size: int, hidden: tuple[int, ...], head: ActionHead, activation: str = "tanh", use_bias: bool = True
) -> PolicySpec:
    layers = dense_layers((obs_size, *hidden, head.num_outputs), activation, use_bias)
    return PolicySpec(layers, head, (obs_size,))


class Ends(NamedTuple):
    """A spec without layers."""

    obs_size: int
    head: ActionHead | None
    num_params: int = 5
    layers: tuple[Layer, ...] = ()
    columns: tuple[int, ...] = ()

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return (self.obs_size,)
