"""What a terminal shows of a command: a pseudo-terminal, and an emulator that reads it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pyte

BAR = re.compile(r"\d+%.* \[\d\d:\d\d<")  # a progress bar, whole or cut


class Terminal:
    """So many columns wide, and as high as all that is written to it."""

    def __init__(self, columns: int, lines: int = 1000) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.ByteStream(self.screen)
        self.columns = columns

    def feed(self, data: bytes) -> None:
        self._stream.feed(data)

    def lines(self) -> list[str]:
        """What is on it, without empty lines at the end."""
        written = range(max(self.screen.buffer, default=0) + 1)  # `screen.display` takes as long as all that may be written
        lines = ("".join(self.screen.buffer[y][x].data for x in range(self.columns)).rstrip() for y in written)
        return "\n".join(lines).rstrip().split("\n")


def shown(command: list[str], columns: int, cwd: Path, env: dict[str, str], look: Callable[[list[str]], None]) -> list[str]:
    """The lines that a terminal shows once a command has ended. look: is given those after each write."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
    terminal = Terminal(columns)
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # EIO: nobody has the other end any more
                break
            if not data:
                break
            terminal.feed(data)
            look(terminal.lines())
        os.close(ours)
        assert process.wait(60) == 0, "\n".join(terminal.lines())
    return terminal.lines()
