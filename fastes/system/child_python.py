"""Another Python process that imports the same modules as this one."""

from __future__ import annotations

import os
import subprocess
import sys


def python_command(code: str, *arguments: str) -> list[str]:
    """Return the command of a process that runs code with this one's import path and flags, such as -O and -W.

    Args:
        code: May use `sys`, which is imported before.
        arguments: The process's sys.argv[1:].
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    path = [os.fspath(entry) for entry in sys.path]
    return [sys.executable, *flags, "-c", f"import sys; sys.path[:] = {path!r}\n{code}", *arguments]
