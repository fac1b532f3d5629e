"""A run in a process of its own: a fresh interpreter on given cores that writes records, ended with all its children."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastes.pools.processes.worker_process import THREAD_VARIABLES

Write = Callable[[dict[str, Any]], None]


class ChildFailed(Exception):
    """It ended with an error, or said nothing for too long; the message is its last lines."""


class Child:
    """`module.main` on the given CPUs; `given` is its argument, as JSON. A context: at its end all its children are killed.

    threads: of its numerical libraries.
    folder: its working directory.
    log: file for its output that is not a record.
    patience: seconds that it may say nothing for.
    """

    def __init__(
        self,
        module: str,
        given: dict[str, Any],
        cpus: Sequence[int],
        threads: int,
        folder: Path,
        log: Path,
        patience: float = math.inf,
    ) -> None:
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads)), "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))  # the folder is no checkout
        command = [sys.executable, "-m", module, json.dumps(given)]
        with open(log, "ab") as errors, _pinned(cpus):
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        self.log, self._pending, self._ended = log, b"", False
        self.patience, self.silent_at = patience, time.monotonic() + patience

    def fileno(self) -> int:
        """Readable when `read` does not block."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self) -> list[dict[str, Any]] | None:
        """Records that have come, None at the end. Raises ChildFailed where it ended with an error or is silent."""
        if not select.select([self], [], [], _seconds_until(self.silent_at))[0]:
            raise ChildFailed(f"it said nothing for {self.patience:.0f} s and was killed: {last_lines(self.log)}")
        chunk = os.read(self.fileno(), 1 << 16)
        self.silent_at = time.monotonic() + self.patience
        if not chunk:
            if self.process.wait():
                raise ChildFailed(f"exit status {self.process.returncode}: {last_lines(self.log)}")
            return None
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        return [json.loads(line) for line in whole]

    def end(self) -> None:
        """Kill it and its children, once: later the number may be another one's."""
        if not self._ended:
            self._ended = True
            with self.process, contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def with_news(children: Collection[Child]) -> list[Child]:
    """Waits for some whose `read` does not block; that of one which was silent for too long raises."""
    ready = select.select(list(children), [], [], _seconds_until(min(child.silent_at for child in children)))[0]
    return [child for child in children if child in ready or child.silent_at <= time.monotonic()]


def _seconds_until(moment: float) -> float | None:
    """None: for ever."""
    return None if math.isinf(moment) else max(0.0, moment - time.monotonic())


def records_of(
    module: str, given: dict[str, Any], cpus: Sequence[int], threads: int, folder: Path, log: Path, patience: float
) -> Generator[dict[str, Any], None, None]:
    """Yield the records of a Child as they come. Raises ChildFailed, after the records that it has written.

    patience: seconds without a record after which it is killed.
    """
    with Child(module, given, cpus, threads, folder, log, patience) as child:
        while (records := child.read()) is not None:
            yield from records


def records_to_stdout() -> Write:
    """In the child: records alone go to what was stdout; whatever else is printed, here or in children, goes to stderr."""
    records = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(record: dict[str, Any]) -> None:
        records.write(json.dumps(record) + "\n")
        records.flush()

    return write


def answer_once(work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In the child: do the work that it was given on its command line, and write what that gives."""
    given = json.loads(sys.argv[1])
    write = records_to_stdout()
    write(work(given))


def last_lines(log: Path, count: int = 3) -> str:
    """The end of a log on one line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return " / ".join(line.strip() for line in text.splitlines()[-count:]) or "it printed nothing"


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
