"""Interrupts of a program that runs contestants: it ends them, and says that the same command resumes."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

from fastes.system.interrupts import Terminated


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP inside end the program, and with it the contestant that runs; what is finished stays.

    The exit status is that of shells: 130, 143, 129. Signals that nohup ignores stay ignored. After SIGTERM or SIGHUP both
    are: the program is about to end.
    """
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _terminate)
        yield
    except (KeyboardInterrupt, Terminated) as stop:
        with contextlib.suppress(OSError):  # the terminal may be gone
            print("interrupted: the same command continues where it was", file=sys.stderr)
        raise SystemExit(stop.exit_status if isinstance(stop, Terminated) else 130) from None
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _terminate:
                signal.signal(number, handler)


def _terminate(number: int, _: object) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):  # a terminal that closes may send two
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(number)
