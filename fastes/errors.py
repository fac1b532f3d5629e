"""Errors in words, and checks of integers and names."""

from __future__ import annotations

import contextlib
import difflib
import operator
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")


class FastESError(Exception):
    """Base of every error that FastES raises, except ValueError and TypeError."""


class WorkerError(FastESError):
    """An environment or a custom policy raised an exception; the message has its text, its place and the traceback.

    Attributes:
        __cause__: That exception; None if it could not be sent from a worker process.
        generation: Generation of the episode, as in progress.csv; 0 outside of any.
        job: Job of the episode; None while the environment was built.
        env_seed: Seed of the episode.
        trial: Trial of the episode, from 1; None if there are not several.
    """

    def __init__(
        self,
        message: str,
        generation: int = 0,
        job: int | None = None,
        env_seed: int | None = None,
        trial: int | None = None,
    ) -> None:
        super().__init__(message)
        self.generation, self.job, self.env_seed, self.trial = generation, job, env_seed, trial


class WorkerCrashed(WorkerError):
    """The process was lost three times with the same job, or at the start of a worker."""


class WorkerTimeout(WorkerCrashed):
    """As WorkerCrashed, and the last time because the environment did not return from a step or reset."""


class ClusterError(FastESError):
    """A cluster does not answer, has no node that can be used, or has lost all of them."""


class NotFinite(FastESError):
    """A generation has no finite return, or its step is not finite: the search cannot continue with these parameters."""


class NestedTraining(FastESError):
    """A worker was about to start workers, or to start a training while it imported a module."""


class CheckpointError(FastESError):
    """A checkpoint is missing, damaged, foreign, or made for something else."""


class CheckpointMismatch(CheckpointError, ValueError):
    """A whole checkpoint does not fit the environment, policy or settings that were passed with it."""


class FolderInUse(FastESError):
    """Another training writes to a run folder."""


class EnvironmentUnavailable(FastESError, ValueError):
    """An environment cannot be built (an unknown id, a package that is not installed), or belongs to another process."""


def blame_policy(error: Exception) -> None:
    """Note on an exception that a custom policy raised it and not the environment."""
    with contextlib.suppress(Exception):  # it may take no attributes
        error.fastes_origin = "policy"  # type: ignore[attr-defined]


def origin_of(error: Exception) -> str:
    """Return the origin of an exception in an episode: 'policy' or 'environment'."""
    return str(getattr(error, "fastes_origin", "environment"))


def suggest(name: object, choices: Iterable[str], key: Callable[[str], str] = str, likeness: float = 0.6) -> str:
    """Return '; did you mean X?' with the closest of choices, or the empty string.

    Args:
        name: The unknown name.
        choices: The names that there are.
        key: Returns the part of a name that is compared. A choice with the same part is the only one that is suggested.
        likeness: The least similarity of a choice, as difflib measures it, from 0 to 1.
    """
    asked, known = key(str(name)), {key(choice): choice for choice in choices}
    nearest = [asked] if asked in known else difflib.get_close_matches(asked, known, n=3, cutoff=likeness)
    close = [known[each] for each in nearest]
    return f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def summary_of(error: BaseException) -> str:
    """Return an exception's type and message; lone surrogates are escaped, so that the text can be written and sent."""
    try:
        said = str(error)
    except Exception as failed:
        said = f"(its text is unknown: str of it raises {type(failed).__name__})"
    return writable(f"{type(error).__name__}: {said}")


def trace_of(error: BaseException) -> str:
    """Return an exception's traceback as Python shows it, with lone surrogates escaped."""
    return writable("".join(traceback.format_exception(error)))


def frames_of(error: BaseException) -> str:
    """Return `trace_of` without its last line if that only repeats `summary_of`, which stands above it in messages."""
    trace, last = trace_of(error), [writable(line) for line in traceback.format_exception_only(error)]
    if len(last) == 1 and last[0].rstrip("\n").endswith(summary_of(error)) and trace.endswith(last[0]):
        return trace[: -len(last[0])].rstrip("\n")
    return trace


def place_outside(error: BaseException) -> str:
    """Return the file and line of the user's code that raised an exception, such as 'in own.py, line 3'; '' if it was none."""
    trace, found = error.__traceback__, ""
    while trace is not None:
        module, file = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0], trace.tb_frame.f_code.co_filename
        is_installed = module in _INSTALLED or module in sys.stdlib_module_names or f"{os.sep}site-packages{os.sep}" in file
        if not is_installed:
            found = f"in {os.path.basename(file)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    if not found and isinstance(error.__cause__, type(error)):  # Gymnasium raises an environment's TypeError anew
        return place_outside(error.__cause__)
    return found


def with_place(error: BaseException) -> str:
    """Return an exception's message; with its type and place if the user's own code raised it. FastES's own have theirs."""
    place = "" if isinstance(error, FastESError) else place_outside(error)
    return f"{summary_of(error)} ({place})" if place else str(error)


def writable(text: str) -> str:
    """Return a text with its lone surrogates escaped, which no encoding can write."""
    return text.encode("utf-8", "backslashreplace").decode()


_INSTALLED = ("fastes", "gymnasium", "numpy")  # also from a checkout
_INSIDE = ("fastes", "dataclasses", "contextlib")  # settings are checked when a dataclass is made


def _is_inside(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE


def warn_user(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn, at the line outside of FastES that led to the warning."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and _is_inside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def frame_outside() -> FrameType | None:
    """Return the frame of the code that called FastES; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inside(frame):
        frame = frame.f_back
    return frame


def listed(names: Sequence[str], word: str = "and") -> str:
    """Return 'a, b and c'; '' without names."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def first_few(names: Sequence[str], most: int = 4) -> str:
    """Return 'a, b and 3 more': at most that many names, and the number of further ones."""
    return f"{', '.join(names[:most])}{f' and {len(names) - most:,} more' if len(names) > most else ''}"


def shown(value: object, most: int = 200) -> str:
    """Return an argument for a message, without addresses of objects. most: the longest text, in characters."""
    text = _ADDRESS.sub("", repr(value))
    return text if len(text) <= most else f"{text[:most]}..."


def shorten(error: Exception) -> str:
    """Return an error's message without megabytes of a file that it quotes."""
    return f"{error!s:.500}"


def check_seed(seed: object) -> int:
    """Return a seed as an int from 0 to 2^63 - 1. Raises TypeError or ValueError."""
    return check_int("seed", seed, 0, 2**63 - 1)


def whole(value: object) -> object:
    """Return a whole float as an int, since scripts write 1e6; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_int(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return a value as an int from low to high. Raises TypeError, also for a bool, or ValueError."""
    try:
        if _is_bool(value):  # NumPy 2.0 takes its own for an index
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} = {shown(value)} is a {type(value).__name__}: expected an int") from None
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} = {number} is out of range: expected an int {limit}")
    return number


def _is_bool(value: object) -> bool:
    """Return whether a value is a bool of Python or NumPy, which is not imported for this."""
    return type(value).__name__ in ("bool", "bool_")


def check_flag(name: str, value: object) -> bool:
    """Return a bool of Python or NumPy, or 0 or 1, as a bool. Raises TypeError for anything else."""
    if isinstance(value, bool):
        return value
    with contextlib.suppress(TypeError):
        if _is_bool(value) or operator.index(value) in (0, 1):  # type: ignore[arg-type]
            return bool(value)
    raise TypeError(f"{name} = {value!r:.200} is a {type(value).__name__}: expected True or False")


def check_name(name: str, value: object) -> str:
    """Return a text as it is. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r:.200} is a {type(value).__name__}: expected a text")
    return value
