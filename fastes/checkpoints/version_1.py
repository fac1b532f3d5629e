"""Files of format version 1: one safetensors member for each group of arrays, a checksum for each array."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import IO, Any

from safetensors.numpy import load as load_tensors

from fastes.checkpoints.file_format import ARRAYS_SUFFIX, DATA_MEMBER, Arrays, Checkpoint, checksum
from fastes.errors import CheckpointError

GROUPS = ("trainings", "reference")
_OF_THE_FORMAT = ("format", "format_version", "checksums")  # keys of the JSON member that no training is told of
_LOCAL_HEADER = 30  # bytes, without the name


def read(archive: zipfile.ZipFile, file: IO[bytes], data: dict[str, Any]) -> Checkpoint:
    """The rest of a file whose JSON member is data. Raises CheckpointError, and what zipfile and safetensors raise."""
    if not isinstance(data.get("checksums"), dict):
        raise CheckpointError("the file is damaged: its arrays have no checksums")
    _check_layout(archive, file)
    groups = [name.removesuffix(ARRAYS_SUFFIX) for name in archive.namelist() if name != DATA_MEMBER]
    arrays = {group: load_tensors(archive.read(group + ARRAYS_SUFFIX)) for group in groups}  # checks the member's CRC-32
    _check_arrays(data["checksums"], arrays)
    return Checkpoint({key: value for key, value in data.items() if key not in _OF_THE_FORMAT}, arrays)


def _check_layout(archive: zipfile.ZipFile, file: IO[bytes]) -> None:
    """Members lie one after the other from the first byte to the directory, stored, known and once each."""
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
