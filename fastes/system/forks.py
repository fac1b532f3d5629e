"""Forked copies of this process: what belongs to the one that made it, and a copy must neither use nor end."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from types import TracebackType
from typing import NoReturn, Protocol
from weakref import WeakSet


class Owner(Protocol):
    """Holds what two processes cannot share: other processes, sockets, memory, environments."""

    def reset_after_fork(self) -> None:
        """In a forked copy: let go of it, without a word to whoever is at its other end; it is made anew when it is needed."""


_owners: WeakSet[Owner] = WeakSet()
_left: list[object] = []
TOLD = "fastes: a process that"  # how what `end_copy` says begins


def tell_of_forks(owner: Owner) -> None:
    """Forked copies of this process call owner.reset_after_fork() before anything else."""
    _owners.add(owner)


def keep_unused(*left: object) -> None:
    """Hold on to the parent's things in a copy: their finalisers might end what the parent goes on using."""
    _left.extend(left)


class CopiesEndHere:
    """A block in which the user's code runs. A process that it forks ends where it leaves the block, and not before.

    Processes of multiprocessing and subprocess end, or become another program, inside. Any other would play the same episodes
    once more, and answer in the place of the process that it is a copy of.

    what: the user's code, in words.
    """

    __slots__ = ("_pid", "what")

    def __init__(self, what: str) -> None:
        self.what, self._pid = what, 0

    def __enter__(self) -> CopiesEndHere:
        self._pid = os.getpid()
        return self

    def check(self) -> None:
        """End this process where it is a copy that was forked in the block: between two calls of the user's code."""
        if os.getpid() != self._pid:
            end_copy(self.what)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            end_copy(self.what, error)


def end_copy(what: str, error: BaseException | None = None) -> NoReturn:
    """End this process, which `what` has forked, with one line on stderr; without handlers, finalisers and buffers.

    These are copies of the other process's. error: what it has raised. SystemExit says how to end, and without a line.
    """
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    with contextlib.suppress(BaseException):
        if error is not None:
            traceback.print_exception(error)
        how = "returned" if error is None else f"raised {type(error).__name__}"
        print(
            f"{TOLD} {what} has forked {how} where the process that forked it goes on; it was ended. Let the forked "
            "process end by os._exit, or use multiprocessing or subprocess",
            file=sys.stderr,
            flush=True,
        )
    os._exit(0 if error is None else 1)


def _in_a_copy() -> None:
    for owner in list(_owners):
        owner.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_copy)
