"""Named tuples as lines of a CSV file that outlives crashes.

Either lines are only added, and a torn one takes no other with it; or the whole file is replaced.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from fastes.system.atomic_files import write_text

Record = TypeVar("Record", bound=NamedTuple)


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """The whole lines of a file that exists or not; what a crash or a full disk tore is left out.

    Raises ValueError for a file without one of the columns.
    """
    if not path.exists():
        return []
    types, records = get_type_hints(kind), []
    with open(path, newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file)
        if lines.fieldnames and not set(kind._fields) <= set(lines.fieldnames):
            raise ValueError(_other_columns(path, lines.fieldnames, kind))
        for cells in lines:
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


def merge_records(path: Path, kind: type[Record], new: Iterable[Record], key: Callable[[Record], Hashable]) -> list[Record]:
    """Write the file's records and new ones, which replace those of the same key; sorted by their first fields.

    Returns what the file holds then. The file is replaced as a whole. Raises ValueError for one with a line that is no record
    of this kind: it would be lost.
    """
    new = list(new)
    replaced = {key(record) for record in new}
    merged = sorted([record for record in _read_all(path, kind) if key(record) not in replaced] + new)
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([kind._fields, *merged])
    write_text(path, lines.getvalue())
    return merged


def _other_columns(path: Path, found: Iterable[str], kind: type[NamedTuple]) -> str:
    return f"{path} has the columns {', '.join(found)}; expected {', '.join(kind._fields)}: rename them, or take the file away"


def _read_all(path: Path, kind: type[Record]) -> list[Record]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    header, *lines = csv.reader(io.StringIO(text)) if text else [[]]
    if tuple(header) != kind._fields:
        raise ValueError(_other_columns(path, header, kind))
    records = read_records(path, kind)
    if len(records) < len(lines) or not text.endswith("\n"):
        raise ValueError(
            f"{path} has {len(lines)} lines, of which {len(records)} are whole, or ends within one: mend it, or take it away"
        )
    return records
