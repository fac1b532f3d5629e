"""Named tuples as lines of a CSV file that outlives crashes: lines are only added, and a torn one takes no other with it."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

Record = TypeVar("Record", bound=NamedTuple)


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """The whole lines of a file that exists or not; what a crash or a full disk tore is left out."""
    if not path.exists():
        return []
    types, records = get_type_hints(kind), []
    with open(path, newline="", encoding="utf-8") as file:
        for cells in csv.DictReader(file):
            if None in cells.values():  # fewer cells than columns
                continue
            try:
                records.append(kind._make(types[name](cells[name]) for name in kind._fields))
            except (TypeError, ValueError):
                continue
    return records


def append_record(path: Path, record: Any) -> None:
    """Write a named tuple as a line; a torn one at the end, whose open quotes could swallow it, is cut off."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
        content = whole
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([record] if content else [record._fields, record])


def write_records(path: Path, records: Iterable[Any]) -> None:
    """Write named tuples as the lines of a file, in place of what it held."""
    path.unlink(missing_ok=True)
    for record in records:
        append_record(path, record)


def merge_records(path: Path, kind: type[Record], new: Iterable[Record], key: Callable[[Record], Hashable]) -> list[Record]:
    """Write the file's records and new ones, which replace those of the same key; sorted by their first fields.

    Returns what the file holds then.
    """
    new = list(new)
    replaced = {key(record) for record in new}
    merged = sorted([record for record in read_records(path, kind) if key(record) not in replaced] + new)
    write_records(path, merged)
    return merged
