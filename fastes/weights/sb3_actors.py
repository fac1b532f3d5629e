"""The actors of Stable-Baselines3 and sb3-contrib, as they are in memory, and a torch.nn.Sequential of the same layers.

Nothing here imports torch: whoever has such a module has it. Sources: `predict` and `_predict` in
stable_baselines3/common/policies.py, sac/policies.py, td3/policies.py, dqn/policies.py, sb3_contrib/ars/policies.py
and common/recurrent/policies.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.number_array import number_array
from fastes.weights.network import Front, Network, Statistics, checked_network, checked_statistics

_ANY_NETWORK = "fastes.TorchPolicy(module) takes any network"
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu"}


def is_sb3(source: Any) -> bool:
    """Whether this is an algorithm of SB3, its policy, or any other torch module."""
    return _is_module(source) or _is_module(getattr(source, "policy", None))


def _is_module(item: Any) -> bool:
    return any(f"{base.__module__}.{base.__name__}" == "torch.nn.modules.module.Module" for base in type(item).__mro__)


def network_of_sb3(source: Any, outputs: str | None, statistics: Statistics | None) -> Network:
    """The network that `source.predict(..., deterministic=True)` asks.

    outputs: of a plain module, one of OUTPUTS; None where the policy says it.
    statistics: of observations; None for those of the algorithm's VecNormalize, if it has one.
    ValueError for what no FastES policy can be.
    """
    policy = source if _is_module(source) else source.policy
    if statistics is None and policy is not source:
        statistics = _statistics_of(source)
    if not hasattr(policy, "action_space"):
        return _network(policy, [policy], outputs, statistics)
    _check_observations(policy)
    _check_choices(policy)
    modules, found = _actor(policy)
    if outputs not in (None, found):
        raise ValueError(f"outputs = {outputs!r}: those of {type(policy).__name__} are {found!r}; leave it out")
    return _network(policy, modules, found, statistics, policy.action_space)


def _actor(policy: Any) -> tuple[list[Any], str]:
    """The modules from observations to outputs, and what these are."""
    boxed = isinstance(policy.action_space, spaces.Box)
    actor = getattr(policy, "actor", None) or policy
    if hasattr(policy, "mlp_extractor") and hasattr(policy, "action_net"):  # PPO, A2C, TRPO, RecurrentPPO
        front = [getattr(policy, "pi_features_extractor", policy.features_extractor)]
        front += [policy.lstm_actor] if hasattr(policy, "lstm_actor") else []
        squashes = boxed and policy.squash_output  # gSDE
        return [*front, policy.mlp_extractor.policy_net, policy.action_net], _of(boxed, "tanh" if squashes else "actions")
    if hasattr(actor, "latent_pi") and hasattr(actor, "mu"):  # SAC, TQC
        return [actor.features_extractor, actor.latent_pi, actor.mu], "tanh"
    if boxed and hasattr(actor, "mu"):  # TD3, DDPG
        return [actor.features_extractor, actor.mu], "tanh"
    if hasattr(policy, "action_net"):  # ARS
        return [policy.features_extractor, policy.action_net], _of(boxed, "tanh" if policy.squash_output else "actions")
    q_net = getattr(policy, "q_net", policy)
    if not boxed and _is_module(getattr(q_net, "q_net", None)):  # DQN
        return [q_net.features_extractor, q_net.q_net], "logits"
    raise ValueError(
        f"{type(policy).__name__} is none of the policies of PPO, RecurrentPPO, A2C, TRPO, SAC, TQC, TD3, DDPG, DQN and ARS: "
        f"pass its actor as a torch.nn.Sequential of dense layers, with outputs=. {_ANY_NETWORK}"
    )


def _of(boxed: bool, outputs: str) -> str:
    return outputs if boxed else "logits"


def _check_observations(policy: Any) -> None:
    """ValueError for observations of several parts."""
    space = policy.observation_space
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        raise ValueError(
            f"{type(policy).__name__} sees {type(space).__name__} observations: expected a policy "
            f"whose observations are one array. {_ANY_NETWORK}"
        )


def _check_choices(policy: Any) -> None:
    """ValueError for choices that SB3 numbers from 0, though the space does not."""
    start = getattr(policy.action_space, "start", 0)
    if np.any(start):
        raise ValueError(
            f"{type(policy).__name__} gives choices from 0 on, its action space begins at {start}: no policy here leaves its "
            "action space. Pass policy.state_dict() for choices that begin there"
        )


def _network(
    policy: Any, modules: list[Any], outputs: str | None, statistics: Statistics | None, action_space: Any = None
) -> Network:
    name = type(policy).__name__
    convolutions: list[Any] = []
    cells: list[Any] = []
    layers: list[tuple[Any, Any]] = []
    between: list[str | None] = []  # the activation behind each layer
    for module in (leaf for each in modules for leaf in _leaves(each)):
        kind = type(module).__name__
        if kind == "Linear":
            layers.append((module.weight, module.bias))
            between.append(None)
        elif kind == "Conv2d" and not layers and not cells:
            convolutions.append(module)
            between.append(None)
        elif kind == "LSTM" and not layers and not convolutions and not cells:
            cells.append(module)
        elif kind in _ACTIVATIONS and between and between[-1] is None and getattr(module, "alpha", 1.0) == 1.0:
            between[-1] = _ACTIVATIONS[kind]
        elif kind != "Identity" and not (kind == "Flatten" and not layers):
            raise ValueError(
                f"{name} has {module!r:.100} in its actor: expected convolutions of an image or an LSTM, if any, and then "
                f"dense layers, with Tanh, ReLU or ELU between them. {_ANY_NETWORK}"
            )
    if len(layers) < (2 if convolutions else 1):
        raise ValueError(f"{name} has {len(layers)} dense layers: expected one, or two behind convolutions. {_ANY_NETWORK}")
    *hidden, last = between
    if len(set(hidden)) > 1 or (hidden and hidden[0] is None):
        raise ValueError(f"{name} has {hidden} between its layers: expected the same activation everywhere. {_ANY_NETWORK}")
    if last not in (None, "tanh"):
        raise ValueError(f"{name} has {last} behind its last layer: expected none, or tanh. {_ANY_NETWORK}")
    if last == "tanh" and outputs not in (None, "tanh"):
        raise ValueError(
            f"outputs = {outputs!r}: {name} has tanh behind its last layer, which spans the actions' bounds: pass 'tanh', or "
            f"nothing. {_ANY_NETWORK}"
        )
    if last == "tanh":
        outputs = "tanh"
    if convolutions:
        front: Front | None = _sees(policy, convolutions, len(layers[0][0]))
    else:
        front = _remembers(cells[0]) if cells else None
        _check_flat(policy)
    more = {"action_space": action_space, "front": front}
    return checked_network(layers, hidden[0] if hidden else "tanh", outputs, statistics, **more)


def _check_flat(policy: Any) -> None:
    """ValueError for an image without convolutions, whose bytes SB3 divides, and FastES does not."""
    space = getattr(policy, "observation_space", None)
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        raise ValueError(f"{type(policy).__name__} sees images by dense layers alone: it cannot be imported. {_ANY_NETWORK}")


def _sees(policy: Any, convolutions: list[Any], features: int) -> Front:
    """Square kernels without padding, as a CnnPolicy has them."""
    parameters, filters = [], []
    for module in convolutions:
        kernel, stride = module.kernel_size, module.stride
        plain = (module.padding, module.dilation, module.groups) == ((0, 0), (1, 1), 1)
        if kernel[0] != kernel[1] or stride[0] != stride[1] or not plain:
            raise ValueError(
                f"{type(policy).__name__} has {module!r:.200}: expected square kernels without padding, dilation and groups. "
                f"{_ANY_NETWORK}"
            )
        weight = _array(module.weight)
        parameters.append({"weight": weight, "bias": np.zeros(len(weight)) if module.bias is None else _array(module.bias)})
        filters.append([len(weight), kernel[0], stride[0]])
    kwargs = {
        "cnn": filters,
        "features_extractor_kwargs": {"features_dim": features},
        "batch_norm": "none",
        "normalize_images": bool(getattr(policy, "normalize_images", False)),
    }
    return Front("CnnPolicy", tuple(parameters), kwargs, features=1)


def _remembers(lstm: Any) -> Front:
    """Cells one behind the other, as a MlpLstmPolicy has them."""
    if lstm.bidirectional or lstm.proj_size or not lstm.bias:
        raise ValueError(f"{lstm!r:.200} cannot be imported: expected one direction, biases and no projection. {_ANY_NETWORK}")
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    layers = tuple({name: _array(getattr(lstm, f"{name}_l{i}")) for name in names} for i in range(lstm.num_layers))
    kwargs = {"cell": "lstm", "lstm_hidden_size": lstm.hidden_size, "n_lstm_layers": lstm.num_layers}
    return Front("MlpLstmPolicy", layers, kwargs, inputs=lstm.input_size)


def _array(parameter: Any) -> npt.NDArray[np.float64]:
    return number_array("a parameter's values", parameter, "numbers")


def _leaves(module: Any) -> Iterator[Any]:
    """The modules that are run, in order. FlattenExtractor only flattens; NatureCNN runs its cnn and its linear."""
    if type(module).__name__ in ("Sequential", "FlattenExtractor", "NatureCNN"):
        for child in module.children():
            yield from _leaves(child)
    else:
        yield module


def _statistics_of(algorithm: Any) -> Statistics | None:
    """Those of its VecNormalize."""
    normalizing = getattr(algorithm, "get_vec_normalize_env", lambda: None)()
    return None if normalizing is None else statistics_of_vec_normalize(normalizing)


def statistics_of_vec_normalize(normalizing: Any) -> Statistics | None:
    """Of a VecNormalize; None where it normalises rewards only."""
    if not normalizing.norm_obs:
        return None
    found = normalizing.obs_rms
    if isinstance(found, dict):
        raise ValueError(f"{normalizing} normalises Dict observations: a policy that sees them cannot be imported")
    mean, std = np.ravel(found.mean), np.ravel(np.sqrt(found.var + normalizing.epsilon))
    return checked_statistics(mean, std, normalizing.clip_obs, int(found.count))
