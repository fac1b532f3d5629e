"""Signals that ask this process to stop: hold them back for a moment, and keep their handlers."""

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
    def signal_name(self) -> str:
        """The signal's name, such as 'SIGTERM'."""
        return signal.Signals(self.number).name

    @property
    def exit_status(self) -> int:
        """The status that shells report for a process that this signal has ended: 143 for SIGTERM."""
        return 128 + self.number


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Run the handlers of all signals after the block, not in it, so that no exception of a handler leaves it half done.

    To block the signals in this thread would not suffice: another thread (NumPy's BLAS has some) takes them then, and Python
    still runs the handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():  # no handler runs here
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    before = {n: handler for n, handler in zip(_SIGNALS, map(getsignal, _SIGNALS), strict=True) if callable(handler)}
    try:
        for number in before:
            set_handler(number, lambda number, frame: held.append((number, frame)))
        yield
    finally:
        _restore(before)
        _run_held([partial(before[number], number, frame) for number, frame in held])


def _run_held(held: Sequence[Callable[[], object]]) -> None:
    """Call every handler; then raise one of their exceptions, preferably a request to end (not an Exception)."""
    raised: list[BaseException] = []
    for handler in held:
        try:
            handler()
        except BaseException as error:
            raised.append(error)
    if raised:
        raise next((error for error in raised if not isinstance(error, Exception)), raised[0])


def _restore(handlers: Mapping[int, Any]) -> None:
    """Set handlers; a signal in between raises only when all are set."""
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
def signals_blocked_for_child() -> Iterator[None]:
    """Let a process that is started in the block begin with the stop signals blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def signal_handlers_kept() -> Iterator[None]:
    """Remove the handlers of stop signals that an environment installs in the block."""
    if threading.current_thread() is not threading.main_thread():  # no handler can be installed here
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
