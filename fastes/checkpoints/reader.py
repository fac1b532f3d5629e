"""Checkpoint files of every version are read, and no code from them runs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from fastes.checkpoints import version_1
from fastes.checkpoints.file_format import DATA_MEMBER, FORMAT, RUN_FILES, Checkpoint
from fastes.checkpoints.locate import find_checkpoint
from fastes.errors import CheckpointError
from fastes.system.descriptors import fill_standard_descriptors

Read = Callable[[zipfile.ZipFile, IO[bytes], dict[str, Any]], Checkpoint]
READERS: Mapping[int, Read] = {1: version_1.read}  # format version -> what reads the rest of such a file
_MAX_DATA_BYTES = 4 << 20
_MAX_DEPTH = 64  # of nested JSON: what walks over it later recurses
_MAX_FILE_BYTES = (2 << 30) - 1  # more would need zip64
_END_RECORD, _ZIP64_LOCATOR = 22, 20  # bytes, without names and comments


def read_checkpoint(path: str | os.PathLike[str] | IO[bytes]) -> Checkpoint:
    """Read a checkpoint, or a binary file that is open, from its beginning.

    path: as `find_checkpoint` takes it; of a run folder the best one is read.

    Raises CheckpointError that says what is wrong, TypeError for what is neither a path nor such a file.

    Memory stays within a few times the file's size; nothing is written, and no code from the file runs.
    """
    fill_standard_descriptors()
    if not isinstance(path, (str, os.PathLike)):
        _check_open(path)
        with _damage_is_said(path, ""):
            return _read_zip(path if path.seekable() else io.BytesIO(path.read()))
    path = find_checkpoint(path)
    with _damage_is_said(path, _hint(path)), open(path, "rb") as file:
        return _read_zip(file)


def _check_open(file: Any) -> None:
    if not callable(getattr(file, "read", None)) or isinstance(file, io.TextIOBase):
        raise TypeError(f"load() got {file!r:.99}: expected a path, or a file that is open for bytes, as by open(path, 'rb')")


@contextlib.contextmanager
def _damage_is_said(what: object, hint: str) -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{what}: {error}{hint}") from error
    except MemoryError as error:
        raise CheckpointError(f"{what} cannot be read: there is no memory for it") from error
    except OSError as error:
        if error.errno in _OF_DAMAGE:
            raise CheckpointError(f"{what} is damaged or no checkpoint: {error}{hint}") from error
        raise CheckpointError(f"{what} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever zipfile, json, safetensors or the memory has to say about hostile bytes
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, _EXPECTED) else error
        raise CheckpointError(f"{what} is damaged or no checkpoint: {reason}{hint}") from error


_EXPECTED = (zipfile.BadZipFile, SafetensorError, ValueError)
_OF_DAMAGE = (None, errno.EINVAL)  # what zipfile raises, or the system where a file leads it before the beginning


def _hint(path: Path) -> str:
    backup = path.with_name(path.name + ".bak")
    if backup.is_file():
        return f" (the one saved before it is {backup})"
    beside = [name for name in RUN_FILES if name != path.name and path.with_name(name).is_file()]
    return f"; beside it {'is' if len(beside) == 1 else 'are'} {' and '.join(beside)}" if beside else ""


def _read_zip(file: IO[bytes]) -> Checkpoint:
    _check_end(file)
    with zipfile.ZipFile(file) as archive:
        if DATA_MEMBER not in archive.namelist():
            raise CheckpointError(f"not a FastES checkpoint: it has no member {DATA_MEMBER!r}")
        # what it says of itself comes first: files of others and of newer versions may be laid out as they like
        info = archive.getinfo(DATA_MEMBER)
        if info.file_size > _MAX_DATA_BYTES or info.compress_type != zipfile.ZIP_STORED:
            raise CheckpointError(
                f"not a FastES checkpoint: member {DATA_MEMBER!r} is compressed or larger than {_MAX_DATA_BYTES} bytes"
            )
        data = json.loads(archive.read(info), object_pairs_hook=_unique, parse_constant=_no_constant)
        _check_depth(data)
        return _reader_of(data)(archive, file, data)


def _check_end(file: IO[bytes]) -> None:
    """The end record comes last and counts few members: a long directory would fill the memory."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise CheckpointError("the file is empty")
    file.seek(0)
    if file.read(2) != b"PK":
        raise CheckpointError("no checkpoint: it is no zip file")
    file.seek(max(0, size - _END_RECORD - _ZIP64_LOCATOR))
    locator, end = (tail := file.read())[:-_END_RECORD], tail[-_END_RECORD:]
    file.seek(0)
    if len(end) < _END_RECORD or not end.startswith(b"PK\x05\x06"):
        raise CheckpointError(
            "damaged or no checkpoint: the file does not end as a zip without a comment does; it may be cut off"
        )
    members, directory = int.from_bytes(end[10:12], "little"), int.from_bytes(end[12:16], "little")
    start = int.from_bytes(end[16:20], "little")
    if size > _MAX_FILE_BYTES or members > 64 or directory > 1 << 16:
        raise CheckpointError(f"not a FastES checkpoint: {size} bytes, {members} members, a directory of {directory} bytes")
    if locator.startswith(b"PK\x06\x07") or start + directory + _END_RECORD != size:
        raise CheckpointError("not a checkpoint that FastES wrote: its end record does not lead to its directory")


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(_MAX_DEPTH):
        inner = [value.values() if isinstance(value, dict) else value for value in level if isinstance(value, (dict, list))]
        level = [value for values in inner for value in values]
        if not level:
            return
    raise CheckpointError(f"the file is damaged or was edited: its JSON member is nested more than {_MAX_DEPTH} deep")


def _reader_of(data: Any) -> Read:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError("not a FastES checkpoint; Stable-Baselines3 models are loaded with their own classes")
    version = data.get("format_version")
    if type(version) is not int or version not in READERS:
        known = f"version {max(READERS)}" if len(READERS) == 1 else f"versions up to {max(READERS)}"
        raise CheckpointError(
            f"the file has format version {version!r}, this FastES reads {known}: load it with the "
            "version that wrote it, or a newer one"
        )
    return READERS[version]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("the file is damaged or was edited: a key of its JSON member occurs twice")
    return found


def _no_constant(name: str) -> Iterator[Any]:
    raise CheckpointError(f"the file is damaged or was edited: its JSON member has {name}")
