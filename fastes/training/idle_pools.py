"""Which models' workers stay while others work: in a long list of models each would hold processes and memory."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

KEPT = 2  # models beside the one that begins: those that go by turns need not start workers each time
_lock = threading.RLock()
_owners: list[weakref.ref[PoolOwner]] = []  # that have a pool, or had; who used it last is last


class PoolOwner(Protocol):
    """Who has a pool of its own, which can be ended and starts anew when it is needed."""

    uses: int

    @property
    def has_pool(self) -> bool: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def used(owner: PoolOwner) -> Iterator[None]:
    """Meanwhile its pool is not idle."""
    with _lock:
        _owners[:] = [ref for ref in _owners if ref() not in (None, owner)]
        _owners.append(weakref.ref(owner))
        owner.uses += 1
    try:
        yield
    finally:
        with _lock:
            owner.uses -= 1


def end_idle(owner: PoolOwner) -> None:
    """Before this one's pool is started: end those of others that are idle, but for the last few."""
    with _lock:  # nobody begins to use one that is being ended
        others = [other for ref in _owners if (other := ref()) is not None and other is not owner and other.has_pool]
        for other in others[:-KEPT]:
            if not other.uses:
                other.close()


def _forget_lock() -> None:
    """Another thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
