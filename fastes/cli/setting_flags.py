"""One flag for each setting, and how their values are read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fastes.es.setting_fields import default_of, described
from fastes.policies.action_head import BOX_MAPPINGS
from fastes.policies.images.cnn import BATCH_NORMS, CNN_KWARGS, NETWORKS
from fastes.policies.layers.layer import ACTIVATIONS
from fastes.policies.layers.recurrent import CELLS
from fastes.policies.mlp import POLICIES
from fastes.policies.recurrent import HIDDEN_SIZE, KWARGS
from fastes.settings.preset_loader import GENERAL, load_preset
from fastes.settings.settings import COUNTED, Settings, grouped_fields

_POLICY_KWARGS = ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins", *CNN_KWARGS, *KWARGS)
_EXAMPLE = """'{"alive_bonus": [0, 1]}', in quotes for the shell"""


def add_settings(parser: Any) -> None:
    """Their help shows what an environment without a preset gets, and in brackets what it gets with a network."""
    general = load_preset(GENERAL)
    groups: dict[str, Any] = {}
    for item in grouped_fields():
        group = described(item).group
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        _add_setting(groups[group], item, general)


def _add_setting(group: Any, item: Any, general: Mapping[str, Any]) -> None:
    flag, text = "--" + item.name.replace("_", "-"), described(item).help.replace("%", "%%")
    if item.name == "policy":  # its values are the metavar
        text = text.partition("; ")[2]
    if item.name == "policy_kwargs":
        _add_policy_kwargs(group)
        return
    default = default_of(item)
    own = general.get(item.name, default)
    with_network = "" if own == default or item.name == "policy" else f"; of a network: {default}"
    text = f"{text} (default: {own}{with_network})"
    if item.type.startswith("dict"):
        group.add_argument(flag, type=_table, metavar="JSON", help=text)
        return
    if item.type == "bool":
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    kinds = {"int": _int, "float": float}
    choices = POLICIES if item.name == "policy" else described(item).choices
    named = "INT|SCHEDULE" if item.name in COUNTED else item.type.removesuffix("Setting").split(" ")[0].upper()
    metavar = _one_of(choices) if choices else named
    kind = str if item.type.startswith("str") else _number_or_text
    group.add_argument(flag, type=kinds.get(item.type, kind), metavar=metavar, help=text)


def _add_policy_kwargs(group: Any) -> None:
    """A flag for each of _POLICY_KWARGS."""
    layers = "sizes of hidden layers, those behind features and cells (default: 64 64 of MlpPolicy, none of others)"
    group.add_argument("--net-arch", type=int, nargs="*", metavar="N", help=layers)
    activations = "between layers (default: tanh; relu of a CnnPolicy)"
    group.add_argument("--activation-fn", metavar=_one_of(ACTIVATIONS), help=activations)
    biases = "biases in the layers (default: not of a LinearPolicy)"
    group.add_argument("--use-bias", action=argparse.BooleanOptionalAction, help=biases)
    group.add_argument("--action-mapping", metavar=_one_of(BOX_MAPPINGS), help="Box actions (default: clip)")
    group.add_argument("--num-bins", type=int, help="values of each component with bins (default: 10)")
    convolutions = f"CnnPolicy's convolutions: {' or '.join(NETWORKS)}, or [[filters, kernel, stride], ...] (default: a3c)"
    group.add_argument("--cnn", type=_name_or_list, metavar="NAME|JSON", help=convolutions)
    features = "size of CnnPolicy's dense layer behind these (default: 256; 512 of nature)"
    group.add_argument("--features-dim", type=_features, dest="features_extractor_kwargs", metavar="N", help=features)
    norm = "between CnnPolicy's layers and their activations (default: virtual)"
    group.add_argument("--batch-norm", metavar=_one_of(BATCH_NORMS), help=norm)
    images = "whether CnnPolicy divides bytes by 255 (default: yes)"
    group.add_argument("--normalize-images", action=argparse.BooleanOptionalAction, help=images)
    _add_cells(group)


def _name_or_list(text: str) -> Any:
    """A name, or JSON."""
    if not text.lstrip().startswith("["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.200} is no JSON ({error}): expected '[[16, 8, 4], [32, 4, 2]]'") from None


def _features(text: str) -> dict[str, int]:
    return {"features_dim": _int(text)}


def _add_cells(group: Any) -> None:
    group.add_argument("--cell", metavar=_one_of(tuple(CELLS)), help="of a recurrent policy (default: lstm)")
    group.add_argument("--lstm-hidden-size", type=int, help=f"units of a cell (default: {HIDDEN_SIZE})")
    group.add_argument("--n-lstm-layers", type=int, help="cells, one behind the other (default: 1)")


def _one_of(choices: Sequence[str]) -> str:
    """As argparse shows choices. What is none of them is answered by the settings' own check, which suggests one."""
    return f"{{{','.join(choices)}}}"


def _int(text: str) -> int:
    """An int, also written 1e6 or 1_000_000."""
    try:
        number = float(text.replace("_", ""))
        whole = number == int(number)
    except (ValueError, OverflowError):
        whole = False
    if not whole:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text.replace("_", "")) if text.replace("_", "").lstrip("+-").isdigit() else int(number)


def _table(text: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.200} is no JSON ({error}): expected {_EXAMPLE}") from None
    if not isinstance(table, dict):
        raise argparse.ArgumentTypeError(f"{text!r:.200} is no JSON object: expected {_EXAMPLE}")
    return table


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings whose flags were given."""
    given = {}
    for item in fields(Settings):
        value = getattr(arguments, item.name, None)
        if value is not None:
            given[item.name] = value
    policy_kwargs = {name: getattr(arguments, name) for name in _POLICY_KWARGS if getattr(arguments, name) is not None}
    if policy_kwargs:
        given["policy_kwargs"] = policy_kwargs
    return given
