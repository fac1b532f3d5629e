"""The lock of a run folder: one training at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from fastes.errors import FolderInUse
from fastes.system.console import fill_standard_descriptors
from fastes.system.forks import register_for_forks

_GLANCE_SECONDS = 0.2  # `is_locked` has the lock for far less


class FolderLock:
    """A lock on a folder, for one training at a time. The kernel releases it when the process ends, however it ends.

    The folder's descriptor holds it between `take` and `release`; worker processes do not inherit that. A file system without
    locks for folders, such as NFS, locks nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = -1
        register_for_forks(self)

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def take(self) -> None:
        """Take the lock; FolderInUse if another training has it."""
        if self.held:
            return
        fill_standard_descriptors()
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # the first write to the folder will say so
            return
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            pid = _holder(os.fstat(descriptor).st_ino)
            os.close(descriptor)
            who = f" (process {pid})" if pid else ""
            raise FolderInUse(
                f"another training{who} uses {self.folder}: wait until it ends, or end it; two would mix their files"
            ) from error
        except OSError:  # a file system without locks
            os.close(descriptor)
            return
        except BaseException:  # Ctrl-C while it waits
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def check(self) -> None:
        """Raise OSError if the locked folder was moved or deleted: one that lies there now may be another training's."""
        if self.held and not os.path.samestat(os.fstat(self._descriptor), os.stat(self.folder)):
            raise OSError(errno.ESTALE, "another folder lies there: this training's own was moved or deleted", str(self.folder))

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def reset_after_fork(self) -> None:
        """See forks.Owner: the lock is the parent's until all have closed the descriptor, and a copy might outlive it."""
        self.release()

    def __del__(self) -> None:
        self.release()


def _lock(descriptor: int) -> None:
    """Lock a folder for this process alone; BlockingIOError if another process keeps its lock on it."""
    until = time.monotonic() + _GLANCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)


def is_locked(folder: Path) -> bool:
    """Tell whether a process has the lock on a folder, also if the system does not list it: on macOS, or outside a container.

    It takes a shared lock and gives it back at once. Others that ask get it, too, and `FolderLock.take` tries again.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a name with a null
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def holder_of(folder: Path) -> int:
    """Return the id of the process that trains in a folder, without touching its lock; 0 if none does, or it is not known."""
    try:
        return _holder(os.stat(folder).st_ino)
    except (OSError, ValueError):  # ValueError: a name with a null
        return 0


def _holder(inode: int) -> int:
    """Return the id of the process that has a lock on an inode; 0 if it is not known."""
    return holders().get(inode, 0)


def holders() -> dict[int, int]:
    """Return the id of the process that has a lock on each inode, without touching any; empty if the system does not tell."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # 1: FLOCK ADVISORY WRITE pid major:minor:inode first last
            if fields[1] == "FLOCK":
                found.setdefault(int(fields[5].rpartition(":")[2]), max(0, int(fields[4])))
    return found
