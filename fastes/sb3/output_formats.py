"""What a logger writes to: tables for readers, JSON, CSV and TensorBoard's event files, with the interface of SB3's formats.

A value that a format cannot show is passed over there.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol, TextIO

import numpy as np

from fastes.system.console import lasting
from fastes.system.descriptors import fill_standard_descriptors

# SB3's classes for what is no number, and the attributes that tell them from others of that name
_SPECIAL = {
    "Video": ("frames", "fps"),
    "Figure": ("figure", "close"),
    "Image": ("image", "dataformats"),
    "HParam": ("hparam_dict", "metric_dict"),
}
_files = itertools.count()


class OutputFormat(Protocol):
    """What a dump is written to: one of the formats here, one of SB3's, or your own.

    A format that has `write_sequence(list of str)` is also given the messages of Logger.log.
    """

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write the values of a dump, save those whose key_excluded names this format."""

    def close(self) -> None:
        """Close what the format opened."""


def _special(value: object) -> str:
    """Which of SB3's special classes a value is of, or the empty string."""
    names = (kind.__name__ for kind in type(value).__mro__)
    return next((name for name in names if name in _SPECIAL and all(hasattr(value, part) for part in _SPECIAL[name])), "")


def _included(values: Mapping[str, Any], excluded: Mapping[str, tuple[str, ...]], *formats: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not set(formats) & set(excluded.get(key) or ())}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the values that text cannot show."""
    return {key: value for key, value in values.items() if not _special(value)}


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
        rows = self._rows(_plain(_included(key_values, key_excluded, "stdout", "log")))
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
        values = _plain(_included(key_values, key_excluded, "json"))
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
        values = _plain(_included(key_values, key_excluded, "csv"))
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


class TensorBoardOutputFormat:
    """An event file for TensorBoard, which has all of a dump when the dump ends.

    Numbers and bools become scalars, strings text, arrays histograms. SB3's Image, Figure and HParam are shown, its Video is
    not.

    Raises ImportError without tensorboardX.
    """

    def __init__(self, folder: str) -> None:
        self._summary = tensorboardx("summary")
        self._event = tensorboardx("proto.event_pb2").Event
        self._checksum = tensorboardx("record_writer").masked_crc32c
        os.makedirs(folder, exist_ok=True)
        _announce(folder)
        # seconds first: TensorBoard reads a folder's files in the order of their names
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
        fill_standard_descriptors()
        self.file = open(os.path.join(folder, name), "xb")  # noqa: SIM115
        self._append(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        event = self._event(wall_time=time.time(), step=int(step))
        values = _included(key_values, key_excluded, "tensorboard")
        for key in sorted(values):
            self._add(event.summary, key, values[key])
        self._append(event)

    def close(self) -> None:
        self.file.close()

    def _append(self, event: Any) -> None:
        """A TFRecord: length, its checksum, content, its checksum. SummaryWriter would leave some to a thread after flush."""
        content: bytes = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        checks = (struct.pack("<I", self._checksum(part)) for part in (length, content))
        self.file.write(length + next(checks) + content + next(checks))
        self.file.flush()

    def _add(self, summary: Any, key: str, value: Any) -> None:
        make, kind = self._summary, _special(value)
        if isinstance(value, str):
            summary.value.extend(make.text(key, value).value)
        elif isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            summary.value.add(tag=key, simple_value=float(value))
        elif kind == "HParam":
            for part in make.hparams(dict(value.hparam_dict), dict(value.metric_dict)):
                summary.value.extend(part.value)
        elif kind in ("Image", "Figure"):
            image, order = (value.image, value.dataformats) if kind == "Image" else (self._drawn(value), "CHW")
            summary.value.add(tag=key, image=make.image("", image, dataformats=order).value[0].image)
        elif hasattr(value, "dtype"):
            summary.value.add(tag=key, histo=make.histogram("", value, "auto").value[0].histo)

    def _drawn(self, value: Any) -> Any:
        return tensorboardx("utils").figure_to_image(value.figure, value.close)


def _announce(folder: str) -> None:
    """Make a writer that somebody put in the place of tensorboardX's: W&B's sync_tensorboard hears of folders that way."""
    writer = getattr(sys.modules.get("tensorboardX.writer"), "EventFileWriter", None)
    if writer is not None and writer is not tensorboardx("event_file_writer").EventFileWriter:
        writer(folder).close()


def tensorboardx(module: str) -> ModuleType:
    """A module of tensorboardX, which imports torch, where there is one, for a type hint only: seconds that are saved here."""
    hidden = not {"tensorboardX", "torch"} & set(sys.modules)
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(f"tensorboardX.{module}")
    except ModuleNotFoundError as error:
        raise ImportError("logging to TensorBoard needs tensorboardX: pip install tensorboardX") from error
    finally:
        if hidden:
            del sys.modules["torch"]


# name in format_strings -> the format, made for a folder
FORMATS: dict[str, Callable[[str], OutputFormat]] = {
    "stdout": lambda folder: HumanOutputFormat(lasting(sys.stdout)),  # noqa: ARG005
    "log": lambda folder: HumanOutputFormat(os.path.join(folder, "log.txt")),
    "csv": lambda folder: CSVOutputFormat(os.path.join(folder, "progress.csv")),
    "json": lambda folder: JSONOutputFormat(os.path.join(folder, "progress.json")),
    "tensorboard": TensorBoardOutputFormat,
}
