"""Offers of jobs: bytes in a pipe that workers share. Each lets one worker that sleeps look for jobs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select

_ROOM = 4096  # bytes, if the system allows it: each that nobody needs costs a look in vain


class Offers:
    """The parent's side of the pipe.

    Attributes:
        fd: The end that workers read.
    """

    def __init__(self) -> None:
        self.fd, self._our_end = os.pipe()
        for end in (self.fd, self._our_end):
            os.set_blocking(end, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._our_end, fcntl.F_SETPIPE_SZ, _ROOM)

    def wake(self, count: int) -> None:
        """Wake this many sleeping workers, or all. One that does not sleep looks for jobs before it does."""
        if count:
            with contextlib.suppress(BlockingIOError):  # it is full: enough to wake all
                os.write(self._our_end, b"." * count)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._our_end)


class Sleep:
    """A worker's side of the pipe.

    Args:
        fd: The end that workers read.
        line: The descriptor of its connection to the parent, which sends nothing on it.
    """

    def __init__(self, fd: int, line: int) -> None:
        self._fd, self._poll = fd, select.poll()
        self._poll.register(fd, select.POLLIN)
        self._poll.register(line, select.POLLIN)

    def until_offer(self) -> bool:
        """Sleep until there are jobs to look for. Returns False if the parent has hung up instead."""
        while all(fd == self._fd for fd, _ in self._poll.poll()):
            with contextlib.suppress(BlockingIOError):  # another worker has read it
                return bool(os.read(self._fd, 1))
        return False
