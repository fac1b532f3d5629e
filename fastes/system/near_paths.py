"""Existing paths near one that is missing, for error messages."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from fastes.errors import listed

_MOST_READ, _MOST_SHOWN = 1000, 6  # entries of a folder
_LIKENESS = 0.5  # of names, as difflib measures it


def what_is_beside(path: Path) -> str:
    """Return '; runs contains: CartPole-v1 and Hopper-v5' for a missing runs/Hoper-v5, names like the missing one first.

    The folder is the first one above the path that exists. Empty if it cannot be read.
    """
    missing, folder = path.name, path.parent
    while not folder.is_dir() and folder != folder.parent:
        missing, folder = folder.name, folder.parent
    names = names_in(folder)
    close = difflib.get_close_matches(missing, names, n=_MOST_SHOWN, cutoff=_LIKENESS)
    return f"; {_shown(folder)} contains: {in_words([*close, *(name for name in names if name not in close)])}" if names else ""


def _shown(folder: Path) -> str:
    return "the working directory" if folder == Path() else printable(str(folder))


def names_in(folder: Path, most: int | None = _MOST_READ) -> list[str]:
    """Return the names of a folder's entries that are not hidden, as `in_order`. most: of a large folder; None for all."""
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError), os.scandir(folder) as entries:
        found += [entry.name for entry in islice(entries, most) if not entry.name.startswith(".")]
    return in_order(found)


def in_order(names: Iterable[str]) -> list[str]:
    """Return names sorted, numbers in them by value: run-2 before run-10."""

    def parts(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]

    return sorted(names, key=parts)


def in_words(names: list[str]) -> str:
    """Return 'a, b and c', or the first few names and the number of further ones."""
    shown, more = [printable(name) for name in names[:_MOST_SHOWN]], len(names) - _MOST_SHOWN
    if more > 0:
        shown.append(f"{more} more")
    return listed(shown)


def printable(name: str) -> str:
    r"""Return a name as text that can be printed on one line. A byte of it that is not UTF-8 is written as \xff."""
    return "".join(char if char.isprintable() else _escaped(char) for char in name)


def _escaped(char: str) -> str:
    return f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else repr(char)[1:-1]
