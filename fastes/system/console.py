"""The standard streams: closed ones are opened on /dev/null, and a full disk or a reader that has gone ends no training."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from fastes.system.forks import register_for_forks

_LEAST_ROOM = 20  # columns for a text beside a title
_TRACEBACK = "Traceback (most recent call last):"
_COMMAND = re.compile(r"(?<=: )(?:fastes|pip|apt-get) .*$")


def fill_standard_descriptors() -> None:
    """Open 0, 1 and 2 on /dev/null if they are closed, as after `fastes train <&- >&- 2>&-`.

    Call it before anything is opened. A new descriptor is the lowest free one: a checkpoint, a socket or shared memory would
    become 1 or 2, and everything that a C library prints would go there.
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
    """Open sys.stdin, sys.stdout and sys.stderr if they are None, as in a program that was started with them closed."""
    fill_standard_descriptors()
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


class TolerantStream:
    """A text stream whose failures are kept and not raised; characters that it cannot encode are escaped.

    On a terminal that has a BottomLine, text goes above that line.

    Attributes:
        lost: Why something could not be written; the empty string as long as everything could.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.lost = ""

    def write(self, text: str) -> int:
        if (line := BottomLine.shown) is not None and self.isatty():
            with line.made_way(text):
                self.put(text)
                self.flush()
            return len(text)
        return self.put(text)

    def put(self, text: str) -> int:
        """Write text where the cursor is."""
        try:
            if self.stream is not None:
                self._write(self.stream, text)
        except (OSError, ValueError, RuntimeError) as error:  # a closed file; a signal's handler in another write
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            if self.stream is not None:
                self.stream.flush()
        except AttributeError:  # a script's own stream may have `write` alone
            pass
        except (OSError, ValueError, RuntimeError) as error:
            self._lose(error)

    def isatty(self) -> bool:
        try:
            return self.stream is not None and self.stream.isatty()
        except (OSError, ValueError, AttributeError):  # a script's own stream may have `write` alone
            return False

    def fileno(self) -> int:
        if self.stream is None:
            raise OSError("stdout is closed")
        return self.stream.fileno()

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))

    def _lose(self, error: Exception) -> None:
        name = str(getattr(self.stream, "name", "the console")).strip("<>")
        self.lost = self.lost or f"{name} cannot be written ({getattr(error, 'strerror', None) or error})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__.get("stream"), name)


class Result(TolerantStream):
    """A text stream for the result of a command: OSError in words if it cannot be written.

    A reader that has gone, as `head` goes, has all that it wanted: the command continues without a word.
    """

    def write(self, text: str) -> int:
        if self.stream is None:
            self.lost = "stdout is closed: there is nowhere to write the result to"
            raise OSError(self.lost)
        return super().write(text)

    def _lose(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError):
            return
        super()._lose(error)
        raise OSError(self.lost)


class BottomLine:
    """The last line of a terminal, which is written again and again; other output of this process goes above it.

    A text without a line end keeps the last line for itself: the bottom line waits for its end.
    """

    shown: BottomLine | None = None  # a terminal has one bottom

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._width = tolerant(stream), "", 0
        self._is_busy = False  # with a text of others that has not ended
        self._lock = threading.RLock()  # a signal's handler may print in the middle of a write
        register_for_forks(self)

    @property
    def columns(self) -> int:
        """The number of columns that a text may have."""
        return columns_of(self._stream) - 1  # the last one would move the cursor to the next line

    def show(self, text: str) -> None:
        """Replace the line by a text of one line."""
        with self._lock:
            BottomLine.shown, self._text = self, text
            if not self._is_busy:
                self._draw(text)

    def end(self, stays: bool) -> None:
        """End the line. stays: whether it remains on the terminal, above later output."""
        with self._lock:
            BottomLine.shown = None
            if self._width and stays:
                self._stream.put("\n")
                self._stream.flush()
            elif self._width:
                self._draw("")
            self._text, self._width = "", 0

    @contextlib.contextmanager
    def made_way(self, text: str) -> Iterator[None]:
        """Clear the line while another text is written in the block, and show it again if that text has ended."""
        with self._lock:
            if self._width:
                self._draw("")
            yield
            if text:
                self._is_busy = not text.endswith("\n")
            if self._text and not self._is_busy and BottomLine.shown is self:
                self._draw(self._text)

    def _draw(self, text: str) -> None:
        """Write over the line. Spaces clear the rest: not every terminal knows an escape sequence for that.

        The cursor waits at its beginning, so that the line covers anything that the terminal shows, such as ^C.
        """
        text = text[: self.columns]
        self._stream.put(f"\r{text.ljust(min(self._width, self.columns))}\r")
        self._stream.flush()
        self._width = len(text)

    def reset_after_fork(self) -> None:
        """Show nothing in a forked copy: two processes would write over each other."""
        BottomLine.shown = None


def columns_of(terminal: TextIO) -> int:
    """Return the width of a terminal; 80 if it is unknown."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def say(text: str, file: TextIO | None = None) -> None:
    """Print sentences. file: None for sys.stdout."""
    stream = file or sys.stdout
    print(fitted(text, stream), file=stream)


def say_beside(title: str, text: str) -> None:
    """Print a title and a text to its right; on a terminal long lines of it are broken between words, and continue below it."""
    if sys.stdout.isatty():
        room = max(columns_of(sys.stdout) - len(title), _LEAST_ROOM)
        text = "\n".join(_broken(line, room) for line in text.split("\n")).replace("\n", f"\n{' ' * len(title)}")
    print(f"{title}{text}".rstrip())


def fitted(text: str, stream: TextIO | None) -> str:
    """Return text for a stream: on a terminal, long lines are broken between words.

    A command at the end of a line stays whole, for copying; so does a traceback, whose marks stand below its lines.
    """
    terminal = tolerant(stream)
    if not terminal.isatty():
        return text
    columns = columns_of(terminal)
    sentences, traceback, rest = text.partition(_TRACEBACK)
    lines = (line if len(line) <= columns else _broken(line, columns) for line in sentences.split("\n"))
    return "\n".join(lines) + traceback + rest


def _broken(line: str, columns: int) -> str:
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(whole, columns, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def tolerant(stream: Any) -> Any:
    """Return a stream that survives the failures of the given one."""
    return stream if isinstance(stream, TolerantStream) else TolerantStream(stream)


@contextlib.contextmanager
def output_errors_tolerated() -> Iterator[None]:
    """Let sys.stdout and sys.stderr survive their failures in the block."""
    before, ours = (sys.stdout, sys.stderr), (tolerant(sys.stdout), tolerant(sys.stderr))
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:  # a stream that was set meanwhile stays
        sys.stdout = before[0] if sys.stdout is ours[0] else sys.stdout
        sys.stderr = before[1] if sys.stderr is ours[1] else sys.stderr


@contextlib.contextmanager
def output_is_the_result() -> Iterator[None]:
    """Raise OSError if something cannot be written to sys.stdout in the block."""
    before = sys.stdout
    stream = before.stream if isinstance(before, TolerantStream) else before
    result = Result(stream)
    sys.stdout = result
    try:
        yield
        _check(result)
    except SystemExit:  # argparse has printed a help
        _check(result)
        raise
    finally:
        sys.stdout = before


def _check(result: Result) -> None:
    result.flush()
    if result.lost:  # the error was caught
        raise OSError(result.lost)


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel: users see its output, though no stream is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


def losses() -> list[str]:
    """Return why sys.stdout and sys.stderr could not be written, in words."""
    return [stream.lost for stream in (sys.stdout, sys.stderr) if isinstance(stream, TolerantStream) and stream.lost]


def drop_lost_output() -> None:
    """Drop text that the process's streams could not write: the interpreter would complain of it at exit."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
        except ValueError:  # it is closed
            pass
