"""Standard descriptors that are closed, as after `fastes train <&- >&- 2>&-`."""

from __future__ import annotations

import contextlib
import os
import sys


def fill_standard_descriptors() -> None:
    """Open 0, 1 and 2 on /dev/null where they are closed. Call it before anything is opened that others must not write into.

    A new descriptor is the lowest free one. So a checkpoint, a socket or shared memory would become 1 or 2, and whatever a C
    library prints would go there. With these three taken, no other place has to know of it, nor do libraries that open files.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):  # no /dev/null, or no descriptor left
                opened = os.open(os.devnull, os.O_RDWR)
                if opened == number:
                    os.set_inheritable(opened, True)
                else:  # another thread was quicker
                    os.close(opened)


def give_standard_files() -> None:
    """sys.stdout and sys.stderr for a program that was started without: Python has None there, and prints errors to stdout."""
    fill_standard_descriptors()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
