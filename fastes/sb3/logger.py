"""A logger with the interface of Stable-Baselines3's, without SB3 or torch.

    logger = configure("runs/first", ["stdout", "csv", "tensorboard"])
    logger.record("train/sigma", 0.02)
    logger.dump(step=1000)

Formats: stdout (a table), log (the same table in log.txt), csv (progress.csv), json (progress.json, one object per line) and
tensorboard (an event file; needs tensorboardX or tensorboard).
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from fastes.errors import suggest
from fastes.reports.event_files import EventFile, HParam, check_tensorboard, special_kind
from fastes.system.console import fill_standard_descriptors, tolerant

DEBUG, INFO, WARN, ERROR, DISABLED = 10, 20, 30, 40, 50


class OutputFormat(Protocol):
    """The interface of an output: one of the formats here, one of SB3's, or your own.

    If it has a method `write_sequence(list of str)`, that gets the messages of `Logger.log`.
    """

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Write the values of a dump, except those whose key_excluded names this format."""

    def close(self) -> None:
        """Close what the format opened."""


class Logger:
    """Collects values by name and writes them to every output format at once.

    Args:
        folder: Folder that `get_dir` returns; None for none.
        output_formats: Outputs of a dump.

    Attributes:
        name_to_value: The values since the last dump.
    """

    def __init__(self, folder: str | None, output_formats: Sequence[OutputFormat]) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.level = INFO
        self.dir = folder
        self.output_formats = list(output_formats)

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Set a value for the next dump. exclude: formats that leave it out."""
        self.name_to_value[key] = value
        self.name_to_excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())

    def record_mean(self, key: str, value: float | None, exclude: str | tuple[str, ...] | None = None) -> None:
        """Add a value to a mean, which the next dump writes. None is ignored."""
        if value is None:
            return
        before, count = self.name_to_value[key], self.name_to_count[key]
        self.record(key, before * count / (count + 1) + value / (count + 1), exclude)
        self.name_to_count[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Write the values and forget them, unless the level is DISABLED. step: position on TensorBoard's horizontal axis."""
        if self.level == DISABLED:
            return
        for output_format in self.output_formats:
            output_format.write(self.name_to_value, self.name_to_excluded, step)
        for values in (self.name_to_value, self.name_to_count, self.name_to_excluded):
            values.clear()

    def log(self, *args: object, level: int = INFO) -> None:
        """Write a line of text to stdout and log.txt, unless its level is below the logger's."""
        if self.level <= level:
            for output_format in self.output_formats:
                if callable(write_sequence := getattr(output_format, "write_sequence", None)):
                    write_sequence([str(arg) for arg in args])

    def debug(self, *args: object) -> None:
        """Log at level DEBUG."""
        self.log(*args, level=DEBUG)

    def info(self, *args: object) -> None:
        """Log at level INFO."""
        self.log(*args, level=INFO)

    def warn(self, *args: object) -> None:
        """Log at level WARN."""
        self.log(*args, level=WARN)

    def error(self, *args: object) -> None:
        """Log at level ERROR."""
        self.log(*args, level=ERROR)

    def set_level(self, level: int) -> None:
        """Set the lowest level that is written: DEBUG, INFO (the default), WARN, ERROR; DISABLED stops dumps as well."""
        self.level = level

    def get_dir(self) -> str | None:
        """Return the folder of the files, or None."""
        return self.dir

    def close(self) -> None:
        """Close the files; stdout stays open."""
        for output_format in self.output_formats:
            output_format.close()


def configure(folder: str | os.PathLike[str] | None = None, format_strings: Sequence[str] | None = None) -> Logger:
    """Make a logger that writes into a folder, which is created.

    Args:
        folder: None for $SB3_LOGDIR, or a new folder for temporary files if that is not set.
        format_strings: Any of stdout, log, csv, json, tensorboard; None for those of $SB3_LOG_FORMAT (separated by commas), or
            stdout, log and csv if that is not set.

    Raises:
        ValueError: For an unknown format, before anything is created.
        ImportError: For tensorboard if neither tensorboardX nor tensorboard is installed.
    """
    if isinstance(format_strings, str):
        raise ValueError(f"format_strings = {format_strings!r} is one string: write [{format_strings!r}]")
    if format_strings is None:
        format_strings = os.environ.get("SB3_LOG_FORMAT", "stdout,log,csv").split(",")
    names = [name for name in format_strings if name]
    for name in names:
        if name not in FORMATS:
            raise ValueError(f"format {name!r} is unknown: there are {', '.join(FORMATS)}{suggest(name, FORMATS)}")
    if "tensorboard" in names:
        check_tensorboard()
    new = datetime.datetime.now().strftime("SB3-%Y-%m-%d-%H-%M-%S-%f")
    place = os.fspath(folder or os.environ.get("SB3_LOGDIR") or os.path.join(tempfile.gettempdir(), new))
    os.makedirs(place, exist_ok=True)
    logger = Logger(place, [])
    try:
        for name in names:
            logger.output_formats.append(FORMATS[name](place))
    except OSError:
        logger.close()
        raise
    if names and names != ["stdout"]:
        logger.log(f"Logging to {place}")
    return logger


def configure_run(
    verbose: int = 0,
    tensorboard_log: str | os.PathLike[str] | None = None,
    tb_log_name: str = "",
    reset_num_timesteps: bool = True,
) -> Logger:
    """Make the logger of one call of learn.

    Args:
        verbose: 1 or more prints tables on stdout.
        tensorboard_log: Parent of the folder <tb_log_name>_<n> of TensorBoard's files; None for no folder, unless $SB3_LOGDIR
            names one.
        tb_log_name: See tensorboard_log.
        reset_num_timesteps: Whether n is one more than the highest that exists, or that itself.
    """
    formats = ["stdout"] if verbose >= 1 else []
    if tensorboard_log is not None:
        run = _latest_run(tensorboard_log, tb_log_name) + bool(reset_num_timesteps)
        return configure(os.path.join(tensorboard_log, f"{tb_log_name}_{run}"), [*formats, "tensorboard"])
    if os.environ.get("SB3_LOGDIR"):
        return configure(None, formats)
    return Logger(None, [FORMATS[name]("") for name in formats])


def _latest_run(tensorboard_log: str | os.PathLike[str], tb_log_name: str) -> int:
    """Return the highest n of the folders <tb_log_name>_<n>, or 0."""
    folder, start = os.path.split(os.path.join(tensorboard_log, f"{tb_log_name}_"))
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    found = [re.fullmatch(re.escape(start) + "([0-9]+)", name) for name in names]
    return max((int(match[1]) for match in found if match), default=0)


# --- formats of text ------------------------------------------------------------------------------------------------


def _included(values: Mapping[str, Any], excluded: Mapping[str, tuple[str, ...]], *formats: str) -> dict[str, Any]:
    """Return the values that none of the formats excludes."""
    return {key: value for key, value in values.items() if not set(formats) & set(excluded.get(key) or ())}


def _as_text(values: Mapping[str, Any], excluded: Mapping[str, tuple[str, ...]], *formats: str) -> dict[str, Any]:
    """Return the values that none of the formats excludes and that text can show."""
    return {key: value for key, value in _included(values, excluded, *formats).items() if not special_kind(value)}


def _open(path: str, mode: str, newline: str | None = None) -> TextIO:
    fill_standard_descriptors()
    return open(path, mode, encoding="utf-8", newline=newline)  # type: ignore[return-value]


class HumanOutputFormat:
    """A table, grouped by the part of a key before its first '/'. It leaves out keys that exclude 'stdout' or 'log'.

    Args:
        file: A path, whose file is replaced, an open file, or None for no output.
        max_length: Longer keys and values are cut.
    """

    def __init__(self, file: str | TextIO | None, max_length: int = 36) -> None:
        self.max_length = max_length
        self._owned = isinstance(file, str)
        self.file: TextIO | None = _open(file, "w") if isinstance(file, str) else file

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        rows = self._rows(_as_text(key_values, key_excluded, "stdout", "log"))
        if rows:
            left, right = (max(len(row[column]) for row in rows) for column in (0, 1))
            border = "-" * (left + right + 7)
            self._print("\n".join([border, *(f"| {key:<{left}} | {value:<{right}} |" for key, value in rows), border]))

    def write_sequence(self, sequence: list[str]) -> None:
        """Write one line."""
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
        if self.file is None:  # sys.stdout of a process without one
            return
        if "tqdm" in sys.modules and getattr(self.file, "name", None) == "<stdout>":
            from tqdm import tqdm

            tqdm.write(text, file=self.file)  # above a progress bar, not through it
        else:
            self.file.write(text + "\n")
        self.file.flush()


class JSONOutputFormat:
    """A file with one JSON object per dump. NumPy numbers and bools become floats; NaN is written as NaN."""

    def __init__(self, filename: str) -> None:
        self.file = _open(filename, "w")

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        values = _as_text(key_values, key_excluded, "json")
        self.file.write(json.dumps({key: _jsonable(value) for key, value in values.items()}, default=str) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _jsonable(value: Any) -> Any:
    if isinstance(value, str) or not hasattr(value, "dtype"):
        return value
    return float(value.item()) if math.prod(value.shape) == 1 else value.tolist()


class CSVOutputFormat:
    """A CSV table with one row per dump. A key that first appears later adds a column, which is empty in earlier rows."""

    def __init__(self, filename: str) -> None:
        self.file = _open(filename, "w+", newline="")
        self.keys: list[str] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:  # noqa: ARG002
        values = _as_text(key_values, key_excluded, "csv")
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


class Image(NamedTuple):
    """An image as SB3's class of this name has it."""

    image: Any
    dataformats: str


class Figure(NamedTuple):
    """A figure as SB3's class of this name has it."""

    figure: Any
    close: bool


class SummaryWriter:
    """The methods of torch's SummaryWriter that callbacks call on `TensorBoardOutputFormat.writer`, without torch."""

    def __init__(self, events: EventFile) -> None:
        self._events = events

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self._add(tag, float(scalar_value), global_step)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        self._add(tag, text_string, global_step)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        self._add(tag, np.asarray(values), global_step)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, dataformats: str = "CHW") -> None:
        self._add(tag, Image(img_tensor, dataformats), global_step)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True) -> None:
        self._add(tag, Figure(figure, close), global_step)

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any]) -> None:
        self._add("hparams", HParam(hparam_dict, metric_dict), None)

    def flush(self) -> None:
        """Nothing is left to write: the file is complete after each call."""

    def _add(self, tag: str, value: Any, step: int | None) -> None:
        self._events.write({tag: value}, step or 0)


class TensorBoardOutputFormat:
    """An event file for TensorBoard, which is complete after each dump; see EventFile.

    Attributes:
        writer: Writes to the same file.

    Raises:
        ImportError: If neither tensorboardX nor tensorboard is installed.
    """

    def __init__(self, folder: str) -> None:
        self._events = EventFile(folder)
        self.file = self._events.file
        self.writer = SummaryWriter(self._events)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        self._events.write(_included(key_values, key_excluded, "tensorboard"), step)

    def close(self) -> None:
        self._events.close()


def _tensorboard(folder: str) -> OutputFormat:
    """Make the format of TensorBoard, also an instance of SB3's class if SB3 is in use: callbacks look for that."""
    theirs = getattr(sys.modules.get("stable_baselines3.common.logger"), "TensorBoardOutputFormat", None)
    kind: Any = TensorBoardOutputFormat if theirs is None else type(theirs.__name__, (TensorBoardOutputFormat, theirs), {})
    return kind(folder)  # type: ignore[no-any-return]


# name in format_strings -> function that makes the format for a folder
FORMATS: dict[str, Callable[[str], OutputFormat]] = {
    "stdout": lambda folder: HumanOutputFormat(tolerant(sys.stdout)),  # noqa: ARG005
    "log": lambda folder: HumanOutputFormat(os.path.join(folder, "log.txt")),
    "csv": lambda folder: CSVOutputFormat(os.path.join(folder, "progress.csv")),
    "json": lambda folder: JSONOutputFormat(os.path.join(folder, "progress.json")),
    "tensorboard": _tensorboard,
}
