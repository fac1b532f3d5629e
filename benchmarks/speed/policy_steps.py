"""The policies whose step is timed, and the same step in NumPy and in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes import _core
from fastes.policies.named_policies import make_policy_spec
from fastes.policies.policy_spec import PolicySpec

CLIP = 5.0
SEED = 5


class TimedPolicy(NamedTuple):
    """A spec and whether its observations are normalised; aim_us: microseconds a step may take, 0 for no aim."""

    spec: PolicySpec
    normalize: bool
    aim_us: float = 0.0


def _box(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float64)


def _actions(size: int) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (size,), np.float32)


POLICIES = {
    "4-2 linear, Discrete": TimedPolicy(make_policy_spec("LinearPolicy", _box(4), spaces.Discrete(2)), False),
    "17-6 linear, normalised": TimedPolicy(make_policy_spec("LinearPolicy", _box(17), _actions(6)), True),
    "17-64-64-6 tanh, normalised": TimedPolicy(make_policy_spec("MlpPolicy", _box(17), _actions(6)), True, 1.5),
    "348-256-256-17 tanh, normalised": TimedPolicy(
        make_policy_spec("MlpPolicy", _box(348), _actions(17), {"net_arch": [256, 256]}), True
    ),
}


def parameters(spec: PolicySpec) -> npt.NDArray[np.float32]:
    """Random weights of a size that keeps tanh off its ends, float32 (num_params,)."""
    rng = np.random.default_rng(SEED)
    return (rng.standard_normal(spec.num_params) * 0.3).astype(np.float32)


def normalizer(spec: PolicySpec) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """mean and 1/std, each float64 (obs_size,)."""
    rng = np.random.default_rng(SEED + 1)
    return rng.standard_normal(spec.obs_size), rng.uniform(0.5, 2.0, spec.obs_size)


def filled_actor(policy: TimedPolicy, make: Callable[[PolicySpec], Any]) -> tuple[Any, npt.NDArray[np.float64]]:
    """An actor (of the core or its twin) with parameters and statistics, and an observation for it."""
    actor = make(policy.spec)
    actor.parameters[:] = parameters(policy.spec)
    if policy.normalize:
        actor.set_normalizer(*normalizer(policy.spec), CLIP)
    return actor, np.random.default_rng(SEED + 2).standard_normal(policy.spec.obs_size)


def core_step(policy: TimedPolicy) -> Callable[[], Any]:
    actor, observation = filled_actor(policy, _core.Actor)
    return lambda: actor.act(observation)


def numpy_step(policy: TimedPolicy) -> Callable[[], Any]:
    """The step as one would write it in NumPy: one expression a layer, float32."""
    spec = policy.spec
    _, observation = filled_actor(policy, _core.Actor)
    mean, inv_std = normalizer(spec)
    views = spec.split_by_layer(parameters(spec))
    weights, biases = [view["weight"] for view in views], [view.get("bias", np.float32(0.0)) for view in views]
    discrete, normalize = spec.head.scalar, policy.normalize

    def step() -> Any:
        x = (
            np.clip((observation - mean) * inv_std, -CLIP, CLIP).astype(np.float32)
            if normalize
            else observation.astype(np.float32)
        )
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = np.tanh(x @ weight + bias)
        y = x @ weights[-1] + biases[-1]
        return int(np.argmax(y)) if discrete else np.clip(y, -1.0, 1.0)

    return step


def torch_step(policy: TimedPolicy) -> Callable[[], Any] | None:
    """The step as a torch.nn.Sequential without gradients, from a NumPy observation to a NumPy action; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    spec = policy.spec
    _, observation = filled_actor(policy, _core.Actor)
    layers: list[Any] = []
    for dense, values in zip(spec.layers, spec.split_by_layer(parameters(spec)), strict=True):
        layer = torch.nn.Linear(dense.inputs, dense.outputs, bias=dense.use_bias)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(values["weight"].T.copy()))
            if dense.use_bias:
                layer.bias.copy_(torch.from_numpy(values["bias"].copy()))
        layers += [layer, torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers[:-1])
    mean, inv_std = (torch.from_numpy(x.astype(np.float32)) for x in normalizer(spec))
    discrete, normalize = spec.head.scalar, policy.normalize

    @torch.no_grad()
    def step() -> Any:
        x = torch.as_tensor(observation, dtype=torch.float32)
        y = net(((x - mean) * inv_std).clamp(-CLIP, CLIP) if normalize else x)
        return int(y.argmax()) if discrete else y.clamp(-1.0, 1.0).numpy()

    return step


def steps(policy: TimedPolicy) -> dict[str, Callable[[], Any]]:
    """'FastES', 'NumPy' and, where installed, 'torch' -> one step. Raises SystemExit unless all act alike."""
    ways = {"FastES": core_step(policy), "NumPy": numpy_step(policy), "torch": torch_step(policy)}
    found = {name: step for name, step in ways.items() if step is not None}
    action = found["FastES"]()
    for name, step in found.items():
        if not np.allclose(step(), action, atol=2e-4):
            raise SystemExit(f"nothing is timed: {name} acts {step()}, FastES {action} on the same observation")
    return found
