"""What a logger writes to: tables for readers, JSON and CSV, with the interface of SB3's formats.

A value that a format cannot show is passed over there.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from fastes.system.descriptors import fill_standard_descriptors

# SB3's classes for what is no number, and the attributes that tell them from others of that name
_SPECIAL = {
    "Video": ("frames", "fps"),
    "Figure": ("figure", "close"),
    "Image": ("image", "dataformats"),
    "HParam": ("hparam_dict", "metric_dict"),
}


class OutputFormat(Protocol):
    """What a dump is written to: one of the formats here, one of SB3's, or your own.

    A format that has `write_sequence(list of str)` is also given the messages of Logger.log.
    """

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write the values of a dump, save those whose key_excluded names this format."""

    def close(self) -> None:
        """Close what the format opened."""


def special_kind(value: object) -> str:
    """Which of SB3's special classes a value is of, or the empty string."""
    names = (kind.__name__ for kind in type(value).__mro__)
    return next((name for name in names if name in _SPECIAL and all(hasattr(value, part) for part in _SPECIAL[name])), "")


def included(values: Mapping[str, Any], excluded: Mapping[str, tuple[str, ...]], *formats: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not set(formats) & set(excluded.get(key) or ())}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that text cannot show."""
    return {key: value for key, value in values.items() if not special_kind(value)}


def _open(path: str, mode: str, newline: str | None = None) -> TextIO:
    fill_standard_descriptors()
    return open(path, mode, encoding="utf-8", newline=newline)  # type: ignore[return-value]


class HumanOutputFormat:
    """A table for readers, grouped by what stands before the first '/' of a key.

    file: where it goes, a path, an open file, or None for nowhere; a path's file is replaced.
    max_length: longer keys and values are cut.

    A key is left out when 'stdout' or 'log' is excluded for it.
    """

    def __init__(self, file: str | TextIO | None, max_length: int = 36) -> None:
        self.max_length = max_length
        self._owned = isinstance(file, str)
        self.file: TextIO | None = _open(file, "w") if isinstance(file, str) else file

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        rows = self._rows(_plain(included(key_values, key_excluded, "stdout", "log")))
        if rows:
            left, right = (max(len(row[column]) for row in rows) for column in (0, 1))
            border = "-" * (left + right + 7)
            self._print("\n".join([border, *(f"| {key:<{left}} | {value:<{right}} |" for key, value in rows), border]))

    def write_sequence(self, sequence: list[str]) -> None:
        """Write words on a line."""
        self._print(" ".join(sequence))

    def close(self) -> None:
        if self._owned and self.file is not None:
            self.file.close()

    def _rows(self, values: dict[str, Any]) -> list[tuple[str, str]]:
        rows, group = [], ""
        for key in sorted(values):
            value, name = values[key], key
            if (start := key.find("/") + 1) > 1:
                if key[:start] != group:
                    group = key[:start]
                    rows.append((self._cut(group), ""))
                name = f"   {key[start:]}"
            rows.append((self._cut(name), self._cut(f"{value:<8.3g}" if isinstance(value, float) else str(value))))
        return rows

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.max_length else text[: self.max_length - 3] + "..."

    def _print(self, text: str) -> None:
        if self.file is None:  # sys.stdout of a process that was started without
            return
        if "tqdm" in sys.modules and getattr(self.file, "name", None) == "<stdout>":
            from tqdm import tqdm

            tqdm.write(text, file=self.file)  # above a progress bar, not through it
        else:
            self.file.write(text + "\n")
        self.file.flush()


class JSONOutputFormat:
    """One JSON object a line, without the keys that are excluded. NumPy numbers and bools become floats; NaN is NaN."""

    def __init__(self, filename: str) -> None:
        self.file = _open(filename, "w")

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        values = _plain(included(key_values, key_excluded, "json"))
        self.file.write(json.dumps({key: _jsonable(value) for key, value in values.items()}, default=str) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _jsonable(value: Any) -> Any:
    if isinstance(value, str) or not hasattr(value, "dtype"):
        return value
    return float(value.item()) if math.prod(value.shape) == 1 else value.tolist()


class CSVOutputFormat:
    """A table of all dumps. A key that comes later adds a column, which is empty in the rows above."""

    def __init__(self, filename: str) -> None:
        self.file = _open(filename, "w+", newline="")
        self.keys: list[str] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        values = _plain(included(key_values, key_excluded, "csv"))
        if new := [key for key in values if key not in self.keys]:
            self._add_columns(new)
        if self.keys:
            self.file.write(",".join(_csv_cell(values.get(key)) for key in self.keys) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    def _add_columns(self, new: list[str]) -> None:
        self.file.seek(0)
        lines = re.findall(r'(?:"[^"]*"|[^"\n])*\n', self.file.read())  # a quoted cell may hold line ends
        self.keys += new
        header = ",".join(_csv_cell(key, quoted=False) for key in self.keys)
        self.file.seek(0)
        self.file.write("".join([f"{header}\n", *(f"{line[:-1]}{',' * len(new)}\n" for line in lines[1:])]))


def _csv_cell(value: object, quoted: bool = True) -> str:
    text = "" if value is None else str(value)
    if (quoted and isinstance(value, str)) or any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
