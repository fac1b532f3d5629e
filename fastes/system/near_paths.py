"""What there is in place of a path that is missing, for error messages."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

_MOST_READ, _MOST_SHOWN = 1000, 6  # entries of a folder
_LIKENESS = 0.5  # of names, as difflib measures it


def what_is_beside(path: Path) -> str:
    """'; runs contains: CartPole-v1 and Hopper-v5' for a missing runs/Hoper-v5, names like the missing one first.

    Of the first folder above the path that exists. Empty where it cannot be read.
    """
    missing, folder = path.name, path.parent
    while not folder.is_dir() and folder != folder.parent:
        missing, folder = folder.name, folder.parent
    names = names_in(folder)
    close = difflib.get_close_matches(missing, names, n=_MOST_SHOWN, cutoff=_LIKENESS)
    return f"; {_shown(folder)} contains: {in_words([*close, *(name for name in names if name not in close)])}" if names else ""


def _shown(folder: Path) -> str:
    return "the working directory" if folder == Path() else _written(str(folder))


def names_in(folder: Path) -> list[str]:
    """Names of a folder's entries that are not hidden, runs 2 and 10 in this order; of a large folder the first ones."""
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
        found += [entry.name for entry in islice(entries, _MOST_READ) if not entry.name.startswith(".")]
    return in_order(found)


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted, numbers within them by what they are worth."""
    return sorted(names, key=lambda name: [(int(part), "") if part.isdecimal() else (-1, part) for part in _parts(name)])


def _parts(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def in_words(names: list[str]) -> str:
    """'a, b and c', or the first ones and how many more there are."""
    shown, more = [_written(name) for name in names[:_MOST_SHOWN]], len(names) - _MOST_SHOWN
    if more > 0:
        shown.append(f"{more} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def _written(name: str) -> str:
    """Any name as text that can be printed on one line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)
