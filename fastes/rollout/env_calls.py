"""Calls that change a training's environments: kept in order, sent to every process, and repeated on each new environment."""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import cloudpickle
import gymnasium
import numpy as np

from fastes.envs.closing import close_env
from fastes.envs.layers import layers
from fastes.errors import summary_of

Env = gymnasium.Env[Any, Any]
SET_ATTR, ENV_METHOD, SET_OPTIONS = "set_attr", "env_method", "set_options"
FORGET = "forget_calls"  # environments are rebuilt, without the calls before
LEFT_OUT = "left out"  # a call that a checkpoint could not hold: it is not made, and its name describes it
IN_PYTHON = "in Python"  # no call: from here on nothing plays in C, as a comparison has found a difference
_WITHOUT_ARGUMENTS = (FORGET, LEFT_OUT, IN_PYTHON)
_DTYPE = "numpy_dtype"  # key of an object that stands for a number
_NUMBERS = {kind.__name__.rstrip("_"): kind for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)}
_MOST_BYTES = 2 << 20  # of all calls in a checkpoint, which has room for 4 MiB of values
_MOST_OF_ONE = 1 << 16  # bytes of a call in a checkpoint that has no room for all of them otherwise
_LONGEST, _NAMED = 200, 9  # characters of a call in a message, and arguments
_HEAD = 16  # bytes before a record: the number of the record before it, and its size


class EnvCall(NamedTuple):
    """A call that is made on every environment.

    Attributes:
        kind: SET_ATTR, ENV_METHOD, SET_OPTIONS, FORGET, LEFT_OUT or IN_PYTHON.
        name: The attribute or method.
        arguments: (args, kwargs), pickled when the call was recorded, so that later changes to them have no effect.
    """

    kind: str
    name: str
    arguments: bytes

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Unpickle the arguments: each environment gets a copy of its own."""
        return cloudpickle.loads(self.arguments)  # type: ignore[no-any-return]

    def in_words(self) -> str:
        """Return the call as it would be written in Python; ... stands for the rest of a long one."""
        if self.kind in _WITHOUT_ARGUMENTS:
            return self.name
        args, kwargs = self.given()
        first = [reprlib.repr(value) for value in args[:_NAMED]] + ["..."] * (len(args) > _NAMED)
        shown = [*first, *(f"{key}={reprlib.repr(value)}" for key, value in kwargs.items())]
        text = f"{self.kind}({', '.join([repr(self.name), *shown] if self.name else shown)})"
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...)"

    def to_json(self, most: int = _MOST_BYTES) -> dict[str, Any]:
        """Return the call for a checkpoint.

        Its text stands for a private name, and for arguments that JSON cannot hold or that take more bytes than `most`.
        """
        if self.kind not in _WITHOUT_ARGUMENTS:
            if len(self.arguments) <= most and (self.kind == SET_OPTIONS or _is_public(self.name)):
                args, kwargs = self.given()
                written = [_as_json(list(args)), _as_json(kwargs)]
                if all(map(_is_plain, written)):
                    return {"kind": self.kind, "name": self.name, "args": written[0], "kwargs": written[1]}
            return {"kind": LEFT_OUT, "name": self.in_words(), "args": [], "kwargs": {}}
        return {"kind": self.kind, "name": self.name, "args": [], "kwargs": {}}

    @classmethod
    def from_json(cls, record: object) -> EnvCall:
        """Read a call that `to_json` wrote.

        Raises:
            ValueError: For anything else.
        """
        if not isinstance(record, dict) or set(record) != {"kind", "name", "args", "kwargs"}:
            raise ValueError("it is not a record of a call")
        kind, name, args, kwargs = record["kind"], record["name"], record["args"], record["kwargs"]
        if not isinstance(kind, str) or kind not in (SET_ATTR, ENV_METHOD, SET_OPTIONS, *_WITHOUT_ARGUMENTS):
            raise ValueError("its kind is unknown")
        if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError("its name or its arguments are of the wrong type")
        if kind in (SET_ATTR, ENV_METHOD) and not _is_public(name):
            raise ValueError(f"{name[:50]!r} is not a name of an attribute or method that others may use")
        if not all(map(_is_plain, (*args, *kwargs.values()))):
            raise ValueError("its arguments are not numbers, flags and plain words alone, and may name code or a file")
        many = {SET_ATTR: len(args) == 1, ENV_METHOD: True, SET_OPTIONS: len(args) == 1 and _are_options(args[0])}
        if not many.get(kind, not args) or (kwargs and kind != ENV_METHOD):
            raise ValueError("it has other arguments than such a call")
        return cls(kind, name, cloudpickle.dumps((tuple(map(_from_json, args)), _from_json(kwargs))))


LEAVE_C = EnvCall(IN_PYTHON, IN_PYTHON, cloudpickle.dumps(((), {})))


def _is_public(name: str) -> bool:
    """Whether a file may name an attribute or a method: others may set or call it."""
    return name.isidentifier() and not name.startswith("_")


def _are_options(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _as_json(value: Any) -> Any:
    """Return a value for JSON. A number of NumPy keeps its dtype, which decides that of what is calculated with it."""
    if type(value) in _NUMBERS.values():
        return {_DTYPE: value.dtype.name, "value": value.item()}
    if type(value) is list:
        return [_as_json(each) for each in value]
    if type(value) is dict:
        return {key: _as_json(each) for key, each in value.items()} if _DTYPE not in value else object()  # no plain value
    return value


def _from_json(value: Any) -> Any:
    """Return the value of `_as_json`. Raises ValueError for a number of another dtype."""
    if type(value) is list:
        return [_from_json(each) for each in value]
    if type(value) is not dict:
        return value
    if _DTYPE not in value:
        return {key: _from_json(each) for key, each in value.items()}
    number: Any = value.get("value")
    if set(value) != {_DTYPE, "value"} or value[_DTYPE] not in _NUMBERS or type(number) not in (bool, int, float):
        raise ValueError(f"{reprlib.repr(value)} is not a number of NumPy")
    return _NUMBERS[value[_DTYPE]](number)


def _is_plain(value: Any) -> bool:
    """Whether JSON returns exactly this value, made of numbers, flags and plain words: no path, module or command."""
    if type(value) is str:
        return re.fullmatch(r"[\w-]{0,64}", value) is not None
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, (*value, *value.values())))
    if type(value) is int:
        return abs(value) < 2**63
    return value is None or type(value) is bool


class EnvCalls:
    """The calls of a training, in order. Calls are only added, so their number identifies an earlier state."""

    def __init__(self, made: Sequence[EnvCall] = ()) -> None:
        self._calls = list(made)
        self._sent = len(made)  # calls that environments may already have been given
        self._made: tuple[EnvCall, ...] = ()  # the calls as they were handed out last

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def made(self) -> tuple[EnvCall, ...]:
        """All calls; the same tuple until the next call. A callback may make one at each step."""
        calls, made = self._calls, self._made
        if len(made) != len(calls) or (calls and made[-1] is not calls[-1]):  # another thread may read them meanwhile
            self._made = made = tuple(calls)
        return made

    def record(self, kind: str, name: str, *args: Any, **kwargs: Any) -> None:
        """Add a call, which environments are given from the next request on.

        Raises:
            TypeError: If the arguments cannot be pickled.
        """
        try:
            call = EnvCall(kind, name, cloudpickle.dumps((args, kwargs)))
            call.given()
        except Exception as error:
            raise TypeError(
                f"{kind}({name!r}, ...) cannot be sent to the environments of workers: {summary_of(error)}"
            ) from error
        if kind == SET_ATTR and len(self) > self._sent and self._calls[-1][:2] == call[:2]:  # nothing was played in between
            self._calls[-1] = call
        else:
            self._calls.append(call)

    @property
    def in_python(self) -> bool:
        """Whether nothing plays in C any more."""
        return has_left_c(self.made)

    def leave_c(self) -> None:
        """Let nothing play in C from the next request on."""
        if not self.in_python:
            self._calls.append(LEAVE_C)

    def sent(self, count: int | None = None) -> tuple[EnvCall, ...]:
        """Return the calls for the next request: all of them, or the first `count`."""
        made = self.made
        self._sent = len(made)
        return made if count is None else made[:count]

    def restore(self, made: Sequence[EnvCall]) -> None:
        """Replace all calls."""
        self._calls, self._made, self._sent = list(made), (), len(made)

    def left_out(self) -> list[str]:
        """Return the texts of calls that the checkpoint could not hold and that were not forgotten since."""
        return [call.name for call in in_force(self.made) if call.kind == LEFT_OUT]


def in_force(calls: Sequence[EnvCall]) -> Sequence[EnvCall]:
    """Return the calls that a new environment needs: those after the last FORGET."""
    calls = [call for call in calls if call.kind != IN_PYTHON]
    kinds = [call.kind for call in calls]
    return calls[len(kinds) - kinds[::-1].index(FORGET) :] if FORGET in kinds else calls


def has_left_c(calls: Sequence[EnvCall]) -> bool:
    """Return whether nothing plays in C after these calls."""
    return any(call.kind == IN_PYTHON for call in calls)


class ResetOptions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes options to reset at the start of each episode."""

    def __init__(self, env: Env, options: dict[str, Any] | None = None) -> None:
        super().__init__(env)
        self._options = options  # private, so that set_attr and get_attr do not find it

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options={**self._options, **(options or {})} if self._options else options)


def make_call(env: Env, call: EnvCall) -> Env:
    """Make a call on an environment.

    An attribute is set in the outermost layer that has it, or in the innermost environment if none has it.

    Returns:
        The environment; options put a wrapper around it.

    Raises:
        ValueError: For any exception in the call, with the call's text.
    """
    if call.kind in (LEFT_OUT, IN_PYTHON):
        return env
    args, kwargs = call.given()
    try:
        if call.kind == SET_ATTR:
            setattr(_owner_of(env, call.name), call.name, args[0])
        elif call.kind == ENV_METHOD:
            env.get_wrapper_attr(call.name)(*args, **kwargs)
        else:
            for layer in layers(env):
                if isinstance(layer, ResetOptions):
                    layer._options = args[0]
                    return env
            env = ResetOptions(env, args[0])
    except Exception as error:
        raise ValueError(
            f"{call.in_words()} failed in the environment: {summary_of(error)}. Every environment is given the calls of "
            "model.get_env(); model.get_env().forget_calls() leaves all of them out"
        ) from error
    return env


def _owner_of(env: Env, name: str) -> Env:
    return next((layer for layer in layers(env) if name in vars(layer) or hasattr(type(layer), name)), env.unwrapped)


def made_on(env: Env, calls: Sequence[EnvCall]) -> Env:
    """Make all calls that are in force on a new environment, which is closed if one fails."""
    try:
        for call in in_force(calls):
            env = make_call(env, call)
    except BaseException:
        close_env(env)
        raise
    return env


class CallRecords:
    """The calls of a pool's requests as a tree: each record has a number and the number of the record before it, 0 for none.

    The parent adds records and writes them to a file before a request that needs them can be claimed; its workers read them.
    """

    def __init__(self) -> None:
        self._records: list[tuple[int, EnvCall]] = []
        self._numbers: dict[tuple[int, EnvCall], int] = {}
        self._last: tuple[tuple[EnvCall, ...], int] = (), 0
        self._fd = -1
        self._at = 0

    def number(self, calls: tuple[EnvCall, ...]) -> int:
        """Return the number of the last of these calls. New calls are added."""
        known, number = self._last
        if calls is not known:
            if calls[: len(known)] != known:
                known, number = (), 0
            for call in calls[len(known) :]:
                key = number, call
                if key not in self._numbers:
                    self._records.append(key)
                    self._numbers[key] = len(self._records)
                    self._write(key)
                number = self._numbers[key]
            self._last = calls, number
        return number

    def write_to(self, fd: int, at: int) -> None:
        """Write all records, and each new one, to a file from byte `at` on."""
        self._fd, self._at = fd, at
        for record in self._records:
            self._write(record)

    def _write(self, record: tuple[int, EnvCall]) -> None:
        if self._fd < 0:
            return
        content = cloudpickle.dumps(record[1])
        left = record[0].to_bytes(8, "little") + len(content).to_bytes(8, "little") + content
        while left:
            written = os.pwrite(self._fd, left, self._at)
            left, self._at = left[written:], self._at + written

    def read_from(self, fd: int, at: int) -> None:
        """Read the records that the parent writes to this file from byte `at` on."""
        self._fd, self._at = fd, at

    def _read(self, last: int) -> None:
        """Read records up to this number; the parent may be writing a later one."""
        while len(self._records) < last:
            head = os.pread(self._fd, _HEAD, self._at)
            before, size = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
            self._records.append((before, cloudpickle.loads(os.pread(self._fd, size, self._at + _HEAD))))
            self._at += _HEAD + size

    def way(self, have: int, want: int) -> list[EnvCall] | None:
        """Return the calls that lead from one record to another; None if the second does not follow from the first."""
        self._read(want)
        found = []
        while want > have:
            before, call = self._records[want - 1]
            found.append(call)
            want = before
        return found[::-1] if want == have else None


def without_forgotten(calls: Sequence[EnvCall], needed: Collection[int]) -> tuple[tuple[EnvCall, ...], int]:
    """Return the calls without forgotten ones that no pending evaluation needs, and how many calls that removes.

    Args:
        calls: The calls.
        needed: How many of them each pending evaluation plays after.
    """
    least = min(filter(None, needed), default=len(calls))  # 0: that evaluation plays before any call
    kinds = [call.kind for call in calls[:least]]
    if FORGET not in kinds:
        return tuple(calls), 0
    at = len(kinds) - kinds[::-1].index(FORGET)
    kept = (*([LEAVE_C] if has_left_c(calls[:at]) else []), *calls[at:])
    return kept, len(calls) - len(kept)


def calls_to_json(calls: Sequence[EnvCall]) -> list[dict[str, Any]]:
    """Return calls for a checkpoint. If they are too long for one, texts stand for long ones, or else one for all of them."""
    for most in (_MOST_BYTES, _MOST_OF_ONE):
        if (records := _records_of(calls, most)) is not None:
            return records
    last = next(call for call in reversed(calls) if call.kind not in (FORGET, IN_PYTHON))
    told = f"{len(calls):,} calls, more than it has room for, the last one {last.in_words()}"
    in_python = [LEAVE_C] if has_left_c(calls) else []
    return [call.to_json() for call in (*in_python, EnvCall(LEFT_OUT, told, LEAVE_C.arguments))]


def _records_of(calls: Sequence[EnvCall], most: int) -> list[dict[str, Any]] | None:
    """Return calls for a checkpoint; None if they are too long for one. most: bytes of a call, see EnvCall.to_json."""
    records, room = list[dict[str, Any]](), _MOST_BYTES
    for call in calls:
        records.append(call.to_json(most))
        room -= len(json.dumps(records[-1], indent=1))
        if room < 0:
            return None
    return records


def calls_from_json(records: object) -> tuple[EnvCall, ...]:
    """Read calls that `calls_to_json` wrote.

    Raises:
        ValueError: For anything else.
    """
    if not isinstance(records, list):
        raise ValueError(f"{reprlib.repr(records)} is not a list of calls")
    return tuple(EnvCall.from_json(record) for record in records)
