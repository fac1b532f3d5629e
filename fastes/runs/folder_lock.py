"""A lock on a folder, for one training at a time. The kernel lets go of it when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from fastes.errors import FolderInUse
from fastes.system.descriptors import fill_standard_descriptors
from fastes.system.forks import tell_of_forks


class FolderLock:
    """Held between `take` and `release`, by the folder's descriptor, which worker processes do not inherit.

    Where the file system has no locks for folders, as NFS, nobody is locked out.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = -1
        tell_of_forks(self)

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def take(self) -> None:
        """Raises FolderInUse when another training has it."""
        if self.held:
            return
        fill_standard_descriptors()
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # whoever needs the folder will say so
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        self._descriptor = descriptor

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


def _holder(inode: int) -> int:
    """The process that has a lock on this inode, 0 where nobody knows."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # 1: FLOCK ADVISORY WRITE pid major:minor:inode first last
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return max(0, int(fields[4]))
    return 0
