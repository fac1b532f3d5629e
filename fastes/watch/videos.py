"""Videos of a run's best policy: drawn on demand by a child process, one at a time, in a folder that goes with the server."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastes.checkpoints.locate import RUN_FILES
from fastes.system.child_python import python_command

SECONDS = 20.0  # of a video
_PLAY = "from fastes.cli.main import main; sys.exit(main())"  # and not -m: a folder fastes may lie here
MOST_SECONDS = 180.0  # until one that is drawn is given up
_NICE = 10  # below trainings
_MOST_KEPT = 16
_MOST_WORDS = 500  # characters of an error
_ADVISED = re.compile(r"fastes play .* --env (\S+)$")  # what an error of the child says to type


class Video(NamedTuple):
    """A video, or the attempt at one.

    Attributes:
        of: (mtime in ns, size) of the checkpoint that was played.
        file: The mp4.
        process: The child that draws it; None once it has ended.
        error: Its last words if it failed.
        until: time.monotonic() at which it is given up.
    """

    of: tuple[int, int]
    file: Path
    process: subprocess.Popen[bytes] | None = None
    error: str = ""
    until: float = math.inf


def play_command(run: Path, file: Path, env: str = "") -> list[str]:
    """The command that draws a video. env: as of `fastes play --env`, '' for none."""
    arguments = ["play", str(run.absolute()), "--video", str(file), "--max-seconds", str(SECONDS)]
    return python_command(_PLAY, *arguments, *(["--env", env] if env else []))


class Videos:
    """The newest video of each run; any thread may ask.

    Args:
        command: Makes the command that draws a run's video into a file.
    """

    def __init__(self, command: Callable[[Path, Path], Sequence[str]] = play_command) -> None:
        self._command = command
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # made with the first video
        self._lock = threading.Lock()
        self._videos: dict[Path, Video] = {}
        self._number = 0

    def state_of(self, run: Path) -> dict[str, Any]:
        """Return the state of a run's video, as JSON values.

        `state` is "none", "drawing", "ready" or "failed", `newest` says whether it is of the run's present policy, `number`
        differs from that of earlier videos, `error` is what a failed attempt said, `has_policy` says whether there is
        something to draw, and `busy` whether another run's video is being drawn.
        """
        with self._lock:
            self._note_ended()
            video, policy = self._videos.get(run), _policy_of(run)
            is_busy = any(other.process for path, other in self._videos.items() if path != run)
            known = {
                "state": "none",
                "newest": False,
                "number": 0,
                "error": "",
                "has_policy": policy is not None,
                "busy": is_busy,
            }
            if video is None:
                return known
            state = "drawing" if video.process else "failed" if video.error else "ready"
            newest = video.of == policy
            return {**known, "state": state, "newest": newest, "number": int(video.file.stem), "error": video.error}

    def draw(self, run: Path) -> bool:
        """Begin to draw a video of a run's present policy; False if there is none, or if another video is being drawn.

        Raises:
            OSError: There is no place for temporary files, or no process can be begun.
        """
        with self._lock:
            self._note_ended()
            of = _policy_of(run)
            if of is None or any(video.process for video in self._videos.values()):
                return False
            self._number += 1
            file = self._place() / f"{self._number}.mp4"
            log = open(file.with_suffix(".log"), "wb")  # noqa: SIM115
            with log:
                process = subprocess.Popen(
                    self._command(run, file),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is the server's, which ends all that the child began
                )
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
            self._forget(run)
            self._videos[run] = Video(of, file, process, until=time.monotonic() + MOST_SECONDS)
            while len(self._videos) > _MOST_KEPT:
                self._forget(next(iter(self._videos)))
            return True

    def file_of(self, run: Path, number: int) -> Path | None:
        """The mp4 of a video that is ready."""
        with self._lock:
            self._note_ended()
            video = self._videos.get(run)
            is_ready = video is not None and video.process is None and not video.error and int(video.file.stem) == number
            return video.file if video is not None and is_ready else None

    def close(self) -> None:
        """End what is being drawn, and remove all videos."""
        with self._lock:
            for video in self._videos.values():
                if video.process is not None:
                    _end(video.process)
            self._videos.clear()
            if self._folder is not None:
                self._folder.cleanup()

    def _place(self) -> Path:
        """Return the folder of the videos, which may have been cleaned up."""
        if self._folder is not None and not os.path.isdir(self._folder.name):
            self._folder.cleanup()
            self._folder = None
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="fastes-watch-")
        return Path(self._folder.name)

    def _note_ended(self) -> None:
        for run, video in list(self._videos.items()):
            if video.process is None and not video.error and not video.file.is_file():  # somebody has cleaned up
                del self._videos[run]
            elif video.process is not None and time.monotonic() > video.until:
                _end(video.process)
                error = f"it was not done after {MOST_SECONDS:.0f} s"
                self._videos[run] = video._replace(process=None, error=error)
            elif video.process is not None and (status := video.process.poll()) is not None:
                error = "" if status == 0 and video.file.is_file() else _last_words(video.file.with_suffix(".log"), status)
                self._videos[run] = video._replace(process=None, error=error)

    def _forget(self, run: Path) -> None:
        video = self._videos.pop(run, None)
        if video is not None:
            for file in (video.file, video.file.with_suffix(".log")):
                file.unlink(missing_ok=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a child and all processes that it began, and wait for it."""
    with contextlib.suppress(OSError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _policy_of(run: Path) -> tuple[int, int] | None:
    """(mtime in ns, size) of the checkpoint that `fastes play` takes; None without one."""
    for name in RUN_FILES:
        with contextlib.suppress(OSError):
            found = (run / name).stat()
            return found.st_mtime_ns, found.st_size
    return None


def _last_words(log: Path, status: int) -> str:
    """Return the last line that a failed command wrote. If that advises --env, it says how to start the page with it."""
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-10_000:].decode(errors="replace").strip().splitlines()
        if lines:
            return _ADVISED.sub(r"fastes watch --env \1", lines[-1])[-_MOST_WORDS:]
    return f"it ended with status {status} and said nothing"
