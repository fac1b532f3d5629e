"""The parser of all commands, and the arguments that several of them have."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastes.errors import suggest
from fastes.settings.foreign_names import ANSWERS, answer
from fastes.settings.settings import setting_names

RUNS = Path("runs")  # the folder of run folders, if none is given


class Parser(argparse.ArgumentParser):
    """A parser that takes negative numbers with an exponent and suggests the right flag for a wrong one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given, refused = self._without_env_flag(_join_negative_numbers(sys.argv[1:] if args is None else args))
        found, unknown = super().parse_known_args(given, namespace)
        if unknown := [*refused, *unknown]:
            self.error(f"unrecognized arguments: {self._answered(unknown)}")
        return found, unknown

    def _without_env_flag(self, given: Sequence[str]) -> tuple[list[str], list[str]]:
        """Separate --env if the command has no such flag: argparse would read it as --env-kwargs.

        Its value stays, as the positional environment.

        Returns:
            The other arguments, and the flags that were separated.
        """
        flags, kept, refused = self._option_string_actions, list[str](), list[str]()
        for each in given:
            flag, _, value = each.partition("=")
            if flag != "--env" or flag in flags or "--env-kwargs" not in flags:
                kept.append(each)
                continue
            refused.append(flag)
            kept += [value] if value else []
        return kept, refused

    def _answered(self, unknown: Sequence[str]) -> str:
        """Return unknown flags with their values, and advice about each."""
        groups: list[list[str]] = []
        for each in unknown:
            if each.startswith("-") or not groups:
                groups.append([])
            groups[-1].append(each)
        answers = [self._answer(group[0].partition("=")[0]) for group in groups]
        if len(groups) == 1:
            return f"{' '.join(groups[0])}{answers[0]}"
        told = (f" ({text.lstrip(':; ')})" if text else "" for text in answers)
        return ", ".join(f"{' '.join(group)}{text}" for group, text in zip(groups, told, strict=True))

    def _answer(self, flag: str) -> str:
        """Return advice about an unknown flag, which goes after it."""
        flags, setting = self._option_string_actions, flag.lstrip("-").replace("-", "_")
        if not flag.startswith("-") and re.fullmatch(r"[\w.]+:\w+", flag) and "--wrapper" in flags:
            return ": --wrapper takes one, and comes again for the next"
        of_training = "--population-size" not in flags and (setting in setting_names() or setting in ANSWERS)
        return ": it is of fastes train" if of_training else answer(flag, flags)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:  # Python 3.14 suggests on its own
            hint = "" if "maybe you meant" in error.message else suggest(value, map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{hint}") from None

    def error(self, message: str) -> NoReturn:
        """Exit with a message, without the usage, which would fill the screen."""
        flag = "--help-all" if "--help-all" in self._option_string_actions else "--help"
        self.exit(2, f"{self.prog}: error: {message} ({self.prog} {flag} lists what there is)\n")


def _join_negative_numbers(argv: Sequence[str]) -> list[str]:
    """Turn --flag -1e5 into --flag=-1e5: argparse takes a negative number with an exponent for a flag."""
    joined: list[str] = []
    for argument in argv:
        if re.fullmatch(r"-[\d._]+([eE][+-]?\d+)?|-inf", argument) and joined and re.fullmatch(r"--[\w-]+", joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


class _ShortHelp(argparse.Action):
    """Shows the main flags and how to see the others. const: names of the main flags, in order."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ARG002
        actions = {action.dest: action for action in parser._actions}
        formatter = parser.formatter_class(prog=parser.prog)
        formatter.add_usage(parser.usage, parser._actions, ())
        formatter.add_text(parser.description)
        formatter.start_section(None)
        formatter.add_arguments([actions[name] for name in self.const])
        formatter.end_section()
        print(formatter.format_help(), end="")
        parser.exit()


def add_short_help(parser: Any, main: Sequence[str]) -> None:
    """Add --help, which shows the main arguments, and --help-all."""
    parser.add_argument("-h", "--help", action=_ShortHelp, nargs=0, const=tuple(main), help="show these flags and exit")
    parser.add_argument("--help-all", action="help", help="show all flags, the settings in groups, and exit")


def add_workers(parser: Any) -> None:
    parser.add_argument(
        "--workers", type=int, metavar="N", help="worker processes; 0: in this one (default: one per usable core)"
    )


def add_cluster(parser: Any) -> None:
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="play on a Ray cluster: 'auto' for the one that this machine is in, HOST:PORT or ray://HOST:PORT",
    )


def find_modules_here(*names: str | None) -> None:
    """Search the working directory, too, for the modules of ids such as 'module:Env-v0', and of wrappers."""
    if any(":" in (name or "") for name in names):
        with contextlib.suppress(FileNotFoundError):  # the working directory was deleted
            sys.path.append(os.getcwd())  # last, so that no file here hides an installed package


def add_env_kwargs(parser: Any) -> None:
    """Add the flag whose words `parse_env_kwargs` reads. If it is typed twice, the words add up."""
    parser.add_argument(
        "--env-kwargs",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="arguments of the environment, values as JSON",
    )


def add_wrapper(parser: Any, whose: str = "") -> None:
    parser.add_argument(
        "--wrapper",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help=f"put a gymnasium.Wrapper around the environment; again for one around that{whose}",
    )


def parse_env_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE strings; a value that is not JSON is a string."""
    kwargs = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ValueError(f"--env-kwargs {pair!r}: expected KEY=VALUE, such as healthy_reward=0.5")
        try:
            kwargs[key] = json.loads(text)
        except json.JSONDecodeError:
            kwargs[key] = text
    return kwargs
