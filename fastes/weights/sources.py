"""Networks read from other libraries: arrays by name, .npz files, ARS's weight with statistics, torch modules, SB3's models.

Nothing here imports torch: a module that is passed has done so. Sources: `predict` and `_predict` in
stable_baselines3/common/policies.py, sac/policies.py, td3/policies.py, dqn/policies.py, sb3_contrib/ars/policies.py
and common/recurrent/policies.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from fastes.number_array import number_array
from fastes.system.near_paths import what_is_beside
from fastes.weights.network import Front, Network, Statistics, checked_network, checked_statistics, statistics_or_none

_ANY_NETWORK = "fastes.TorchPolicy(module) takes any network"
_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "ELU": "elu"}


def network_of(source: Any, activation_fn: Any, outputs: str | None, statistics: Statistics | None) -> Network:
    """Return the network of a source, which `import_policy` describes.

    Args:
        source: A path of arrays, a model or policy of SB3, a torch module, or arrays.
        activation_fn: The activation between layers, for sources that do not say it.
        outputs: The meaning of the outputs, one of OUTPUTS, for sources that do not say it.
        statistics: Those of observations; None for the source's own, if it has any.

    Raises:
        ValueError: A network that no FastES policy can be, or shapes that do not fit each other.
        TypeError: Another source.
    """
    if isinstance(source, (str, os.PathLike)):
        return network_of_file(source, activation_fn=activation_fn, outputs=outputs, statistics=statistics)
    if is_sb3(source):
        if activation_fn is not None:
            raise TypeError(f"activation_fn = {activation_fn!r}: {type(source).__name__} has its own; leave it out")
        return network_of_sb3(source, outputs, statistics)
    return network_of_arrays(source, activation_fn, outputs, statistics)


# --- arrays -----------------------------------------------------------------------------------------------------------

_NAMELESS, _LINEAR = r"()", {"weight", "bias"}
# prefix of 'weight' in each layer of an actor, prefix in the last layer if it differs, meaning of the outputs
_FAMILIES: tuple[tuple[str, str, str | None], ...] = (
    (r"mlp_extractor\.policy_net\.(\d+)\.", "action_net.", "actions"),  # PPO, A2C, TRPO
    (r"(?:actor\.)?latent_pi\.(\d+)\.", "mu.", "tanh"),  # SAC, TQC
    (r"(?:actor\.)?mu\.(\d+)\.", "", "tanh"),  # TD3, DDPG
    (r"q_net\.q_net\.(\d+)\.", "", "logits"),  # DQN
    (r"action_net\.(\d+)\.", "", None),  # ARS
    (r"layers\.(\d+)\.", "", None),  # FastES
    (r"(\d+)\.", "", None),  # torch.nn.Sequential
    (_NAMELESS, "", "actions"),  # one layer
)
_EXTRACTOR = re.compile(r"(?:actor\.|pi_|q_net\.)?features_extractor\.")
_SAID = ("mean", "std", "clip", "activation_fn", "outputs", "columns", "num_bins")
_OF_ACTIONS = ("low", "high", "nvec", "start")  # for programs that act without FastES


def network_of_arrays(
    given: Any, activation_fn: Any = None, outputs: str | None = None, statistics: Statistics | None = None
) -> Network:
    """Return the network of a dict of arrays or tensors, of one weight, or of (weight, mean, std).

    Args:
        given: The arrays.
        activation_fn, outputs, statistics: As import_policy takes them; None for those that the dict holds.
    """
    if not isinstance(given, Mapping):
        return _linear(given, outputs, statistics)
    if odd := [name for name in given if not isinstance(name, str)]:
        raise TypeError(f"the arrays have the name {odd[0]!r}: expected names such as 'layers.0.weight'")
    said = {name: _plain(given[name]) for name in _SAID if name in given}
    if statistics is None:
        statistics = statistics_or_none(said.get("mean"), said.get("std"), said.get("clip"))
    named = {name: value for name, value in given.items() if name not in (*_SAID, *_OF_ACTIONS)}
    layers, known = _layers_in(named)
    activation_fn = said.get("activation_fn") if activation_fn is None else activation_fn
    outputs = said.get("outputs", known) if outputs is None else outputs
    if len(layers) > 1 and activation_fn is None:
        raise ValueError(
            "arrays do not say what is between the layers: pass activation_fn='tanh' (the default of SB3's PPO and A2C), "
            "'relu' (of its SAC, TD3, DQN and ARS) or 'elu'"
        )
    actions = {name: number_array(f"the values of {name}", given[name], "numbers") for name in _OF_ACTIONS if name in given}
    columns, bins = (_whole_numbers(name, said.get(name, ())) for name in ("columns", "num_bins"))
    if len(bins) > 1:
        raise ValueError(f"num_bins = {bins}: expected one whole number")
    more: dict[str, Any] = {"actions": actions, "columns": columns, "num_bins": bins[0] if bins else 0}
    return checked_network(layers, "tanh" if activation_fn is None else activation_fn, outputs, statistics, **more)


def network_of_file(path: str | os.PathLike[str], **how: Any) -> Network:
    """Return the network of a .npz or .npy file of plain arrays; no code from it runs.

    Args:
        path: The file's.
        how: Arguments of network_of_arrays.

    Raises:
        ValueError: A file of another kind; the message says how to read it.
        FileNotFoundError: No such file; the message says what is there.
    """
    name = os.fspath(path)
    if not name.endswith((".npz", ".npy")):
        raise ValueError(
            f"{name!r} is no .npz or .npy file: load it with what has written it, and pass what that gives: PPO.load(path), "
            "ARS.load(path), torch.load(path, weights_only=True). A checkpoint of FastES is read by FastES.load(path)"
        )
    try:
        file = open(name, "rb")  # noqa: SIM115  it is closed below
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no {name}{what_is_beside(Path(name))}") from error
    with file:
        try:
            if not file.read(6).startswith((b"PK", b"\x93NUMPY")):
                raise ValueError("expected what numpy.savez or numpy.save has written")
            file.seek(0)
            found = np.load(file, allow_pickle=False)
            arrays = found if isinstance(found, np.ndarray) else {key: found[key] for key in found.files}
        except Exception as error:  # numpy and zipfile raise a dozen kinds for damaged files
            if "allow_pickle" not in str(error):
                raise ValueError(f"{name!r} cannot be read, it is damaged or no file of arrays: {error}") from error
            raise ValueError(
                f"{name!r} holds Python objects, as ARS's lin_policy_plus.npz does, and reading these can run any code that "
                "the file has. If you trust it, read it yourself and pass what you get: weight, mean, std = "
                f"np.load({name!r}, allow_pickle=True)['arr_0'] and fastes.import_policy((weight, mean, std), env)"
            ) from error
    if isinstance(arrays, dict) and list(arrays) == ["arr_0"]:
        arrays = arrays["arr_0"]
    return network_of_arrays(arrays, **how)


def _linear(given: Any, outputs: str | None, statistics: Statistics | None) -> Network:
    """Return the network of one weight, or of ARS's (weight, mean, std), whose statistics may be None."""
    listed = isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.dtype.kind == "O")
    parts = list(given) if listed and len(given) == 3 and np.ndim(given[0]) == 2 else [given]
    if not hasattr(parts[0], "__array__") and not _is_matrix_of_lists(parts[0]):
        raise TypeError(
            f"import_policy() got {given!r:.100}, of type {type(given).__name__}: expected a model or policy of SB3, a torch "
            "module, a dict of arrays by name, one weight (outputs, inputs), (weight, mean, std), or the path of a .npz file"
        )
    if len(parts) == 3 and statistics is None:
        statistics = statistics_or_none(parts[1], parts[2], None)
    return checked_network([(parts[0], None)], "tanh", outputs or "actions", statistics)


def _is_matrix_of_lists(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and len(given) > 0 and all(np.ndim(row) == 1 for row in given)


def _layers_in(named: Mapping[str, Any]) -> tuple[list[tuple[Any, Any]], str | None]:
    """Return the actor's layers in order, and the meaning of its outputs if the names say it."""
    if odd := next((name for name in named if _EXTRACTOR.match(name) or "lstm" in name), None):
        raise ValueError(
            f"the arrays have {odd!r}: only policies of dense layers can be imported. fastes.TorchPolicy(module) takes any "
            "network"
        )
    limited = [name for name in named if re.fullmatch(r"(actor\.)?mu\.\d+\.weight", name)]
    if limited and any("latent_pi." in name for name in named):
        raise ValueError(
            f"the arrays have {limited[0]!r}: SAC with use_sde limits its outputs before their tanh, which no policy here does"
        )
    for pattern, last, outputs in _FAMILIES:
        found = {match: name for name in named if (match := re.fullmatch(f"{pattern}weight", name))}
        names = [found[match] for match in sorted(found, key=lambda match: int(match[1] or 0))]
        if last:
            names += [name for name in (f"{last}weight", f"actor.{last}weight") if name in named]
        if not names or (last and not names[-1].endswith(f"{last}weight")) or (pattern == _NAMELESS and set(named) - _LINEAR):
            continue
        layers = [(named[name], named.get(f"{name.removesuffix('weight')}bias")) for name in names]
        if outputs is None or pattern == _NAMELESS:  # there is no critic beside it
            _check_all_used(named, names)
        return layers, None if outputs == "actions" and _has_gsde(named) else outputs
    raise ValueError(
        f"the arrays have the names {list(named)!r:.300}: expected layers.0.weight, layers.0.bias, layers.1.weight and so on, "
        "or the state_dict of an actor of SB3 or of a torch.nn.Sequential"
    )


def _has_gsde(named: Mapping[str, Any]) -> bool:
    """Whether PPO explores by gSDE, with which it may squash actions; no name shows whether it does."""
    return np.ndim(named.get("log_std", 0.0)) == 2


def _check_all_used(named: Mapping[str, Any], names: list[str]) -> None:
    known = {*names, *(f"{name.removesuffix('weight')}bias" for name in names)}
    if odd := [name for name in named if name not in known]:
        raise ValueError(
            f"the arrays have {odd!r:.300} in addition to {names!r:.300}: expected weights and biases of dense layers alone"
        )


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    values = np.ravel(number_array(f"the values of {name}", given, "whole numbers"))
    if not ((np.abs(values) < 2**31) & (values == np.floor(values))).all():
        raise ValueError(f"{name} = {given!r:.100}: expected whole numbers")
    return tuple(values.astype(np.int64).tolist())


def _plain(value: Any) -> Any:
    """Return the word or number of an array (), which is how .npz files hold them."""
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0 else value


# --- torch modules, and the models and policies of Stable-Baselines3 and sb3-contrib -----------------------------------


def is_sb3(source: Any) -> bool:
    """Whether this is an algorithm of SB3, its policy, or any other torch module."""
    return _is_module(source) or _is_module(getattr(source, "policy", None))


def _is_module(item: Any) -> bool:
    return any(f"{base.__module__}.{base.__name__}" == "torch.nn.modules.module.Module" for base in type(item).__mro__)


def network_of_sb3(source: Any, outputs: str | None, statistics: Statistics | None) -> Network:
    """Return the network that `source.predict(..., deterministic=True)` runs.

    Args:
        source: An algorithm of SB3, its policy, or a torch module.
        outputs: The meaning of a plain module's outputs, one of OUTPUTS; None if the policy says it.
        statistics: Those of observations; None for those of the algorithm's VecNormalize, if it has one.

    Raises:
        ValueError: A network that no FastES policy can be.
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
    """Return the modules from observations to outputs, and the meaning of the outputs."""
    boxed = isinstance(policy.action_space, spaces.Box)
    actor = getattr(policy, "actor", None) or policy
    if hasattr(policy, "mlp_extractor") and hasattr(policy, "action_net"):  # PPO, A2C, TRPO, RecurrentPPO
        front = [getattr(policy, "pi_features_extractor", policy.features_extractor)]
        front += [policy.lstm_actor] if hasattr(policy, "lstm_actor") else []
        return [*front, policy.mlp_extractor.policy_net, policy.action_net], _outputs_of(policy)
    if hasattr(actor, "latent_pi") and hasattr(actor, "mu"):  # SAC, TQC
        return [actor.features_extractor, actor.latent_pi, actor.mu], "tanh"
    if boxed and hasattr(actor, "mu"):  # TD3, DDPG
        return [actor.features_extractor, actor.mu], "tanh"
    if hasattr(policy, "action_net"):  # ARS
        return [policy.features_extractor, policy.action_net], _outputs_of(policy)
    q_net = getattr(policy, "q_net", policy)
    if not boxed and _is_module(getattr(q_net, "q_net", None)):  # DQN
        return [q_net.features_extractor, q_net.q_net], "logits"
    raise ValueError(
        f"{type(policy).__name__} is none of the policies of PPO, RecurrentPPO, A2C, TRPO, SAC, TQC, TD3, DDPG, DQN and ARS: "
        f"pass its actor as a torch.nn.Sequential of dense layers, with outputs=. {_ANY_NETWORK}"
    )


def _outputs_of(policy: Any) -> str:
    """Return the meaning of an action_net's outputs. gSDE and ARS may squash them."""
    if not isinstance(policy.action_space, spaces.Box):
        return "logits"
    return "tanh" if policy.squash_output else "actions"


def _check_observations(policy: Any) -> None:
    """Raise ValueError for observations of several parts."""
    space = policy.observation_space
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        raise ValueError(
            f"{type(policy).__name__} sees {type(space).__name__} observations: expected a policy "
            f"whose observations are one array. {_ANY_NETWORK}"
        )


def _check_choices(policy: Any) -> None:
    """Raise ValueError for choices that SB3 numbers from 0, though the space does not."""
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
    convolutions, cells, layers, between = _parts_of(name, modules)
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


def _parts_of(name: str, modules: list[Any]) -> tuple[list[Any], list[Any], list[tuple[Any, Any]], list[str | None]]:
    """Return convolutions, LSTMs, (weight, bias) of dense layers, and the activation behind each layer except LSTMs."""
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
    return convolutions, cells, layers, between


def _check_flat(policy: Any) -> None:
    """Raise ValueError for an image without convolutions: SB3 divides its bytes, FastES does not."""
    space = getattr(policy, "observation_space", None)
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        raise ValueError(f"{type(policy).__name__} sees images by dense layers alone: it cannot be imported. {_ANY_NETWORK}")


def _sees(policy: Any, convolutions: list[Any], features: int) -> Front:
    """Return the convolutions of an image as a CnnPolicy has them: square kernels without padding."""
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
    """Return the cells of an LSTM as a MlpLstmPolicy has them."""
    if lstm.bidirectional or lstm.proj_size or not lstm.bias:
        raise ValueError(f"{lstm!r:.200} cannot be imported: expected one direction, biases and no projection. {_ANY_NETWORK}")
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    layers = tuple({name: _array(getattr(lstm, f"{name}_l{i}")) for name in names} for i in range(lstm.num_layers))
    kwargs = {"cell": "lstm", "lstm_hidden_size": lstm.hidden_size, "n_lstm_layers": lstm.num_layers}
    return Front("MlpLstmPolicy", layers, kwargs, inputs=lstm.input_size)


def _array(parameter: Any) -> npt.NDArray[np.float64]:
    return number_array("a parameter's values", parameter, "numbers")


def _leaves(module: Any) -> Iterator[Any]:
    """Yield the modules that run, in order. FlattenExtractor only flattens; NatureCNN runs its cnn and its linear."""
    if type(module).__name__ in ("Sequential", "FlattenExtractor", "NatureCNN"):
        for child in module.children():
            yield from _leaves(child)
    else:
        yield module


def _statistics_of(algorithm: Any) -> Statistics | None:
    """Return the statistics of an algorithm's VecNormalize, None without one."""
    normalizing = getattr(algorithm, "get_vec_normalize_env", lambda: None)()
    return None if normalizing is None else statistics_of_vec_normalize(normalizing)


def statistics_of_vec_normalize(normalizing: Any) -> Statistics | None:
    """Return the statistics of a VecNormalize; None if it normalises rewards only."""
    if not normalizing.norm_obs:
        return None
    found = normalizing.obs_rms
    if isinstance(found, dict):
        raise ValueError(f"{normalizing} normalises Dict observations: a policy that sees them cannot be imported")
    mean, std = np.ravel(found.mean), np.ravel(np.sqrt(found.var + normalizing.epsilon))
    return checked_statistics(mean, std, normalizing.clip_obs, int(found.count))
