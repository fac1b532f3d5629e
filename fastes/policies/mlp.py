"""Policy specifications: layers, where each parameter lies in theta, and the first theta."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.errors import suggest
from fastes.policies.action_head import ActionHead, head_from
from fastes.policies.layers import ACTIVATIONS, Layer, dense_layers, layer_sizes

POLICIES = ("MlpPolicy", "LinearPolicy")
CUSTOM_POLICIES = ("TorchPolicy", "CallablePolicy")
_KWARGS = ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins")


@dataclass(frozen=True)
class PolicySpec:
    """A list of layers and an action head; theta is layer after layer, and in each parameter after parameter, row by row.

    obs_shape: of one observation after flattening of anything but a Box; flattened: whether it needs that.
    """

    layers: tuple[Layer, ...]
    head: ActionHead
    obs_shape: tuple[int, ...]
    flattened: bool = False

    @property
    def obs_size(self) -> int:
        return self.layers[0].inputs

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """How many values there are before, between and after the layers."""
        return layer_sizes(self.layers)

    @property
    def num_params(self) -> int:
        return sum(math.prod(shape) for shape in self.parameter_shapes().values())

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters in the order in which they lie in theta."""
        return {
            f"layers.{i}.{name}": shape
            for i, layer in enumerate(self.layers)
            for name, shape in layer.parameter_shapes().items()
        }

    def split(self, theta: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
        """Views of theta (num_params,) by parameter name."""
        return split_theta(theta, self.parameter_shapes())

    def split_by_layer(self, theta: npt.NDArray[np.float32]) -> list[dict[str, npt.NDArray[np.float32]]]:
        """The same views, those of each layer by the names that it gives them."""
        views = iter(self.split(theta).values())
        return [{name: next(views) for name in layer.parameter_shapes()} for layer in self.layers]

    def initial_theta(self, seed: int) -> npt.NDArray[np.float32]:
        """See initial_theta."""
        return initial_theta(self, seed)

    def make_actor(self) -> _core.Actor:
        """The policy with parameters of its own."""
        return _core.Actor(self)


def split_theta(theta: npt.NDArray[np.float32], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, npt.NDArray[np.float32]]:
    """Views of theta by parameter name, one behind the other."""
    views, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        views[name] = theta[at : at + size].reshape(shape)
        at += size
    return views


def make_policy_spec(
    policy: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any] | None = None,
) -> PolicySpec:
    """The spec of a named policy for an environment's spaces.

    policy: 'MlpPolicy' (hidden layers 64-64, tanh, biases) or 'LinearPolicy' (one matrix, no bias).
    policy_kwargs: net_arch (hidden sizes; in SB3's dict those of 'pi'), activation_fn ('tanh' or 'relu' in any case, or a
    class of that name such as torch.nn.Tanh), use_bias, action_mapping ('clip', 'squash', 'bins'), num_bins.
    """
    if policy in CUSTOM_POLICIES:
        raise ValueError(f"policy = {policy!r} is a class, not a name: pass an object, as in FastES(env, fastes.{policy}(...))")
    if policy not in POLICIES:
        raise ValueError(
            f"unknown policy {policy!r}: expected one of {POLICIES}{suggest(policy, POLICIES)}, or fastes.TorchPolicy(module) "
            "for any other network"
        )
    kwargs = dict(policy_kwargs or {})
    for key in kwargs:
        if key not in _KWARGS:
            raise ValueError(f"unknown policy_kwargs key {key!r}: expected {_KWARGS}{suggest(key, _KWARGS)}")
    linear = policy == "LinearPolicy"
    hidden = _checked_layers(kwargs.get("net_arch"), linear)
    head = head_from(action_space, kwargs)
    obs_size = flat_size(observation_space)
    use_bias = kwargs.get("use_bias", not linear)
    if not isinstance(use_bias, bool):
        raise TypeError(f"use_bias = {use_bias!r} is a {type(use_bias).__name__}: expected True or False")
    activation = _activation_name(kwargs.get("activation_fn", "tanh"))
    return PolicySpec(
        layers=dense_layers((obs_size, *hidden, head.num_outputs), activation, use_bias),
        head=head,
        obs_shape=observation_space.shape if isinstance(observation_space, spaces.Box) else (obs_size,),
        flattened=not isinstance(observation_space, spaces.Box),
    )


def flat_size(space: spaces.Space[Any]) -> int:
    """Length of a flattened observation, or ValueError for a space that has none."""
    try:
        size = int(spaces.flatdim(space))
    except (ValueError, NotImplementedError):
        raise ValueError(
            f"observation space {space} is not supported: it has no fixed length. Expected Box, Discrete, MultiDiscrete, "
            "MultiBinary, or Dict and Tuple of these; wrap the environment to return one of them"
        ) from None
    if size == 0:
        raise ValueError(f"observation space {space} is empty: expected at least one value")
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind not in "fiub":
        raise ValueError(f"observation space {space} has dtype {space.dtype}: expected numbers")
    return size


def _checked_layers(given: Sequence[int] | Mapping[str, Any] | None, linear: bool) -> tuple[int, ...]:
    net_arch = _actor_layers(given) if isinstance(given, Mapping) else given
    if linear:
        if net_arch:
            raise ValueError(f"LinearPolicy has no hidden layers, net_arch = {net_arch!r} was given: use 'MlpPolicy'")
        return ()
    sizes = (64, 64) if net_arch is None else net_arch
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, (str, bytes))
    if not listed or not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
        raise ValueError(f"net_arch = {given!r}: expected a list of positive layer sizes, such as [64, 64]")
    return tuple(int(n) for n in sizes)


def _actor_layers(net_arch: Mapping[str, Any]) -> Any:
    """Those of 'pi' in SB3's dict; the critics ('vf', 'qf') have no part in ES."""
    if "pi" not in net_arch or not set(net_arch) <= {"pi", "vf", "qf"}:
        raise ValueError(
            f"net_arch = {dict(net_arch)!r}: expected a list of layer sizes, or a dict with them under 'pi' ('vf' and 'qf' are "
            "left out: there is no critic)"
        )
    return net_arch["pi"]


def _activation_name(activation: object) -> str:
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", repr(activation))
    if name.lower() not in ACTIVATIONS:
        raise ValueError(
            f"unknown activation_fn {activation!r}: expected one of {ACTIVATIONS}, or a class of that name such as "
            f"torch.nn.Tanh{suggest(name.lower(), ACTIVATIONS)}; for any other network use fastes.TorchPolicy(module)"
        )
    return name.lower()


def initial_theta(spec: PolicySpec, seed: int) -> npt.NDArray[np.float32]:
    """The first parameters, float32 (num_params,).

    Hidden weights are N(0, 1/fan_in), the last layer of an MLP is a hundred times smaller (Salimans et al. 2017, released
    code), biases are zero, and so is everything in a linear policy (Mania et al. 2018).
    """
    theta = np.zeros(spec.num_params, dtype=np.float32)
    if len(spec.layers) == 1:
        return theta
    _core.normal_fill(theta, seed, 0, _core.STREAM_INIT)
    *hidden, last = zip(spec.layers, spec.split_by_layer(theta), strict=True)
    for layer, parameters in hidden:
        layer.scale_normals(parameters, gain=1.0)
    last[0].scale_normals(last[1], gain=0.01)
    return theta
