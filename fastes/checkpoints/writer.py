"""Writing a checkpoint file, whole or not at all."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors.numpy import save as save_tensors

from fastes.checkpoints.file_format import (
    ARRAYS_SUFFIX,
    DATA_MEMBER,
    FORMAT,
    FORMAT_VERSION,
    MAX_BYTES,
    MAX_DATA_BYTES,
    Checkpoint,
    checksum,
    undated,
)
from fastes.checkpoints.locate import checkpoint_path
from fastes.system.atomic_files import keep_previous, replace_file


def write_anywhere(path: Any, checkpoint: Checkpoint) -> None:
    """Write to a path, or into an open file.

    Args:
        path: A path, for `write_checkpoint`; or an open binary file, written at its position with one call of `write`.
        checkpoint: The content.

    Raises:
        OSError, ValueError: As `write_checkpoint`.
        TypeError: Neither a path nor such a file.
    """
    if isinstance(path, (str, os.PathLike)):
        write_checkpoint(path, checkpoint)
    elif callable(getattr(path, "write", None)) and not isinstance(path, io.TextIOBase):
        content = io.BytesIO()
        write_zip(content, checkpoint)
        path.write(content.getvalue())
    else:
        raise TypeError(f"save() got {path!r:.99}: expected a path, or a file that is open for bytes, as by open(path, 'wb')")


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Write a temporary file, flush it to disk, then rename it: the path holds the old file or the new one.

    The old file stays as <name>.bak.

    Raises:
        OSError: The folder cannot be written.
        ValueError: More than 2 GB of arrays or 4 MiB of other values, or a path that names no file.
    """
    path = checkpoint_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda file: write_zip(file, checkpoint), lambda: keep_previous(path))
    return path


def write_zip(file: IO[bytes], checkpoint: Checkpoint) -> None:
    """Write the file's content; ValueError for more than 2 GB of arrays or 4 MiB of other values."""
    sizes = {group: sum(array.nbytes for array in arrays.values()) for group, arrays in checkpoint.arrays.items()}
    if (total := sum(sizes.values())) > MAX_BYTES:
        named = ", ".join(f"{group!r} {size}" for group, size in sorted(sizes.items(), key=lambda item: -item[1]))
        raise ValueError(f"arrays of {total} bytes: a checkpoint holds {MAX_BYTES} (bytes of each group: {named})")
    checksums = {group: {name: checksum(a) for name, a in arrays.items()} for group, arrays in checkpoint.arrays.items()}
    data = _json({"format": FORMAT, "format_version": FORMAT_VERSION, "checksums": checksums, **checkpoint.data})
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        archive.writestr(undated(DATA_MEMBER), data)
        for group, arrays in checkpoint.arrays.items():
            contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
            archive.writestr(undated(group + ARRAYS_SUFFIX), save_tensors(contiguous))


def _json(data: dict[str, Any]) -> bytes:
    """Return the JSON member; ValueError if it is larger than readers take."""
    text = json.dumps(data, indent=1, allow_nan=False).encode()
    if len(text) > MAX_DATA_BYTES:
        sizes = {name: len(json.dumps(value, indent=1)) for name, value in data.items()}
        named = ", ".join(f"{name!r} {size}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:3])
        raise ValueError(
            f"{len(text)} bytes in addition to the arrays: a checkpoint holds {MAX_DATA_BYTES} (the largest, in bytes: {named})"
        )
    return text
