"""Checkpoint files: a zip with one JSON member and safetensors members. No code runs when one is saved or loaded.

docs/checkpoint-format.md has the format in words.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fastes.descriptors import fill_standard_descriptors
from fastes.errors import CheckpointError, shorten, writable
from fastes.whole_files import keep_previous, replace_file

FORMAT = "fastes-checkpoint"
FORMAT_VERSION = 1
GROUPS = ("theta", "optimizer", "normalizer", "rollback", "start")
_DATA = "data"
_SUFFIX = ".safetensors"
_OURS = ("format", "format_version", "checksums")  # keys of the JSON member that belong to the format itself
MAX_COUNTER = 2**53  # of whatever is counted; the generation is drawn from as 32 bits
_MAX_DATA_BYTES = 4 << 20
_MAX_DEPTH = 64  # of nested JSON: what walks over it later recurses
_MAX_FILE_BYTES = (4 << 30) - 1  # more would need zip64
_MAX_MEMBER_BYTES = 2_000_000_000  # from here on zipfile would write zip64, which the reader refuses
_LOCAL_HEADER, _END_RECORD, _ZIP64_LOCATOR = 30, 22, 20  # bytes, without names and comments

Arrays = dict[str, npt.NDArray[Any]]
Kinds = Mapping[str, Callable[[Any], bool]]  # of a JSON object: for each key, what its value has to be


class Checkpoint(NamedTuple):
    """data: JSON values (settings, environment, counters, versions). arrays: group name -> array name -> array."""

    data: dict[str, Any]
    arrays: dict[str, Arrays]


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """path with the suffix .zip, as SB3 writes it. Raises ValueError for one that names no file."""
    given, path = path, Path(path)
    if path.name in ("", "..") or "\0" in str(path):
        raise ValueError(f"{os.fspath(given)!r} names no file: expected a path such as 'model.zip'")
    return path if path.suffix == ".zip" else path.with_name(path.name + ".zip")


# --- writing --------------------------------------------------------------------------------------------------------


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Write the whole file beside its place, flush it to disk, then rename: the path holds the old file or the new one.

    The file that was there before stays as <name>.bak. Raises OSError when the folder cannot be written, ValueError for
    arrays of 2 GB and for a path that names no file; the old file stays.
    """
    path = checkpoint_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda file: _write_zip(file, checkpoint), lambda: keep_previous(path))
    return path


def undated(name: str) -> zipfile.ZipInfo:
    """A zip's member. The same content makes the same bytes, and a clock that a zip cannot tell of spoils nothing."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o600 << 16
    return member


def _write_zip(file: IO[bytes], checkpoint: Checkpoint) -> None:
    checksums = {group: {name: _checksum(a) for name, a in arrays.items()} for group, arrays in checkpoint.arrays.items()}
    data = {"format": FORMAT, "format_version": FORMAT_VERSION, "checksums": checksums, **checkpoint.data}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(undated(_DATA), json.dumps(data, indent=1, allow_nan=False))
        for group, arrays in checkpoint.arrays.items():
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            packed = save_tensors(contiguous)
            if len(packed) > _MAX_MEMBER_BYTES:
                raise ValueError(f"the arrays of {group!r} take {len(packed)} bytes: a checkpoint holds {_MAX_MEMBER_BYTES}")
            archive.writestr(undated(group + _SUFFIX), packed)


def _checksum(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's dtype, shape and bytes in C order."""
    described = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(described + b"\n" + np.ascontiguousarray(array).tobytes()).hexdigest()


# --- reading --------------------------------------------------------------------------------------------------------


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint (with or without its suffix .zip). Raises CheckpointError that says what is wrong.

    Memory stays within a few times the file's size; nothing is written, and no code from the file runs.
    """
    path = _existing(path)
    fill_standard_descriptors()
    try:
        with open(path, "rb") as file:
            return _read_zip(file)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}{_hint(path)}") from error
    except Exception as error:  # whatever zipfile, json, safetensors or the memory has to say about hostile bytes
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, _EXPECTED) else error
        raise CheckpointError(f"{path} is damaged or no checkpoint: {reason}{_hint(path)}") from error


_EXPECTED = (zipfile.BadZipFile, SafetensorError, OSError, ValueError)


def _hint(path: Path) -> str:
    backup = path.with_name(path.name + ".bak")
    return f" (the one saved before it is {backup})" if backup.is_file() else ""


def _existing(path: str | os.PathLike[str]) -> Path:
    try:
        for candidate in (Path(path), checkpoint_path(path)):
            if candidate.is_file():
                return candidate
        folder = " (it is a folder)" if Path(path).is_dir() else ""
    except (OSError, ValueError) as error:  # a name that no file can have, or a folder that cannot be read
        why = error.strerror if isinstance(error, OSError) else shorten(error)
        raise CheckpointError(f"there is no checkpoint at {reprlib.repr(os.fspath(path))}: {why}") from error
    raise CheckpointError(f"there is no checkpoint at {writable(str(path))}{folder}")


def _read_zip(file: IO[bytes]) -> Checkpoint:
    _check_end(file)
    with zipfile.ZipFile(file) as archive:
        names = [info.filename for info in archive.infolist()]
        if _DATA not in names:
            raise CheckpointError(f"not a FastES checkpoint: it has no member {_DATA!r}")
        # what it says of itself comes first: files of others and of newer versions may be laid out as they like
        info = archive.getinfo(_DATA)
        if info.file_size > _MAX_DATA_BYTES or info.compress_type != zipfile.ZIP_STORED:
            raise CheckpointError(
                f"not a FastES checkpoint: member {_DATA!r} is compressed or larger than {_MAX_DATA_BYTES} bytes"
            )
        data = json.loads(archive.read(info), object_pairs_hook=_unique, parse_constant=_no_constant)
        _check_depth(data)
        _check_format(data)
        _check_layout(archive, file)
        groups = [name.removesuffix(_SUFFIX) for name in names if name != _DATA]
        arrays = {group: load_tensors(archive.read(group + _SUFFIX)) for group in groups}  # checks the member's CRC-32
    _check_arrays(data["checksums"], arrays)
    return Checkpoint({key: value for key, value in data.items() if key not in _OURS}, arrays)


def _check_end(file: IO[bytes]) -> None:
    """The end record comes last and counts few members: a long directory would fill the memory."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        raise CheckpointError("the file is empty")
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


def _check_format(data: Any) -> None:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError("not a FastES checkpoint; Stable-Baselines3 models are loaded with their own classes")
    version = data.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise CheckpointError(
            f"the file has format version {version!r}, this FastES reads version {FORMAT_VERSION}: load it with the "
            "version that wrote it, or a newer one"
        )
    if not isinstance(data.get("checksums"), dict):
        raise CheckpointError("the file is damaged: its arrays have no checksums")


def _check_layout(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    """Members lie one after the other from the first byte to the directory, stored, known and once each."""
    at, seen = 0, set()
    for info in archive.infolist():
        known = info.filename == _DATA or info.filename in {group + _SUFFIX for group in GROUPS}
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
            if expected != _checksum(array):
                raise CheckpointError(
                    f"array {name!r} of {group!r} does not match its checksum: the file is damaged or was edited"
                )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("the file is damaged or was edited: a key of its JSON member occurs twice")
    return found


def _no_constant(name: str) -> Iterator[Any]:
    raise CheckpointError(f"the file is damaged or was edited: its JSON member has {name}")


def check_arrays(given: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, npt.NDArray[Any]]) -> None:
    """CheckpointError unless the arrays have the names, shapes and dtypes of the expected ones, and finite values."""
    for name, array in expected.items():
        got = given.get(name)
        if got is None or got.shape != array.shape or got.dtype != array.dtype:
            found = "is missing" if got is None else f"has shape {got.shape} and dtype {got.dtype}"
        elif not np.isfinite(got).all():
            found = "has values that are not finite"
        else:
            continue
        raise CheckpointError(f"the checkpoint's array {name!r} {found}: expected finite {array.dtype} {array.shape}")
    if unknown := sorted(set(given) - set(expected)):
        raise CheckpointError(f"the checkpoint's arrays {unknown} are no part of its policy and optimizer: it was edited")
    if "sigma" in given and not (given["sigma"] > 0.0).all():
        raise CheckpointError("the checkpoint's array 'sigma' has values that are not positive: the file is damaged")
    for name in ("squares", "counts"):
        if f"normalizer.{name}" in given and (given[f"normalizer.{name}"] < 0).any():
            raise CheckpointError(f"the checkpoint's array {name!r} has negative values: the file is damaged")
    if "normalizer.counts" in given and (given["normalizer.counts"] > MAX_COUNTER).any():
        raise CheckpointError("the checkpoint's array 'counts' has more observations than a run can make: the file is damaged")


def check_record(name: str, record: object, kinds: Kinds) -> dict[str, Any]:
    """The record, or CheckpointError unless it is an object with exactly these keys, and each value is of its kind."""
    if isinstance(record, dict) and set(record) == set(kinds) and all(kinds[key](record[key]) for key in record):
        return record
    raise CheckpointError(f"the checkpoint's {name!r} is {reprlib.repr(record)}: the file is damaged or was edited")


def is_count(value: object, low: int = 0) -> bool:
    """Whether a JSON value is an int from low to MAX_COUNTER."""
    return type(value) is int and low <= value <= MAX_COUNTER


def is_number_or_none(value: object) -> bool:
    """Whether a JSON value is a finite float, or the null that stands for one that there is not."""
    return value is None or (type(value) is float and math.isfinite(value))


def require(mapping: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """mapping[key] of a kind, or CheckpointError."""
    value = mapping.get(key)
    if not isinstance(value, kind):
        raise CheckpointError(f"the checkpoint's {key!r} is {reprlib.repr(value)}: the file is damaged or was edited")
    return value
