"""Starting Python in a process of its own, and looking at processes through /proc."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

TESTS = Path(__file__).parent
COMMAND = Path(sys.executable).parent / "fastes"


def sent_by_value(module: str) -> None:
    """Let workers get a module's classes without importing it: with pytest, or all of fastes, their start takes twice as long.

    Args:
        module: Its `__name__`. None whose tests are about what workers import, or what was changed on a class.
    """
    cloudpickle.register_pickle_by_value(sys.modules[module])


def environment() -> dict[str, str]:
    """This process's environment, with its import path."""
    path = os.pathsep.join(p for p in (*sys.path, str(TESTS)) if p)
    return {**os.environ, "PYTHONPATH": path, "SDL_VIDEODRIVER": "dummy", "PYTHONUNBUFFERED": "1"}


def run_script(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code as a script, a file of its own, in folder."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, str(script), *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120
    )


@contextlib.contextmanager
def started_script(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A script that runs in a process group of its own; it is killed at the end."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt_twice(process: subprocess.Popen[str], marker: Path) -> str:
    """Send two Ctrl-C once an episode hangs, which has made the marker. Returns stderr after the first one's message."""
    assert process.stderr is not None
    wait_until(marker.exists, "an episode hangs")
    process.send_signal(signal.SIGINT)
    lines = iter(process.stderr.readline, "")
    assert any("again to stop at once" in line for line in lines)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)[1]


def second_process_fails() -> Callable[..., Any]:
    """A subprocess.Popen whose second call finds that there may be no more processes."""
    popen, calls = subprocess.Popen, 0

    def failing(*arguments: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return popen(*arguments, **kwargs)

    return failing


def fastes_command() -> list[str]:
    """The installed `fastes` command."""
    return [sys.executable, str(COMMAND)] if COMMAND.exists() else [sys.executable, "-m", "fastes"]


def run_fastes(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*fastes_command(), *arguments], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120
    )


def children(pid: int | None = None) -> list[int]:
    """Process ids of the live children of a process; of this one by default."""
    wanted, found = pid or os.getpid(), []
    if wanted == os.getpid() and not has_children():
        return []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            state, parent = _stat(int(entry))
            if parent == wanted and state != "Z":
                found.append(int(entry))
    return found


def has_children() -> bool:
    """Whether this process has any, ended ones among them: to look through /proc takes milliseconds, and each test does."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def alive(pid: int) -> bool:
    return _stat(pid)[0] not in ("", "Z", "X")


def _stat(pid: int) -> tuple[str, int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", -1
    return fields[0], int(fields[1])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Return once condition() holds; a generous limit turns a hang into a failure."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.01)
