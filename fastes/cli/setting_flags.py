"""One flag for each setting, and how their values are read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from fastes.policies.action_head import BOX_MAPPINGS
from fastes.policies.layers.layer import ACTIVATIONS
from fastes.policies.mlp import POLICIES
from fastes.settings.settings import Settings, grouped_fields

_EXAMPLE = """'{"alive_bonus": [0, 1]}', in quotes for the shell"""


def add_settings(parser: Any) -> None:
    groups: dict[str, Any] = {}
    for item in grouped_fields():
        group = item.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        _add_setting(groups[group], item)


def _add_setting(group: Any, item: Any) -> None:
    flag, text = "--" + item.name.replace("_", "-"), item.metadata["help"].replace("%", "%%")
    if item.name == "policy_kwargs":
        group.add_argument(
            "--net-arch", type=int, nargs="*", metavar="N", help="sizes of MlpPolicy's hidden layers (default: 64 64)"
        )
        group.add_argument("--activation-fn", metavar=_one_of(ACTIVATIONS), help="between layers (default: tanh)")
        group.add_argument(
            "--use-bias", action=argparse.BooleanOptionalAction, help="biases in the layers (default: MlpPolicy only)"
        )
        group.add_argument("--action-mapping", metavar=_one_of(BOX_MAPPINGS), help="Box actions (default: clip)")
        group.add_argument("--num-bins", type=int, help="values of each component with bins (default: 10)")
        return
    default = item.default if item.default is not MISSING else {}
    text = f"{text} (default: {default})"
    if item.type.startswith("dict"):
        group.add_argument(flag, type=_table, metavar="JSON", help=text)
        return
    if item.type == "bool":
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    kinds = {"int": _int, "float": float}
    choices = POLICIES if item.name == "policy" else item.metadata.get("choices")
    metavar = _one_of(choices) if choices else item.type.removesuffix("Setting").split(" ")[0].upper()
    kind = str if item.type.startswith("str") else _number_or_text
    group.add_argument(flag, type=kinds.get(item.type, kind), metavar=metavar, help=text)


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
    policy_kwargs = {
        name: getattr(arguments, name)
        for name in ("net_arch", "activation_fn", "use_bias", "action_mapping", "num_bins")
        if getattr(arguments, name) is not None
    }
    if policy_kwargs:
        given["policy_kwargs"] = policy_kwargs
    return given
