"""The command line: fastes train, tune, play, eval, watch, runs, info, plot, gallery, replay, check-env, doctor."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from fastes import __version__
from fastes.cli.arguments import Parser, find_modules_here
from fastes.cli.check_env import add_check_env, run_check_env
from fastes.cli.doctor import add_doctor, run_doctor
from fastes.cli.eval import add_eval, run_eval
from fastes.cli.gallery import add_gallery, run_gallery
from fastes.cli.info import add_info, run_info
from fastes.cli.play import add_play, run_play
from fastes.cli.plot import add_plot, run_plot
from fastes.cli.replay import add_replay, run_replay
from fastes.cli.runs import add_runs, run_runs
from fastes.cli.stop_on_signal import INTERRUPTED
from fastes.cli.train import add_train, run_train
from fastes.cli.tune import add_tune, run_tune
from fastes.cli.watch import add_watch, run_watch
from fastes.errors import FastESError, frame_outside, with_place
from fastes.system.console import (
    drop_lost_output,
    fill_standard_descriptors,
    fitted,
    output_errors_tolerated,
    output_is_the_result,
    say,
)
from fastes.system.interrupts import Terminated

_COMMANDS = {  # in the order of --help: what adds its arguments, and what runs it
    "train": (add_train, run_train),
    "tune": (add_tune, run_tune),
    "eval": (add_eval, run_eval),
    "play": (add_play, run_play),
    "runs": (add_runs, run_runs),
    "info": (add_info, run_info),
    "watch": (add_watch, run_watch),
    "plot": (add_plot, run_plot),
    "gallery": (add_gallery, run_gallery),
    "replay": (add_replay, run_replay),
    "check-env": (add_check_env, run_check_env),
    "doctor": (add_doctor, run_doctor),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        The exit status: 2 for wrong arguments, 1 for a failed training, 130 for Ctrl-C, 143 for SIGTERM. If the console's
        output cannot be written, a training continues with its usual status; the other commands, whose output is their
        result, return 1. They, too, continue without a word if only the reader of a pipe has gone, as in `fastes runs | head`.
    """
    fill_standard_descriptors()
    try:
        outside = frame_outside()
        with output_errors_tolerated(), _short_warnings("" if outside is None else outside.f_code.co_filename):
            return _run(argv)
    finally:
        drop_lost_output()


def _run(argv: Sequence[str] | None) -> int:
    try:
        with output_is_the_result():
            parser = build_parser()
            if not (sys.argv[1:] if argv is None else argv):
                parser.print_help()
                return 0
            arguments = parser.parse_args(argv)
        arguments.typed = sys.argv[1:] if argv is None else list(argv)  # for messages that say what to type instead
        # not a script that calls `main`: what it has registered is known in its own process alone
        arguments.from_shell = argv is None and os.path.basename(sys.argv[0]) in ("fastes", "__main__.py")
        find_modules_here(getattr(arguments, "env", None), *getattr(arguments, "wrapper", []))
        with contextlib.nullcontext() if arguments.command in ("train", "tune") else output_is_the_result():
            return _COMMANDS[arguments.command][1](arguments)
    except KeyboardInterrupt:
        say("\nstopped at once", file=sys.stderr)
        return INTERRUPTED
    except Terminated as ended:
        return ended.exit_status
    except (ValueError, TypeError) as error:
        say(f"fastes: error: {with_place(error)}", file=sys.stderr)
        return 2
    except (FastESError, OSError, MemoryError, ImportError) as error:
        say(f"fastes: error: {with_place(error)}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def _short_warnings(caller: str) -> Iterator[None]:
    """Show warnings of FastES without the line of code. caller: the file that calls `main`."""
    before, package = warnings.formatwarning, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

    def shown(message: Any, category: Any, filename: str, lineno: int, line: str | None = None) -> str:
        if filename == caller or os.path.abspath(filename).startswith(package):
            return f"{fitted(f'fastes: warning: {message}', sys.stderr)}\n"
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = shown
    try:
        yield
    finally:
        warnings.formatwarning = before


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="fastes", description="Evolution Strategies for Gymnasium environments.")
    parser.add_argument("--version", action="version", version=f"fastes {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for add, _ in _COMMANDS.values():
        add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
