"""Named tuples as lines of a CSV file that outlives crashes: lines are only added, and a torn one takes no other with it."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from fastes.system.atomic_files import append_whole

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
            found, expected = ", ".join(lines.fieldnames), ", ".join(kind._fields)
            raise ValueError(f"{path} has the columns {found}; expected {expected}: rename them, or take the file away")
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
    if (whole := content.rfind(b"\n") + 1) < len(content):
        os.truncate(path, whole)
    append_whole(path, csv_line(record), start=csv_line(record._fields))


def csv_line(cells: Any) -> bytes:
    """Cells as a line of a CSV file."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()
