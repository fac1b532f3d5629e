"""The reporters of `fastes train --report`: they begin with a training, and end after its report with its result."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fastes.reports.trackers.by_name import REPORTERS, reporter_class
from fastes.reports.trackers.noted_run import read_noted_run
from fastes.reports.trackers.reporter import END_SECONDS, Reporter
from fastes.runs.run_config import CONFIG, read_config, result_in
from fastes.runs.run_folder import RunFolder


def add_report(train: Any) -> None:
    train.add_argument(
        "--report",
        action="append",
        default=[],
        choices=tuple(REPORTERS),
        help="send statistics there; again for another one; a resumed run continues those that it has",
    )


def check_installed(names: Sequence[str]) -> None:
    """Raise ImportError if the package of a reporter is not installed."""
    for name in names:
        reporter_class(name).check_installed()


@contextlib.contextmanager
def reporters_of(folders: Sequence[RunFolder], names: Sequence[str]) -> Iterator[list[list[Reporter]]]:
    """Make the reporters of each run folder. After the block they get its result, end side by side, and are waited for."""
    reporters = [_reporters_of(folder.path, names) for folder in folders]
    try:
        yield reporters
    finally:
        for folder, its in zip(folders, reporters, strict=True):
            for each in its:
                each.finish(_result_of(folder))
        until = time.monotonic() + END_SECONDS
        for each in [each for its in reporters for each in its]:
            each.wait(max(until - time.monotonic(), 0.0))


def _reporters_of(folder: Path, names: Sequence[str]) -> list[Reporter]:
    """Make the reporters that are named, and those that an earlier session of the run had, if they are still installed."""
    wanted = list(dict.fromkeys(names))
    for name in read_noted_run(folder).reporters:
        if name in REPORTERS and name not in wanted:
            try:
                check_installed([name])
                wanted.append(name)
            except ImportError as error:
                warnings.warn(f"the run continues without its {error}", RuntimeWarning, stacklevel=2)
    found: list[Reporter] = [reporter_class(name)() for name in wanted]
    for each in found:
        each.run_folder, each.ends_with_training = folder, False
    return found


def _result_of(folder: RunFolder) -> dict[str, float]:
    with contextlib.suppress(OSError):
        config = read_config(folder.path / CONFIG)
        if config is not None and (result := result_in(config.get("run", {}))) is not None:
            return {"result/mean": result.mean, "result/std": result.std, "result/worst": result.worst}
    return {}
