"""Console output that is worth less than a training: a full disk or a reader that went away ends nothing."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from fastes.system.forks import tell_of_forks

_COMMAND = re.compile(r"(?<=: )(?:fastes|pip) .*$")


class Lasting:
    """A text stream whose failures are kept and not raised; characters that it cannot encode are escaped.

    On a terminal that has a BottomLine, text goes above that line.

    lost: why something could not be written, the empty string as long as everything could.
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
        except (OSError, ValueError, RuntimeError) as error:  # a file that is closed; a signal's handler in another write
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            if self.stream is not None:
                self.stream.flush()
        except (OSError, ValueError, RuntimeError) as error:
            self._lose(error)

    def isatty(self) -> bool:
        try:
            return self.stream is not None and self.stream.isatty()
        except (OSError, ValueError):
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


class Result(Lasting):
    """A text stream that takes the result of a command: what cannot be written is an error in words."""

    def write(self, text: str) -> int:
        if self.stream is None:
            self.lost = "stdout is closed: there is nowhere to write the result to"
            raise OSError(self.lost)
        return super().write(text)

    def _lose(self, error: Exception) -> None:
        super()._lose(error)
        raise OSError(self.lost)


class BottomLine:
    """The last line of a terminal, which is written again and again; what else this process writes there goes above it.

    stream: of the terminal.

    A text that has no line end yet has the last line to itself: the bottom line waits for its end.
    """

    shown: BottomLine | None = None  # a terminal has one bottom

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._width = lasting(stream), "", 0
        self._is_busy = False  # with a text of others that has not ended
        self._lock = threading.RLock()  # a signal's handler may print in the middle of a write
        tell_of_forks(self)

    @property
    def columns(self) -> int:
        """That a text may have."""
        return columns_of(self._stream) - 1  # the last one would move the cursor to the next line

    def show(self, text: str) -> None:
        """Put text, of one line, in the place of the text before."""
        with self._lock:
            BottomLine.shown, self._text = self, text
            if not self._is_busy:
                self._draw(text)

    def end(self, stays: bool) -> None:
        """What is written from now on comes below what is shown, or in its place. stays: which."""
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
        """The line is empty while another text is written, and shown again once that ends."""
        with self._lock:
            if self._width:
                self._draw("")
            yield
            if text:
                self._is_busy = not text.endswith("\n")
            if self._text and not self._is_busy and BottomLine.shown is self:
                self._draw(self._text)

    def _draw(self, text: str) -> None:
        """Over what is there. Spaces clear the rest: not every terminal knows an escape sequence for that.

        The cursor waits at its beginning: what the terminal itself shows there, such as ^C, is written over.
        """
        text = text[: self.columns]
        self._stream.put(f"\r{text.ljust(min(self._width, self.columns))}\r")
        self._stream.flush()
        self._width = len(text)

    def reset_after_fork(self) -> None:
        """See forks.Owner: two processes would write over each other."""
        BottomLine.shown = None


def columns_of(terminal: TextIO) -> int:
    """How wide it is; 80 where it does not tell."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def say(text: str, file: TextIO | None = None) -> None:
    """Print sentences. file: None for sys.stdout."""
    stream = file or sys.stdout
    print(fitted(text, stream), file=stream)


def fitted(text: str, stream: TextIO | None) -> str:
    """Text as a stream is to have it: on a terminal lines that are too long are broken between words.

    A command at the end of a line stays whole, for copying.
    """
    terminal = lasting(stream)
    if not terminal.isatty():
        return text
    columns = columns_of(terminal)
    return "\n".join(line if len(line) <= columns else _broken(line, columns) for line in text.split("\n"))


def _broken(line: str, columns: int) -> str:
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(whole, columns, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def lasting(stream: Any) -> Any:
    """The stream, or one for it that survives its failures."""
    return stream if isinstance(stream, Lasting) else Lasting(stream)


@contextlib.contextmanager
def output_lasts() -> Iterator[None]:
    """sys.stdout and sys.stderr survive their failures meanwhile, whoever writes to them."""
    before, ours = (sys.stdout, sys.stderr), (lasting(sys.stdout), lasting(sys.stderr))
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:  # another one that was put there meanwhile stays
        sys.stdout = before[0] if sys.stdout is ours[0] else sys.stdout
        sys.stderr = before[1] if sys.stderr is ours[1] else sys.stderr


@contextlib.contextmanager
def output_is_the_result() -> Iterator[None]:
    """OSError when something cannot be written to sys.stdout."""
    before = sys.stdout
    stream = before.stream if isinstance(before, Lasting) else before
    result = Result(stream)
    sys.stdout = result
    try:
        yield
        _check(result)
    except SystemExit:  # argparse has printed what was asked for
        _check(result)
        raise
    finally:
        sys.stdout = before


def _check(result: Result) -> None:
    result.flush()
    if result.lost:  # somebody has caught it
        raise OSError(result.lost)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: its output is seen, though no stream of it is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config


def losses() -> list[str]:
    """What could not be written to sys.stdout and sys.stderr, in words."""
    return [stream.lost for stream in (sys.stdout, sys.stderr) if isinstance(stream, Lasting) and stream.lost]


def let_go() -> None:
    """What the process's streams could not write is dropped: the interpreter would complain of it when it ends."""
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
