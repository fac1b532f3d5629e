"""Signals that ask this process to stop: holding them back for a moment, and keeping their handlers."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


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
    """They are blocked in this thread meanwhile, and come afterwards; a process that is started here is born like that."""
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
