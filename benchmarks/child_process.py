"""A contestant's process: started in a fresh interpreter on given cores, read line by line, ended with all its children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class ContestantFailed(Exception):
    """It ended with an error, or said nothing for too long; the message is its last lines."""


def records_of(
    module: str, given: dict[str, Any], cpus: Sequence[int], threads: int, folder: Path, log: Path, patience: float
) -> Generator[dict[str, Any], None, None]:
    """What `module.main` writes to stdout, a JSON object a line, while it runs on the CPUs; all its children end with it.

    threads: of its numerical libraries. folder: its working directory. log: file for the rest that it prints. patience:
    seconds without a line after which it is killed. Raises ContestantFailed, after the lines that it has written.
    """
    environment = {**os.environ, **dict.fromkeys(_LIBRARIES, str(threads)), "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))  # the folder is no checkout
    command = [sys.executable, "-m", module, json.dumps(given)]
    with open(log, "ab") as errors, _pinned(cpus):
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
    with process:
        try:
            yield from _lines(process, patience, log)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.wait():
            raise ContestantFailed(f"exit status {process.returncode}: {last_lines(log)}")


@contextlib.contextmanager
def _pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Children that are started inside may use these CPUs only, where the system knows affinity."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lines(process: subprocess.Popen[bytes], patience: float, log: Path) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    pending = b""
    while True:
        if not select.select([process.stdout], [], [], patience)[0]:
            raise ContestantFailed(f"it said nothing for {patience:.0f} s and was killed: {last_lines(log)}")
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            process.wait()
            return
        *whole, pending = (pending + chunk).split(b"\n")
        yield from map(json.loads, whole)


def last_lines(log: Path, count: int = 3) -> str:
    """The end of a log on one line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return " / ".join(line.strip() for line in text.splitlines()[-count:]) or "it printed nothing"
