"""The number of an environment among all in which a training plays at the same time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from weakref import WeakValueDictionary

WORKER_INDEX = "FASTES_WORKER_INDEX"  # the environment variable that has it while an environment is built and played


class _Held:
    """The number and thread of one use of `numbered`."""

    def __init__(self, number: int) -> None:
        self.thread, self.number = threading.get_ident(), str(number)


_outside = os.environ.get(WORKER_INDEX)
# Threads leave in any order; the last one that has entered counts. Weak: an exception while one leaves leaves nothing here.
_inside: WeakValueDictionary[int, _Held] = WeakValueDictionary()


def worker_index() -> int:
    """Return the number of this worker process; 0 in any other process."""
    return int(os.environ.get(WORKER_INDEX, "0"))


@contextlib.contextmanager
def numbered(index: int) -> Iterator[None]:
    """Set the environment variable to this number in the block. Threads may hold several numbers at once.

    There is no lock: the exception of a signal could leave it locked.
    """
    own = _Held(index)
    try:
        _inside[id(own)] = own
        _set_variable()
        yield
    finally:
        _inside.pop(id(own), None)
        _set_variable()


def _number() -> str | None:
    held = _those_inside()
    return held[-1].number if held else _outside


def _those_inside() -> list[_Held]:
    """Return the numbers in use. The references are listed in one step: another thread may enter meanwhile."""
    return [held for reference in _inside.valuerefs() if (held := reference()) is not None]


def _set_variable() -> None:
    number: str | None = ""
    while number != _number():  # again, if another thread has come or gone meanwhile
        number = _number()
        if number is None:
            with contextlib.suppress(KeyError):  # another thread took it away; pop would raise, too
                del os.environ[WORKER_INDEX]
        else:
            os.environ[WORKER_INDEX] = number


def _forget_other_threads() -> None:
    """Drop the numbers of threads that a forked copy does not have."""
    for held in _those_inside():
        if held.thread != threading.get_ident():
            _inside.pop(id(held), None)
    _set_variable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
