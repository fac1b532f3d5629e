"""Messages of a worker to its parent, also before it could import anything else. Imports little for that."""

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
# One that environments leave alone, where there is one. Not one of the last two: under qemu-user there are none.
LEAVE_SIGNAL = signal.SIGRTMAX - 2 if hasattr(signal, "SIGRTMAX") else signal.SIGTERM
LOOK = b""  # what tells the parent that a job is done, of a request that has none left to claim: it may be finished
WORN = b"worn"  # that a worker has played as many episodes as one may, and waits for its end
READY_MARK = "fastes: the environment of this worker is built"  # a line on stderr, not shown
BUILDING = -1  # stands for a job while the environment was built
LOADING = -2  # and before, while the worker imported what builds it
_closing: list[Callable[[], object]] = []
_line = (-1, -1)  # the connection's descriptor, and the process whose it is


class Notice(NamedTuple):
    """A warning for the user about what the environment does; its job continues. kind: each is shown once."""

    kind: str
    text: str


class Failed(NamedTuple):
    """An exception in an episode.

    job, episode: which one; job is BUILDING or LOADING outside of any.
    slot, ticket: whose job it is.
    summary: its type and what it says.
    trace: where it came from.
    exception: pickled, b'' if it cannot be.
    penalised: the job is done all the same, with a return of NaN.
    origin: 'environment' or 'policy'.
    """

    job: int
    episode: int
    summary: str
    trace: str
    exception: bytes
    penalised: bool
    origin: str
    slot: int = 0
    ticket: int = 0


def failure(job: int, episode: int, error: Exception, penalised: bool = False) -> Failed:
    """The message, small enough to go through the pipe at once: a worker that is stopped halfway must not hold its parent."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    summary, trace = _shortened(summary_of(error), 2000), _shortened(frames_of(error), 6000)
    return Failed(job, episode, summary, trace, pickled if len(pickled) <= 6000 else b"", penalised, origin_of(error))


def _shortened(text: str, limit: int) -> str:
    """The beginning and the end of a text of at most limit bytes in ASCII."""
    text = text.encode("ascii", "backslashreplace").decode() if len(text.encode()) > limit else text
    return text if len(text) <= limit else f"{text[: limit // 3]}\n[...]\n{text[-limit // 2 :]}"


@contextlib.contextmanager
def report_errors_to_parent(connection_fd: int) -> Iterator[None]:
    """Tell the parent of an exception in the block, with which this process ends.

    connection_fd: this process's end of a multiprocessing Connection.
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
    """Report an exception to the parent and end this worker at once, so that no code that catches it runs."""
    report(error)
    for close in _closing:
        with contextlib.suppress(BaseException):
            close()
    os._exit(1)


def report(error: Exception) -> None:
    """Send a Failed of no job, unless this is a forked copy. By hand: importing multiprocessing may be what does not work."""
    if not is_worker():
        return
    failed = failure(LOADING, 0, error)
    if error.__traceback__ is None:  # it was not raised: the way to here is what tells
        failed = failed._replace(trace=_shortened(writable("".join(traceback.format_stack(sys._getframe(1)))), 6000))
    if advice := standard_name_among(error.__traceback__):
        failed = failed._replace(summary=f"{failed.summary}\n{advice}")
    message = pickle.dumps(failed)
    with contextlib.suppress(OSError):
        left = struct.pack("!i", len(message)) + message
        while left:
            left = left[os.write(_line[0], left) :]


def standard_name(name: str, file: str) -> str:
    """Advice if a module has taken the name of one of the standard library; '' if it has not."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names or os.path.abspath(file).startswith(sysconfig.get_path("stdlib") + os.sep):
        return ""
    return f"{file} has the name of Python's own module {top!r} and was imported in its place: rename the file"


def standard_name_among(trace: TracebackType | None) -> str:
    """The same for the modules in whose import an exception came."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and not code.co_filename.startswith("<"):
            advice = standard_name(str(trace.tb_frame.f_globals.get("__name__", "")), code.co_filename)
            if advice:
                return advice
        trace = trace.tb_next
    return ""
