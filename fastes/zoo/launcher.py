"""python -m fastes.zoo: a command of the Zoo, with FastES registered and as the default algorithm."""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from collections.abc import Sequence

from fastes.system.console import give_standard_files
from fastes.system.installation import CPU_TORCH, install_command

NAME = "fastes"
HYPERPARAMS = "fastes.zoo.hyperparams"  # --conf-file takes a module that has `hyperparams`

# command -> module of the Zoo, and its function; None for one that is a script
COMMANDS = {
    "train": ("rl_zoo3.train", "train"),
    "enjoy": ("rl_zoo3.enjoy", "enjoy"),
    "record_video": ("rl_zoo3.record_video", None),
    "all_plots": ("rl_zoo3.plots.all_plots", "all_plots"),
    "plot_train": ("rl_zoo3.plots.plot_train", "plot_train"),
    "plot_from_file": ("rl_zoo3.plots.plot_from_file", "plot_from_file"),
}
_WITH_ALGO = ("train", "enjoy", "record_video")

USAGE = f"""usage: python -m fastes.zoo COMMAND ...

RL Baselines3 Zoo with FastES among its algorithms. COMMAND is one of {", ".join(COMMANDS)};
each has its own --help. --algo is {NAME} if it is left out.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a command of the Zoo. Errors of the Zoo pass through.

    Args:
        arguments: The command's name, and its arguments.

    Returns:
        The exit status.
    """
    give_standard_files()
    command = arguments[0] if arguments else ""
    if command not in COMMANDS:
        asked = command in ("-h", "--help")
        print(USAGE if asked or not command else f"{USAGE}\nunknown command {command!r}", file=None if asked else sys.stderr)
        return 0 if asked else 2
    module, function = COMMANDS[command]
    try:
        from fastes.zoo.algorithm import register

        register(NAME)
        entry = getattr(importlib.import_module(module), function) if function else None
    except ModuleNotFoundError as error:
        print(
            f"python -m fastes.zoo {command} needs the package {error.name!r}: {install_command('zoo')} (it brings torch with "
            f"gigabytes for GPUs; {CPU_TORCH}, before it, gets the small build)",
            file=sys.stderr,
        )
        return 1
    sys.argv = [f"fastes.zoo {command}", *defaults(command, arguments[1:]), *arguments[1:]]
    if entry is None:
        runpy.run_module(module, run_name="__main__")
    else:
        entry()
    return 0


def defaults(command: str, arguments: Sequence[str]) -> list[str]:
    """Return arguments that go before the user's, so that the user's win."""
    if command not in _WITH_ALGO:
        return []
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--algo", default=NAME)
    if parser.parse_known_args(arguments)[0].algo != NAME:
        return []
    return ["--algo", NAME, *(["--conf-file", HYPERPARAMS] if command == "train" else [])]
