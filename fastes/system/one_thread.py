"""A model works in one thread at a time: its workers, and its memory for their jobs, are there once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from fastes.errors import FastESError


class OneThread:
    """Lets in one thread, and whatever that calls; any other gets an error that says so."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()
        self._user = ""

    @contextlib.contextmanager
    def using(self, what: str) -> Iterator[None]:
        """Raises FastESError where another thread is in. what: the method that is called, as in 'learn()'."""
        if self._process != os.getpid():  # after a fork the other threads, and what they held, are the parent's
            self._lock, self._process = threading.RLock(), os.getpid()
        lock, user = self._lock, f"{what} in thread {threading.current_thread().name!r}"
        if not lock.acquire(blocking=False):
            other = self._user or "another call"
            raise FastESError(
                f"{user} was called while {other} is at work: a model works in one thread at a time. Wait for the other, "
                "or give each thread a model of its own, as copy.deepcopy(model) makes them"
            )
        before, self._user = self._user, user
        try:
            yield
        finally:
            self._user = before
            lock.release()
