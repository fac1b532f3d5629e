"""Closes the environments of pools that are still open when the interpreter ends."""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import Protocol
from weakref import WeakKeyDictionary


class _Closable(Protocol):
    def close(self) -> None: ...


_owners: WeakKeyDictionary[_Closable, int] = WeakKeyDictionary()  # pool -> the process that made it: a fork has no say


def close_at_exit(pool: _Closable) -> None:
    """Close it when this process's interpreter ends, unless it is gone by then. Closing twice has to do no harm."""
    _owners[pool] = os.getpid()


@atexit.register
def _close_all() -> None:
    for pool, pid in list(_owners.items()):
        if pid == os.getpid():
            with contextlib.suppress(Exception):
                pool.close()
