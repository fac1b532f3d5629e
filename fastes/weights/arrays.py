"""Networks as plain arrays: dicts under the names that libraries have, ARS's weight with statistics, and .npz files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastes.number_array import number_array
from fastes.system.near_paths import what_is_beside
from fastes.weights.network import Network, Statistics, checked_network, statistics_or_none

_NAMELESS, _LINEAR = r"()", {"weight", "bias"}
# What precedes 'weight' in each layer of an actor, the last layer where it has another name, and what its outputs are.
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
_OF_ACTIONS = ("low", "high", "nvec", "start")  # for whoever acts without FastES


def network_of_arrays(
    given: Any, activation_fn: Any = None, outputs: str | None = None, statistics: Statistics | None = None
) -> Network:
    """The network of a dict of arrays or tensors, of one weight, or of (weight, mean, std).

    activation_fn, outputs, statistics: as import_policy takes them; what a dict says of them counts where they are None.
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
    """The network of a .npz or .npy file of plain arrays; runs no code from it.

    how: as network_of_arrays takes it. ValueError for a file of another kind, with what reads it; FileNotFoundError that says
    what is there.
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
    """Of one weight, or of ARS's (weight, mean, std), whose statistics may be None."""
    listed = isinstance(given, (list, tuple)) or _is_of_objects(given)
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


def _is_of_objects(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind == "O"


def _layers_in(named: Mapping[str, Any]) -> tuple[list[tuple[Any, Any]], str | None]:
    """The actor's layers in order, and what its outputs are, where the names say it."""
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
    """Whether PPO explores by gSDE, with which it may squash actions; no name says whether it does."""
    return np.ndim(named.get("log_std", 0.0)) == 2


def _check_all_used(named: Mapping[str, Any], names: list[str]) -> None:
    known = {*names, *(f"{name.removesuffix('weight')}bias" for name in names)}
    if odd := [name for name in named if name not in known]:
        raise ValueError(
            f"the arrays have {odd!r:.300} beside {names!r:.300}: expected weights and biases of dense layers alone"
        )


def _whole_numbers(name: str, given: Any) -> tuple[int, ...]:
    values = np.ravel(number_array(f"the values of {name}", given, "whole numbers"))
    if not ((np.abs(values) < 2**31) & (values == np.floor(values))).all():
        raise ValueError(f"{name} = {given!r:.100}: expected whole numbers")
    return tuple(values.astype(np.int64).tolist())


def _plain(value: Any) -> Any:
    """A word or a number that .npz files hold as an array ()."""
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0 else value
