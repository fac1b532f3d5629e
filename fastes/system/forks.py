"""Forked copies of this process: what belongs to the one that made it, and a copy must neither use nor end."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Owner(Protocol):
    """Holds what two processes cannot share: other processes, sockets, memory, environments."""

    def leave_to_parent(self) -> None:
        """In a forked copy: let go of it, without a word to whoever is at its other end; it is made anew when it is needed."""


_owners: WeakSet[Owner] = WeakSet()
_left: list[object] = []


def tell_of_forks(owner: Owner) -> None:
    """Forked copies of this process call owner.leave_to_parent() before anything else."""
    _owners.add(owner)


def keep_unused(*left: object) -> None:
    """Hold on to the parent's things in a copy: their finalisers might end what the parent goes on using."""
    _left.extend(left)


def _in_a_copy() -> None:
    for owner in list(_owners):
        owner.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_copy)
