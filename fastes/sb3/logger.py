"""Where statistics go: a logger with the interface of Stable-Baselines3's, without SB3 or torch.

    logger = configure("runs/first", ["stdout", "csv", "tensorboard"])
    logger.record("train/sigma", 0.02)
    logger.dump(step=1000)

Formats: stdout (a table), log (the same in log.txt), csv (progress.csv), json (progress.json, one object a line) and
tensorboard (an event file; needs tensorboardX or tensorboard).
"""

from __future__ import annotations

import datetime
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from fastes.errors import suggest
from fastes.sb3.event_files import TensorBoardOutputFormat, check_tensorboard
from fastes.sb3.output_formats import CSVOutputFormat, HumanOutputFormat, JSONOutputFormat, OutputFormat
from fastes.system.console import lasting

__all__ = [
    "DEBUG",
    "DISABLED",
    "ERROR",
    "INFO",
    "WARN",
    "CSVOutputFormat",  # the formats, too: SB3 has them in the module of this name
    "HumanOutputFormat",
    "JSONOutputFormat",
    "Logger",
    "OutputFormat",
    "TensorBoardOutputFormat",
    "configure",
    "configure_run",
]

# name in format_strings -> the format, made for a folder
FORMATS: dict[str, Callable[[str], OutputFormat]] = {
    "stdout": lambda folder: HumanOutputFormat(lasting(sys.stdout)),  # noqa: ARG005
    "log": lambda folder: HumanOutputFormat(os.path.join(folder, "log.txt")),
    "csv": lambda folder: CSVOutputFormat(os.path.join(folder, "progress.csv")),
    "json": lambda folder: JSONOutputFormat(os.path.join(folder, "progress.json")),
    "tensorboard": TensorBoardOutputFormat,
}
DEBUG, INFO, WARN, ERROR, DISABLED = 10, 20, 30, 40, 50


class Logger:
    """Collects values by name, then writes them to every format at once.

    folder: what get_dir() says, None for none.
    output_formats: where dumps go, see OutputFormat.
    name_to_value: the values since the last dump.
    """

    def __init__(self, folder: str | None, output_formats: Sequence[OutputFormat]) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.level = INFO
        self.dir = folder
        self.output_formats = list(output_formats)

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Set a value for the next dump; exclude names the formats that are not to have it."""
        self.name_to_value[key] = value
        self.name_to_excluded[key] = (exclude,) if isinstance(exclude, str) else tuple(exclude or ())

    def record_mean(self, key: str, value: float | None, exclude: str | tuple[str, ...] | None = None) -> None:
        """The same, but the next dump has the mean of the values given; None counts for nothing."""
        if value is None:
            return
        before, count = self.name_to_value[key], self.name_to_count[key]
        self.record(key, before * count / (count + 1) + value / (count + 1), exclude)
        self.name_to_count[key] = count + 1

    def dump(self, step: int = 0) -> None:
        """Write the values and forget them. step: TensorBoard's horizontal axis. Nothing happens at level DISABLED."""
        if self.level == DISABLED:
            return
        for output_format in self.output_formats:
            output_format.write(self.name_to_value, self.name_to_excluded, step)
        for values in (self.name_to_value, self.name_to_count, self.name_to_excluded):
            values.clear()

    def log(self, *args: object, level: int = INFO) -> None:
        """Write a line of words to stdout and log.txt, unless the logger's level is above the line's."""
        if self.level <= level:
            for output_format in self.output_formats:
                if callable(write_sequence := getattr(output_format, "write_sequence", None)):
                    write_sequence([str(arg) for arg in args])

    def debug(self, *args: object) -> None:
        """log at level DEBUG."""
        self.log(*args, level=DEBUG)

    def info(self, *args: object) -> None:
        """log at level INFO."""
        self.log(*args, level=INFO)

    def warn(self, *args: object) -> None:
        """log at level WARN."""
        self.log(*args, level=WARN)

    def error(self, *args: object) -> None:
        """log at level ERROR."""
        self.log(*args, level=ERROR)

    def set_level(self, level: int) -> None:
        """Lines below this level are not written: DEBUG, INFO (at first), WARN, ERROR; DISABLED stops dumps as well."""
        self.level = level

    def get_dir(self) -> str | None:
        """The folder of the files, None without one."""
        return self.dir

    def close(self) -> None:
        """Close the files; stdout stays open."""
        for output_format in self.output_formats:
            output_format.close()


def configure(folder: str | os.PathLike[str] | None = None, format_strings: Sequence[str] | None = None) -> Logger:
    """A logger that writes into a folder, which is made.

    folder: without one $SB3_LOGDIR, else a new one among the temporary files.
    format_strings: some of stdout, log, csv, json, tensorboard; without them those of $SB3_LOG_FORMAT (with commas
        between), else stdout, log and csv.

    Raises ValueError for an unknown format and ImportError when there is neither tensorboardX nor tensorboard, before anything
    is made.
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
    """The logger of one call of learn.

    verbose: tables on stdout from 1 on.
    tensorboard_log: TensorBoard files go into its <tb_log_name>_<n>, where n is one more than the highest there is, or the
        highest itself with reset_num_timesteps=False.

    Without tensorboard_log there is no folder, unless $SB3_LOGDIR names one.
    """
    formats = ["stdout"] if verbose >= 1 else []
    if tensorboard_log is not None:
        run = _latest_run(tensorboard_log, tb_log_name) + bool(reset_num_timesteps)
        return configure(os.path.join(tensorboard_log, f"{tb_log_name}_{run}"), [*formats, "tensorboard"])
    if os.environ.get("SB3_LOGDIR"):
        return configure(None, formats)
    return Logger(None, [FORMATS[name]("") for name in formats])


def _latest_run(tensorboard_log: str | os.PathLike[str], tb_log_name: str) -> int:
    """The highest n of <tb_log_name>_<n>, 0 without any."""
    folder, start = os.path.split(os.path.join(tensorboard_log, f"{tb_log_name}_"))
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    found = [re.fullmatch(re.escape(start) + "([0-9]+)", name) for name in names]
    return max((int(match[1]) for match in found if match), default=0)
