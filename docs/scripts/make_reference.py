"""Write the pages of docs/reference that follow from the code. Run by `make docs`; a test compares them.

python docs/scripts/make_reference.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any

from fastes.cli.main import build_parser
from fastes.policies.policy_keywords import KEYS, POLICIES, ActionKeywords, names_of
from fastes.setting_fields import default_of, described
from fastes.settings.preset_loader import NO_SETTINGS, all_presets
from fastes.settings.settings import grouped_fields

REFERENCE = Path(__file__).parents[1] / "reference"
SETTINGS_HEAD = """# Settings

Every setting is a keyword of `FastES(env, ...)` and a flag of `fastes train`: `population_size` is `--population-size`. The
default holds where the [preset](../presets.md) of the environment says nothing. An environment that has no preset gets the
winner of a [race of recipes](../guide/choosing-settings.md#a-race-of-recipes).
[Choosing settings](../guide/choosing-settings.md) says what to change first.

`population_scale=k` (`--population-scale K`) is not a setting of its own: as a training begins, it multiplies
`population_size`, and what goes with it, for [many cores](../guide/many-cores.md#a-larger-population).

A schedule is a number, `"lin_0.02"` (falls to zero over the budget), `"lin_0.02_0.005"` (goes from the first to the second),
`"exp_0.02_0.001"` (the same by equal factors), or in Python a function of the remaining progress (1 to 0).
`generation_timesteps` and `episodes_per_candidate` take whole numbers, `"lin_A_B"` and `"exp_A_B"`; schedules are rounded.
"""
NO_GAIN_HEAD = """
## No measured gain yet

Papers, other packages or users have these. No preset and no study here gains by them yet, so try them last; the
[notebook](../notebook/index.md) has what was tried.
"""
PRESETS_HEAD = """# Preset settings

What each [preset](../presets.md) sets, and where its numbers come from. Settings that a preset does not name have their
[default](settings.md).
"""
POLICY_HEAD = """
## Policy keywords

Each is a flag of its own. A [TorchPolicy](../guide/custom-policies.md) has {of_modules} alone.
"""
COMMANDS_HEAD = """# Command line

`fastes COMMAND --help` prints the same. Each command ends with exit status 0, with 2 for arguments that cannot work, with 1
after another error, and with 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP.
"""


def settings_page() -> str:
    """Those that matter first, then the others by group, then those without a measured gain."""
    items = grouped_fields()
    first = [item for item in items if described(item).first]
    rest = [item for item in items if not described(item).first]
    without = [item for item in rest if described(item).affects_learning and not described(item).gain]
    lines = [SETTINGS_HEAD, "## Those that matter first\n", *_table(first)]
    for group in dict.fromkeys(described(item).group for item in rest):
        of_group = [item for item in rest if described(item).group == group and item not in without]
        lines += [f"\n## {group.capitalize()}\n", *_table(of_group)] if of_group else []
    of_modules = " and ".join(f"`{name}`" for name in names_of(ActionKeywords))
    keys = [POLICY_HEAD.format(of_modules=of_modules), *_policy_table()]
    return "\n".join([*lines, NO_GAIN_HEAD, *_table(without), *keys]) + "\n"


def _table(items: Sequence[Field[Any]]) -> list[str]:
    """With a column that says where they gain, unless none of them does."""
    gains = any(described(item).gain for item in items)
    header = ["setting", "type", "default", "meaning", *(["gain measured on"] if gains else [])]
    rows = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for item in items:
        kind = str(item.type).replace("ScheduleSetting", "schedule").replace("dict[str, Any]", "dict")
        kind = kind.replace("dict[str, list[Any]]", "dict of lists").replace("Sequence[int | str]", "list")
        kind = kind.replace("OptimizerFactory", "class").replace("ShapingFunction", "function")
        kind = kind.replace(" | ", " or ")
        cells = [f"`{item.name}`", kind, f"`{default_of(item)!r}`", described(item).help.replace("|", "/")]
        rows.append(f"| {' | '.join([*cells, described(item).gain] if gains else cells)} |")
    return rows


def _policy_table() -> list[str]:
    """The keys of all policy families."""
    rows = ["| key | flag | policies | default | meaning | gain measured on |", "|---|---|---|---|---|---|"]
    for key in KEYS.values():
        policies = "all" if len(key.defaults) == len(POLICIES) else ", ".join(key.defaults)
        (first, _), *more = key.policies_by_default()
        others = [f"`{value!r}` of {', '.join(names)}" for value, names in more]
        described = key.description
        meaning = described.help + (f": {', '.join(described.choices)}" if described.choices else "")
        cells = [f"`{key.name}`", f"`{key.flag}`", policies, "; ".join([f"`{first!r}`", *others]), meaning, described.gain]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def presets_page() -> str:
    lines = [PRESETS_HEAD]
    for name, preset in sorted(all_presets().items()):
        lines += [f"## {name}\n", *([preset["source"] + ".\n"] if "source" in preset else [])]
        lines += ["| setting | value |", "|---|---|"]
        lines += [f"| `{key}` | `{value!r}` |" for key, value in preset.items() if key not in NO_SETTINGS]
        lines.append("")
    return "\n".join(lines)


def commands_page() -> str:
    """A table of arguments for each command; flags of settings are on their own page."""
    commands = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    settings = {"--" + item.name.replace("_", "-") for item in grouped_fields()}
    hidden = {*settings, *(key.flag for key in KEYS.values()), "--help", "--help-all"}
    summaries = {choice.dest: choice.help for choice in commands._choices_actions}
    lines = [COMMANDS_HEAD]
    for name, command in commands.choices.items():
        summary = str(command.description or summaries[name])
        summary = summary[:1].upper() + summary[1:].rstrip(".") + "."
        shown = [each for each in command._actions if each.help != argparse.SUPPRESS and not hidden & set(each.option_strings)]
        lines += [f"## fastes {name}\n", f"{summary}\n", *(["| argument | meaning |", "|---|---|"] if shown else [])]
        for action in shown:
            lines.append(f"| {_usage(action)} | {(action.help or '').replace('%%', '%').replace('|', '/')} |")
        lines += ["", "Each [setting](settings.md) is a flag, too.", ""] if name in ("train", "check-env") else [""]
    return "\n".join(lines).rstrip() + "\n"


def _usage(action: argparse.Action) -> str:
    value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 and not action.choices else ""
    value = f" {{{','.join(map(str, action.choices))}}}" if action.choices else value
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return f"`{', '.join(action.option_strings)}{value}`".replace("|", "\\|")  # which would end the cell of a table


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "preset-settings.md": presets_page,
    "command-line.md": commands_page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
