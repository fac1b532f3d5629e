"""Forked copies of this process must neither use nor end the things that belong to the process itself."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from types import TracebackType
from typing import NoReturn, Protocol
from weakref import WeakSet


class Owner(Protocol):
    """An object with things that two processes cannot share: other processes, sockets, memory, environments."""

    def reset_after_fork(self) -> None:
        """Drop them in a forked copy, without a message to their other ends. They are made again when they are needed."""


_owners: WeakSet[Owner] = WeakSet()
_left: list[object] = []
END_OF_COPY = "fastes: a process that"  # the beginning of the message of `end_copy`


def register_for_forks(owner: Owner) -> None:
    """Let forked copies of this process call owner.reset_after_fork() before anything else."""
    _owners.add(owner)


def never_finalise(*left: object) -> None:
    """Keep references to the parent's things in a copy: their finalisers might end things that the parent uses."""
    _left.extend(left)


class CopiesEndHere:
    """A block in which the user's code runs. A process that the code forks ends when it leaves the block.

    Processes of multiprocessing and subprocess end, or become another program, inside. Any other would play the same episodes
    once more, and answer instead of the process of which it is a copy.

    Args:
        what: The user's code, in words.
    """

    __slots__ = ("_pid", "what")

    def __init__(self, what: str) -> None:
        self.what, self._pid = what, 0

    def __enter__(self) -> CopiesEndHere:
        self._pid = os.getpid()
        return self

    def check(self) -> None:
        """End this process if it is a copy that was forked in the block: between two calls of the user's code."""
        if os.getpid() != self._pid:
            end_copy(self.what)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            end_copy(self.what, error)


def end_copy(what: str, error: BaseException | None = None) -> NoReturn:
    """End this process, a forked copy, with one line on stderr; without handlers, finalisers and buffers, which are copies.

    Args:
        what: The user's code that has forked it, in words.
        error: The exception that the code has raised. SystemExit gives the exit status, without a line.
    """
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    with contextlib.suppress(BaseException):
        if error is not None:
            traceback.print_exception(error)
        how = "returned" if error is None else f"raised {type(error).__name__}"
        print(
            f"{END_OF_COPY} {what} has forked {how} while the process that forked it continues; it was ended. Let the forked "
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
