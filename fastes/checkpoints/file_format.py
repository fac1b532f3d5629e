"""What writing and reading a checkpoint have in common: a zip with one JSON member and safetensors members."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FORMAT = "fastes-checkpoint"
FORMAT_VERSION = 1  # that is written; fastes.checkpoints.reader reads every one
DATA_MEMBER = "data"
ARRAYS_SUFFIX = ".safetensors"
MAX_BYTES = 2_000_000_000  # of all arrays: from 2 GiB on zipfile would write zip64, which the reader refuses
RUN_FILES = ("best.zip", "checkpoint.zip")  # of a run folder: the best parameters, and the last ones

Arrays = dict[str, npt.NDArray[Any]]


class Checkpoint(NamedTuple):
    """What a file holds.

    data: JSON values (settings, environment, counters, versions).
    arrays: group name -> array name -> array.
    """

    data: dict[str, Any]
    arrays: dict[str, Arrays]


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """path with the suffix .zip, as SB3 writes it. Raises ValueError for one that names no file."""
    given, path = path, Path(path)
    if path.name in ("", "..") or "\0" in str(path):
        raise ValueError(f"{os.fspath(given)!r} names no file: expected a path such as 'model.zip'")
    return path if path.suffix == ".zip" else path.with_name(path.name + ".zip")


def undated(name: str) -> zipfile.ZipInfo:
    """A zip's member. The same content makes the same bytes, and a clock that a zip cannot tell of spoils nothing."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o600 << 16
    return member


def checksum(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's dtype, shape and bytes in C order."""
    described = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(described + b"\n" + np.ascontiguousarray(array).tobytes()).hexdigest()
