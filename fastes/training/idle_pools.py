"""Limits how many models keep their workers: each of a long list of models would hold processes and memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

KEPT = 2  # models beside the one that begins: those that go by turns need not start workers each time
_turns = itertools.count()
_owners: dict[int, weakref.ref[PoolOwner]] = {}  # by id; each operation on it is atomic


class PoolOwner(Protocol):
    """Has a pool of its own, which can be ended and starts anew when it is needed.

    in_use: held while its pool works, and while it is ended.
    uses: nested uses of its pool at this moment, all in the thread that holds `in_use`.
    last_turn: grows with each use.
    """

    in_use: threading.RLock
    uses: int
    last_turn: int

    @property
    def has_pool(self) -> bool: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def used(owner: PoolOwner) -> Iterator[None]:
    """Mark the owner's pool as in use within the block."""
    with owner.in_use:
        owner.last_turn = next(_turns)
        _owners[id(owner)] = weakref.ref(owner)
        owner.uses += 1
        try:
            yield
        finally:
            owner.uses -= 1


def end_idle(owner: PoolOwner) -> None:
    """End the idle pools of other owners, except the KEPT last used ones. Called before this owner starts its pool."""
    others = []
    for key, ref in list(_owners.items()):
        if (other := ref()) is None:
            if _owners.get(key) is ref:  # no other object has its number now
                del _owners[key]
        elif other is not owner and other.has_pool:
            others.append(other)
    for other in sorted(others, key=lambda each: each.last_turn)[:-KEPT]:
        if other.in_use.acquire(blocking=False):
            try:
                if not other.uses:  # a callback of it may have begun another model's work
                    other.close()
            finally:
                other.in_use.release()


def _forget_locks() -> None:
    """Replace the locks in a forked copy: a thread that it does not have may hold them."""
    for ref in list(_owners.values()):
        if (owner := ref()) is not None:
            owner.in_use = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
