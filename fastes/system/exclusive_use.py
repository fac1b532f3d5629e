"""A model works in one thread at a time: it has one set of workers, and one memory for their jobs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from fastes.errors import FastESError


class ExclusiveUse:
    """A lock that one thread holds, which may take it again; any other thread gets an error."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()
        self._user = ""

    @contextlib.contextmanager
    def using(self, what: str) -> Iterator[None]:
        """Hold the lock in a block. Raises FastESError if another thread holds it. what: the called method, as 'learn()'."""
        if self._process != os.getpid():  # after a fork the other threads, and their locks, are the parent's
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
