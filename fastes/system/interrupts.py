"""Signals that ask this process to stop: holding them back for a moment, and keeping their handlers."""

from __future__ import annotations

import contextlib
import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # signal's make enums: 20 times the time
from _signal import signal as set_handler
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_SIGNALS = tuple(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Terminated(BaseException):
    """SIGTERM or SIGHUP asked this process to end; number is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """What shells report of a process that this signal ended: 143 for SIGTERM."""
        return 128 + self.number


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Handlers of signals run afterwards, not meanwhile: what is done here is done whole.

    Those of all signals: what an alarm's handler raises, as time limits have it, leaves as little half done as Ctrl-C.

    Blocking the signals in this thread would not do: another thread (of NumPy's BLAS, say) takes them then, and Python runs
    the handler in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():  # no handler runs here
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {n: handler for n in _SIGNALS if callable(handler := getsignal(n))}
    try:
        for number in before:
            set_handler(number, lambda number, frame: held.append((number, frame)))
        yield
    finally:
        _restore(before)
        _meet([partial(before[number], number, frame) for number, frame in held])


def _meet(held: Sequence[Callable[[], object]]) -> None:
    """Call every handler; then raise what one of them raised, first of all what is no mere Exception: a request to end."""
    raised: list[BaseException] = []
    for handler in held:
        try:
            handler()
        except BaseException as error:
            raised.append(error)
    if raised:
        raise next((error for error in raised if not isinstance(error, Exception)), raised[0])


def _restore(handlers: Mapping[int, Any]) -> None:
    """Set handlers; a signal that comes in between raises only when all are set."""
    raised: BaseException | None = None
    while True:
        try:
            for number, handler in handlers.items():
                set_handler(number, handler)
            break
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised


@contextlib.contextmanager
def born_blocked() -> Iterator[None]:
    """A process that is started here has these signals blocked until it unblocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """What an environment installs as a handler of these signals is taken back."""
    if threading.current_thread() is not threading.main_thread():  # nobody can install one here
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
