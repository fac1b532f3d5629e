"""The number of an environment among all that a training plays in at the same time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

WORKER_INDEX = "FASTES_WORKER_INDEX"  # the environment variable that has it while an environment is built and played

_lock = threading.Lock()
_before: str | None = None  # the variable's value outside all of them
_now: dict[object, tuple[int, str]] = {}  # (thread, number) of all: threads leave in any order, and the last one in counts


def worker_index() -> int:
    """That of the worker which this process is; 0 in any other process."""
    return int(os.environ.get(WORKER_INDEX, "0"))


@contextlib.contextmanager
def numbered(index: int) -> Iterator[None]:
    """Meanwhile the environment variable has this number. Threads may hold several at once."""
    global _before
    own = object()
    with _lock:
        if not _now:
            _before = os.environ.get(WORKER_INDEX)
        _now[own] = threading.get_ident(), str(index)
        _set_variable()
    try:
        yield
    finally:
        with _lock:
            del _now[own]
            _set_variable()


def _set_variable() -> None:
    number = next(reversed(_now.values()))[1] if _now else _before
    if number is None:
        os.environ.pop(WORKER_INDEX, None)
    else:
        os.environ[WORKER_INDEX] = number


def _forget_other_threads() -> None:
    """A forked copy has one thread, and another one may have held the lock."""
    global _lock
    _lock = threading.Lock()
    for own, (thread, _) in list(_now.items()):
        if thread != threading.get_ident():
            del _now[own]
    _set_variable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
