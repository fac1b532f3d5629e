"""A flag for each setting."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from fastes.errors import listed
from fastes.policies.policy_keywords import KEYS, POLICIES, Key
from fastes.setting_fields import default_of, described
from fastes.settings.preset_loader import load_preset
from fastes.settings.recipes import PLAIN
from fastes.settings.settings import COUNTED, Settings, grouped_fields

_METAVARS = {"str | Filters": "NAME|JSON"}
_EXAMPLE = """'{"alive_bonus": [0, 1]}', in quotes for the shell"""


def add_settings(parser: Any, without: Collection[str] = (), steps: str = "") -> None:
    """Add the flags. Their help shows the values of the plain recipe.

    Args:
        parser: Gets them.
        without: Settings without a flag.
        steps: Help of --total-timesteps, with its default, for a command whose budget is another.
    """
    plain = load_preset(PLAIN)
    groups: dict[str, Any] = {}
    for item in (each for each in grouped_fields() if each.name not in without):
        group = described(item).group
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        _add_setting(groups[group], item, plain, steps if item.name == "total_timesteps" else "")


def _add_setting(group: Any, item: Any, plain: Mapping[str, Any], instead: str) -> None:
    """Add the flag of a setting. instead: its help; '' for the setting's own, with the default of the plain recipe."""
    flag, text = "--" + item.name.replace("_", "-"), described(item).help.replace("%", "%%")
    if item.name == "policy":  # the metavar shows its values
        text = text.partition("; ")[2]
    if item.name == "policy_kwargs":
        _add_policy_keys(group)
        return
    default = default_of(item)
    text = instead or f"{text} (default: {plain.get(item.name, default)})"
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


def _add_policy_keys(group: Any) -> None:
    """Add a flag for each key of policy_kwargs, whose help shows the default of each policy that has it."""
    for key in KEYS.values():
        description, kind = key.description, str(key.item.type)
        text = f"{description.help}{_whose_and_defaults(key)}".replace("%", "%%")
        if kind == "bool":
            group.add_argument(key.flag, action=argparse.BooleanOptionalAction, help=text)
        elif description.flag is not None:
            group.add_argument(key.flag, type=_made_by(description.flag[1]), dest=key.name, metavar="N", help=text)
        elif kind.startswith("tuple[int"):
            group.add_argument(key.flag, type=int, nargs="*", metavar="N", help=text)
        elif description.choices:
            group.add_argument(key.flag, metavar=_one_of(description.choices), help=text)
        else:
            group.add_argument(key.flag, type=int if kind == "int" else _name_or_list, metavar=_METAVARS.get(kind), help=text)


def _whose_and_defaults(key: Key) -> str:
    """Return the policies that have a key, and its defaults in brackets, for the end of its help."""
    (first, of_first), *others = key.policies_by_default()
    whose = "" if others or len(of_first) == len(POLICIES) else f", of {listed(of_first)}"
    more = "".join(f"; {_words(default)} of {listed(policies)}" for default, policies in others)
    return f"{whose} (default: {_words(first)}{more})" if first != {} else whose


def _words(default: Any) -> str:
    return " ".join(map(str, default)) or "none" if isinstance(default, list) else str(default)


def _made_by(of_int: Callable[[int], Any]) -> Callable[[str], Any]:
    return lambda text: of_int(_int(text))


def _name_or_list(text: str) -> Any:
    """Parse a name, or a list in JSON."""
    if not text.lstrip().startswith("["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r:.200} is not JSON ({error}): expected '[[16, 8, 4], [32, 4, 2]]'") from None


def _one_of(choices: Sequence[str]) -> str:
    """Format choices as argparse does. The settings' own check refuses other values, with a suggestion."""
    return f"{{{','.join(choices)}}}"


def _int(text: str) -> int:
    """Parse an int, also in the forms 1e6 and 1_000_000."""
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
        raise argparse.ArgumentTypeError(f"{text!r:.200} is not JSON ({error}): expected {_EXAMPLE}") from None
    if not isinstance(table, dict):
        raise argparse.ArgumentTypeError(f"{text!r:.200} is not a JSON object: expected {_EXAMPLE}")
    return table


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings whose flags were given."""
    given = {}
    for item in fields(Settings):
        value = getattr(arguments, item.name, None)
        if value is not None:
            given[item.name] = value
    policy_kwargs = {name: getattr(arguments, name) for name in KEYS if getattr(arguments, name) is not None}
    if policy_kwargs:
        given["policy_kwargs"] = policy_kwargs
    return given
