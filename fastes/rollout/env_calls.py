"""Calls that change a training's environments: kept in order, sent to every process that plays, and made again in a new one."""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle
import gymnasium

from fastes.envs.closing import close_env
from fastes.envs.layers import layers
from fastes.errors import summary_of

Env = gymnasium.Env[Any, Any]
SET_ATTR, ENV_METHOD, SET_OPTIONS = "set_attr", "env_method", "set_options"
FORGET = "forget_calls"  # an environment is built anew, without the calls before
LEFT_OUT = "left out"  # a call that a checkpoint could not hold: it is not made, and its name says which it was
_HEAD = 16  # bytes before a record: the number of the one that it follows, and its size


class EnvCall(NamedTuple):
    """A call that every environment is given.

    kind: SET_ATTR, ENV_METHOD, SET_OPTIONS, FORGET or LEFT_OUT.
    name: of the attribute or method.
    arguments: (args, kwargs), pickled when the call was recorded: what is changed later changes nothing.
    """

    kind: str
    name: str
    arguments: bytes

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its arguments, a copy for each environment."""
        return cloudpickle.loads(self.arguments)  # type: ignore[no-any-return]

    def in_words(self) -> str:
        if self.kind in (LEFT_OUT, FORGET):
            return self.name
        args, kwargs = self.given()
        shown = [reprlib.repr(value) for value in args] + [f"{key}={reprlib.repr(value)}" for key, value in kwargs.items()]
        return f"{self.kind}({', '.join([repr(self.name), *shown] if self.name else shown)})"

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint, which holds plain JSON values, and of any other only which call it was."""
        if self.kind not in (LEFT_OUT, FORGET):
            args, kwargs = self.given()
            if all(map(_is_plain, (*args, *kwargs.values()))):
                return {"kind": self.kind, "name": self.name, "args": list(args), "kwargs": kwargs}
            return {"kind": LEFT_OUT, "name": self.in_words(), "args": [], "kwargs": {}}
        return {"kind": self.kind, "name": self.name, "args": [], "kwargs": {}}

    @classmethod
    def from_json(cls, record: object) -> EnvCall:
        """The call that `to_json` wrote; ValueError for anything else."""
        if not isinstance(record, dict) or set(record) != {"kind", "name", "args", "kwargs"}:
            raise ValueError("it is no record of a call")
        kind, name, args, kwargs = record["kind"], record["name"], record["args"], record["kwargs"]
        if not isinstance(kind, str) or kind not in (SET_ATTR, ENV_METHOD, SET_OPTIONS, FORGET, LEFT_OUT):
            raise ValueError("its kind is unknown")
        if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ValueError("its name or its arguments are of the wrong type")
        if kind in (SET_ATTR, ENV_METHOD) and (not name.isidentifier() or name.startswith("_")):
            raise ValueError(f"{name[:50]!r} is no name of an attribute or method that others may use")
        if not all(map(_is_plain, (*args, *kwargs.values()))):
            raise ValueError("its arguments are not numbers, flags and plain words alone, and may name code or a file")
        many = {SET_ATTR: len(args) == 1, ENV_METHOD: True, SET_OPTIONS: len(args) == 1 and _are_options(args[0])}
        if not many.get(kind, not args) or (kwargs and kind != ENV_METHOD):
            raise ValueError("it has other arguments than such a call")
        return cls(kind, name, cloudpickle.dumps((tuple(args), kwargs)))


def _are_options(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _is_plain(value: Any) -> bool:
    """Whether JSON gives exactly the same value back, and it is numbers, flags and words: no path, no module, no command."""
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
    """The calls of a training, in order. They only become more: what was made before is known by how many there were."""

    def __init__(self, made: Sequence[EnvCall] = ()) -> None:
        self.made = tuple(made)
        self._sent = len(self.made)  # environments may have been given so many

    def __len__(self) -> int:
        return len(self.made)

    def record(self, kind: str, name: str, *args: Any, **kwargs: Any) -> None:
        """From the next request on, environments are given it. TypeError for arguments that cannot be sent to processes."""
        try:
            call = EnvCall(kind, name, cloudpickle.dumps((args, kwargs)))
            call.given()
        except Exception as error:
            raise TypeError(
                f"{kind}({name!r}, ...) cannot be sent to the environments of workers: {summary_of(error)}"
            ) from error
        kept = self.made
        if kind == SET_ATTR and len(kept) > self._sent and kept[-1][:2] == call[:2]:  # nothing was played in between
            kept = kept[:-1]
        self.made = (*kept, call)

    def sent(self, count: int | None = None) -> tuple[EnvCall, ...]:
        """The calls that environments are given in the next request: all of them, or the first `count`."""
        self._sent = len(self.made)
        return self.made if count is None else self.made[:count]

    def restore(self, made: Sequence[EnvCall]) -> None:
        """Have these and no others."""
        self.made, self._sent = tuple(made), len(made)

    def left_out(self) -> list[str]:
        """In words: those that a checkpoint did not hold, and that were not forgotten since."""
        return [call.name for call in in_force(self.made) if call.kind == LEFT_OUT]


def in_force(calls: Sequence[EnvCall]) -> Sequence[EnvCall]:
    """The calls that a new environment has to be given."""
    kinds = [call.kind for call in calls]
    return calls[len(kinds) - kinds[::-1].index(FORGET) :] if FORGET in kinds else calls


class ResetOptions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins each episode with options, which the environment's reset knows."""

    def __init__(self, env: Env, options: dict[str, Any] | None = None) -> None:
        super().__init__(env)
        self._options = options  # no name that set_attr may mean, or get_attr

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options={**self._options, **(options or {})} if self._options else options)


def make_call(env: Env, call: EnvCall) -> Env:
    """Give an environment a call; returns the environment, which options put a wrapper around.

    An attribute is set in the outermost layer that has it, else in the innermost environment.

    Raises:
        ValueError: For any exception in the call, with the call's name.
    """
    if call.kind == LEFT_OUT:
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
    """A new environment after these calls; it is closed where one fails."""
    try:
        for call in in_force(calls):
            env = make_call(env, call)
    except BaseException:
        close_env(env)
        raise
    return env


class CallRecords:
    """The calls of a pool's requests, each with a number, and the number of the one that it follows: 0 is none.

    A parent adds to them, and writes them to a file that its workers read: before a request that has them can be claimed.
    """

    def __init__(self) -> None:
        self._records: list[tuple[int, EnvCall]] = []
        self._numbers: dict[tuple[int, EnvCall], int] = {}
        self._last: tuple[tuple[EnvCall, ...], int] = (), 0
        self._fd = -1
        self._at = 0

    def number(self, calls: tuple[EnvCall, ...]) -> int:
        """The number of the last of these calls. New ones are added."""
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
        """From now on to this file, from byte `at` on: those that there are, and each that comes."""
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
        """In a worker: where its parent writes them."""
        self._fd, self._at = fd, at

    def _read(self, last: int) -> None:
        """Up to that of this number; the parent may be writing a later one."""
        while len(self._records) < last:
            head = os.pread(self._fd, _HEAD, self._at)
            before, size = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
            self._records.append((before, cloudpickle.loads(os.pread(self._fd, size, self._at + _HEAD))))
            self._at += _HEAD + size

    def way(self, have: int, want: int) -> list[EnvCall] | None:
        """The calls that lead from one number to another; None if there is no such way."""
        self._read(want)
        found = []
        while want > have:
            before, call = self._records[want - 1]
            found.append(call)
            want = before
        return found[::-1] if want == have else None


def calls_to_json(calls: EnvCalls) -> list[dict[str, Any]]:
    """For a checkpoint."""
    return [call.to_json() for call in calls.made]


def calls_from_json(records: object) -> tuple[EnvCall, ...]:
    """The calls that `calls_to_json` wrote; ValueError for anything else."""
    if not isinstance(records, list):
        raise ValueError(f"{reprlib.repr(records)} is no list of calls")
    return tuple(EnvCall.from_json(record) for record in records)
