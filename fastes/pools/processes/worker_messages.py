"""Messages between a worker and its parent. Imports little: the first message may be that nothing else can be imported."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, NoReturn

from fastes.errors import frames_of, origin_of, summary_of, writable

MARK = "FASTES_WORKER"  # an environment variable of workers and of all that they start
# A signal that environments do not use, if the system has one. qemu-user lacks the last two.
LEAVE_SIGNAL = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else signal.SIGTERM
LOOK = b""  # to the parent: the last job of a request is done
WORN = b"worn"  # to the parent: this worker has played as many episodes as one may, and waits for its end
READY_MARK = "fastes: the environment of this worker is built"  # a line on stderr that is not shown
BUILDING = -1  # the job of a Failed while the environment was built
LOADING = -2  # and before that, while the worker imported the code that builds it
_closing: list[Callable[[], object]] = []
_line = (-1, -1)  # the connection's descriptor, and the process that it belongs to


class Notice(NamedTuple):
    """A warning about the environment; the job continues.

    Attributes:
        kind: Each kind is shown once.
        text: The warning.
    """

    kind: str
    text: str


class Failed(NamedTuple):
    """An exception in an episode, or before the first one.

    Attributes:
        job: The job; BUILDING or LOADING before the first one.
        episode: The number of the job's episode.
        summary: The exception's type and message.
        trace: Its traceback.
        exception: The pickled exception; b'' if it cannot be pickled or is large.
        origin: 'environment' or 'policy'.
        penalised: Whether the job is done with a return of NaN.
        slot: The number of the job's slot.
        ticket: The ticket under which it was claimed.
    """

    job: int
    episode: int
    summary: str
    trace: str
    exception: bytes
    origin: str
    penalised: bool = False
    slot: int = 0
    ticket: int = 0


def failure(job: int, episode: int, error: Exception) -> Failed:
    """Make a message that is small enough to be sent at once: a worker that is stopped halfway must not block its parent."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    summary, trace = _shortened(summary_of(error), 2000), _shortened(frames_of(error), 6000)
    return Failed(job, episode, summary, trace, pickled if len(pickled) <= 6000 else b"", origin_of(error))


def _shortened(text: str, limit: int) -> str:
    """Return a text of at most `limit` bytes: its beginning and its end, in ASCII, if it is longer."""
    text = text.encode("ascii", "backslashreplace").decode() if len(text.encode()) > limit else text
    return text if len(text) <= limit else f"{text[: limit // 3]}\n[...]\n{text[-limit // 2 :]}"


@contextlib.contextmanager
def report_errors_to_parent(connection_fd: int) -> Iterator[None]:
    """Report an exception in the block to the parent, and end this process.

    Args:
        connection_fd: This process's end of a multiprocessing Connection.
    """
    global _line
    _line = connection_fd, os.getpid()
    try:
        yield
    except Exception as error:
        report(error)
        sys.exit(1)


def close_before_end(close: Callable[[], object]) -> None:
    """Have `report_and_end` call a function before this process ends."""
    _closing.append(close)


def is_worker() -> bool:
    """Whether this process is a worker, and not one that a worker's environment has started."""
    return _line[1] == os.getpid()


def report_and_end(error: Exception) -> NoReturn:
    """Report an exception to the parent and end this worker at once, so that no handler of the user's can catch it."""
    report(error)
    for close in _closing:
        with contextlib.suppress(BaseException):
            close()
    os._exit(1)


def report(error: Exception) -> None:
    """Send a Failed without a job, unless this is a forked copy. Importing multiprocessing may fail, so this does without."""
    if not is_worker():
        return
    failed = failure(LOADING, 0, error)
    if error.__traceback__ is None:  # it was not raised: show the way to here
        failed = failed._replace(trace=_shortened(writable("".join(traceback.format_stack(sys._getframe(1)))), 6000))
    if advice := standard_name_among(error.__traceback__):
        failed = failed._replace(summary=f"{failed.summary}\n{advice}")
    message = pickle.dumps(failed)
    with contextlib.suppress(OSError):
        left = struct.pack("!i", len(message)) + message
        while left:
            left = left[os.write(_line[0], left) :]


def standard_name(name: str, file: str) -> str:
    """Return advice if a module's file shadows one of the standard library; else ''."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names or os.path.abspath(file).startswith(sysconfig.get_path("stdlib") + os.sep):
        return ""
    return f"{file} has the name of Python's own module {top!r} and was imported in its place: rename the file"


def standard_name_among(trace: TracebackType | None) -> str:
    """Return the same advice for the modules whose import raised an exception."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and not code.co_filename.startswith("<"):
            advice = standard_name(str(trace.tb_frame.f_globals.get("__name__", "")), code.co_filename)
            if advice:
                return advice
        trace = trace.tb_next
    return ""
