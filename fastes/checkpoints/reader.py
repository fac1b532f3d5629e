"""Reading a checkpoint file, which may be damaged or hostile: every part is checked, and no code from it runs.

The whole layout is checked: the end record, the JSON member and, in format version 1, a safetensors member per group of arrays
with a checksum per array. Memory stays within a few times the file's size.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from fastes.checkpoints.field_checks import is_count
from fastes.checkpoints.file_format import (
    ARRAYS_SUFFIX,
    DATA_MEMBER,
    FORMAT,
    FORMAT_VERSION,
    GROUPS,
    MAX_DATA_BYTES,
    Arrays,
    Checkpoint,
    checksum,
)
from fastes.checkpoints.locate import MIDWAY, RUN_FILES, find_checkpoint
from fastes.errors import CheckpointError
from fastes.system.console import fill_standard_descriptors

_MAX_DEPTH = 64  # of nested JSON, which later code walks recursively
_MAX_FILE_BYTES = (2 << 30) - 1  # more would need zip64
_END_RECORD, _ZIP64_LOCATOR, _LOCAL_HEADER = 22, 20, 30  # bytes, without names and comments
_OF_THE_FORMAT = ("format", "format_version", "checksums")  # keys of the JSON member that belong to the file, not the training
_EXPECTED = (zipfile.BadZipFile, SafetensorError, ValueError)
_OF_DAMAGE = (None, errno.EINVAL)  # what zipfile raises, or the system if a file leads it before the beginning


def read_checkpoint(path: str | os.PathLike[str] | IO[bytes]) -> Checkpoint:
    """Read a checkpoint; nothing is written, and no code from the file runs.

    Args:
        path: As `find_checkpoint` takes it, a run folder for its best checkpoint; or an open binary file, read from its
            beginning.

    Raises:
        CheckpointError: The file is damaged or no checkpoint; the message says how.
        TypeError: Neither a path nor such a file.
    """
    fill_standard_descriptors()
    if not isinstance(path, (str, os.PathLike)):
        _check_open(path)
        with _damage_is_said(path, ""):
            return _read_zip(path if path.seekable() else io.BytesIO(path.read()))
    path = find_checkpoint(path)
    with _damage_is_said(path, _hint(path)), open(path, "rb") as file:
        return _read_zip(file)


def read_description(path: Path) -> dict[str, Any]:
    """Read the JSON values of a checkpoint alone: settings, environment, counters, versions. Its arrays may be damaged.

    Args:
        path: The file.

    Raises:
        CheckpointError: The file is damaged or no checkpoint; the message says how.
    """
    with _damage_is_said(path, ""), open(path, "rb") as file:
        _check_end(file)
        with zipfile.ZipFile(file) as archive:
            return _read_data(archive)


def counters_in(saved: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tallies of a checkpoint's description: of its trainings, and of the trials that were dropped."""
    trainings, selection = saved.get("trainings"), saved.get("selection")
    found = [each.get("counters") for each in trainings if isinstance(each, dict)] if isinstance(trainings, list) else []
    found += [selection.get("dropped")] if isinstance(selection, dict) else []
    return [counters for counters in found if isinstance(counters, dict)]


def timesteps_in(saved: Mapping[str, Any]) -> int:
    """Return the timesteps of a checkpoint's description, of all trials and a race's scoring episodes; 0 if it tells none."""
    selection = saved.get("selection")
    found: list[Any] = [counters.get("num_timesteps") for counters in counters_in(saved)]
    found += [selection.get("scoring_timesteps")] if isinstance(selection, dict) else []
    return sum(filter(is_count, found))


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
    except Exception as error:  # zipfile, json and safetensors raise many kinds for hostile bytes
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, _EXPECTED) else error
        raise CheckpointError(f"{what} is damaged or no checkpoint: {reason}{hint}") from error


def _hint(path: Path) -> str:
    """Return which files in a damaged one's folder are whole, and what to do with the one that was trained longest."""
    beside = [name for name in RUN_FILES if name != path.name and path.with_name(name).is_file()]
    if beside and path.suffix != ".zip":  # a file of a run folder that is not a checkpoint
        return f"; next to it {'is' if len(beside) == 1 else 'are'} {' and '.join(beside)}"
    names = [*RUN_FILES, MIDWAY] if path.name in RUN_FILES else [path.name]
    beside = [
        name for name in (*names, *(f"{each}.bak" for each in names)) if name != path.name and path.with_name(name).is_file()
    ]
    steps = {name: found for name in beside if (found := _steps_of(path.with_name(name))) is not None}
    if not steps:
        return ""
    whole = sorted(steps, key=lambda name: -steps[name])
    listed = ", ".join(f"{name} ({steps[name]} timesteps)" for name in whole)
    best, damaged = (shlex.quote(str(each)) for each in (path.with_name(whole[0]), path))
    what_to_do = f"To see what one does: fastes play {best}; to continue from it: cp {best} {damaged}"
    return f". Whole files next to it: {listed}. {what_to_do}"


def _steps_of(path: Path) -> int | None:
    """Return the timesteps that a checkpoint was trained for; None if it cannot be read."""
    with contextlib.suppress(Exception), open(path, "rb") as file:
        return timesteps_in(_read_zip(file).data)
    return None


def _read_zip(file: IO[bytes]) -> Checkpoint:
    _check_end(file)
    with zipfile.ZipFile(file) as archive:
        # the JSON member comes first: files of other programs and newer versions may have another layout
        return _read_arrays(archive, file, _read_data(archive))


def _read_data(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Read the JSON member."""
    if DATA_MEMBER not in archive.namelist():
        raise CheckpointError(f"not a FastES checkpoint: it has no member {DATA_MEMBER!r}")
    info = archive.getinfo(DATA_MEMBER)
    if info.file_size > MAX_DATA_BYTES or info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(
            f"not a FastES checkpoint: member {DATA_MEMBER!r} is compressed or larger than {MAX_DATA_BYTES} bytes"
        )
    data: dict[str, Any] = json.loads(archive.read(info), object_pairs_hook=_unique, parse_constant=_no_constant)
    _check_depth(data)
    _check_version(data)
    return data


def _check_end(file: IO[bytes]) -> None:
    """Check that the end record comes last and counts few members: a long directory would fill the memory."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise CheckpointError("the file is empty")
    file.seek(0)
    if file.read(2) != b"PK":
        raise CheckpointError("no checkpoint: it is not a zip file")
    file.seek(max(0, size - _END_RECORD - _ZIP64_LOCATOR))
    locator, end = (tail := file.read())[:-_END_RECORD], tail[-_END_RECORD:]
    file.seek(0)
    if len(end) < _END_RECORD or not end.startswith(b"PK\x05\x06"):
        raise CheckpointError("the file is cut off, or is not a checkpoint")
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


def _check_version(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError("not a FastES checkpoint; Stable-Baselines3 models are loaded with their own classes")
    version = data.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise CheckpointError(
            f"the file has format version {version!r}, this FastES reads version {FORMAT_VERSION}: load it with the "
            "version that wrote it, or a newer one"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("the file is damaged or was edited: a key of its JSON member occurs twice")
    return found


def _no_constant(name: str) -> Iterator[Any]:
    raise CheckpointError(f"the file is damaged or was edited: its JSON member has {name}")


# --- the arrays of format version 1 -----------------------------------------------------------------------------------


def _read_arrays(archive: zipfile.ZipFile, file: IO[bytes], data: dict[str, Any]) -> Checkpoint:
    """Read the rest of a file whose JSON member is `data`; raises CheckpointError, and what zipfile and safetensors raise."""
    if not isinstance(data.get("checksums"), dict):
        raise CheckpointError("the file is damaged: its arrays have no checksums")
    _check_layout(archive, file)
    groups = [name.removesuffix(ARRAYS_SUFFIX) for name in archive.namelist() if name != DATA_MEMBER]
    arrays = {group: load_tensors(archive.read(group + ARRAYS_SUFFIX)) for group in groups}  # checks the member's CRC-32
    _check_arrays(data["checksums"], arrays)
    return Checkpoint({key: value for key, value in data.items() if key not in _OF_THE_FORMAT}, arrays)


def _check_layout(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    """Check that members lie one after the other from the first byte to the directory, stored, known and once each."""
    at, seen = 0, set()
    for info in archive.infolist():
        known = info.filename == DATA_MEMBER or info.filename in {group + ARRAYS_SUFFIX for group in GROUPS}
        if not known or info.filename in seen:
            kind = "twice" if known else "which is not a part of it"
            raise CheckpointError(f"not a checkpoint that FastES wrote: it holds {info.filename!r}, {kind}")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored or info.flag_bits or info.extra or info.comment:
            raise CheckpointError(
                f"member {info.filename!r} is compressed, encrypted or extended: FastES does not write such files"
            )
        if info.header_offset != at:
            raise CheckpointError(f"member {info.filename!r} overlaps another, or has something hidden before it")
        header = info.FileHeader(zip64=False)
        file.seek(at)
        if info.orig_filename != info.filename or file.read(len(header)) != header:
            raise CheckpointError(f"the header of member {info.filename!r} differs from the directory: the file is damaged")
        seen.add(info.filename)
        at += _LOCAL_HEADER + len(info.filename.encode()) + info.file_size
    if at != archive.start_dir:
        raise CheckpointError("something is hidden between the last member and the directory")


def _check_arrays(checksums: Mapping[str, Any], arrays: Mapping[str, Arrays]) -> None:
    for group, names in checksums.items():
        missing = sorted(set(names) - set(arrays.get(group, ()))) if isinstance(names, dict) else [names]
        if group not in arrays or missing:
            raise CheckpointError(f"arrays {missing} of {group!r} are missing: the file is damaged or was edited")
    for group, members in arrays.items():
        for name, array in members.items():
            expected = checksums[group].get(name) if isinstance(checksums.get(group), dict) else None
            if expected != checksum(array):
                raise CheckpointError(
                    f"array {name!r} of {group!r} does not match its checksum: the file is damaged or was edited"
                )
