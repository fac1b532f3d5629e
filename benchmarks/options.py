"""Values of command-line options: numbers in their range, environments that can be made."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import gymnasium

from fastes.envs.import_hook import register_atari


def at_least(low: int) -> Callable[[str], int]:
    """A type for argparse: an int of `low` or more."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = low - 1
        if found < low:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of {low} or more")
        return found

    return number


def above_zero(text: str) -> float:
    """A type for argparse: a finite number above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return found


COUNT, COUNT_OR_0 = at_least(1), at_least(0)


def check_envs(parser: argparse.ArgumentParser, envs: Sequence[str]) -> None:
    for env in envs:
        register_atari(env)
        try:
            gymnasium.make(env).close()
        except Exception as error:
            parser.error(f"--env {env}: {type(error).__name__}: {error}")
