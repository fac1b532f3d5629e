"""The number of an environment among all that a training plays in at the same time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from weakref import WeakValueDictionary

WORKER_INDEX = "FASTES_WORKER_INDEX"  # the environment variable that has it while an environment is built and played


class _Held:
    """A number as one use of `numbered` has it."""

    def __init__(self, number: int) -> None:
        self.thread, self.number = threading.get_ident(), str(number)


_outside = os.environ.get(WORKER_INDEX)
# Threads leave in any order, and the last one in counts. Weak: an exception that comes while one leaves leaves nothing here.
_inside: WeakValueDictionary[int, _Held] = WeakValueDictionary()


def worker_index() -> int:
    """That of the worker which this process is; 0 in any other process."""
    return int(os.environ.get(WORKER_INDEX, "0"))


@contextlib.contextmanager
def numbered(index: int) -> Iterator[None]:
    """Meanwhile the environment variable has this number. Threads may hold several at once.

    No lock: a signal's exception could come where it is held, and leave it so.
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
    """The references are listed in one step: while `values()` goes through them another thread may come."""
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
    """A forked copy has none of them."""
    for held in _those_inside():
        if held.thread != threading.get_ident():
            _inside.pop(id(held), None)
    _set_variable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
