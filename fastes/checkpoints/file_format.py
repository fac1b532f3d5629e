"""The format of a checkpoint file, for writer and reader: a zip with one JSON member and safetensors members."""

from __future__ import annotations

import hashlib
import zipfile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

FORMAT = "fastes-checkpoint"
FORMAT_VERSION = 1
DATA_MEMBER = "data"
ARRAYS_SUFFIX = ".safetensors"
MAX_DATA_BYTES = 4 << 20  # of the JSON member
MAX_BYTES = 2_000_000_000  # of all arrays: from 2 GiB on, zipfile would write zip64, which the reader refuses
GROUPS = ("trainings", "reference")  # of arrays, a member each

Arrays = dict[str, npt.NDArray[Any]]


class Checkpoint(NamedTuple):
    """The content of a file.

    Attributes:
        data: JSON values (settings, environment, counters, versions).
        arrays: Group name -> array name -> array.
    """

    data: dict[str, Any]
    arrays: dict[str, Arrays]


def undated(name: str) -> zipfile.ZipInfo:
    """Return a zip's member of fixed date: the same content gives the same bytes, whatever the clock says."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = 0o600 << 16
    return member


def checksum(array: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of an array's dtype, shape and bytes in C order."""
    described = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(described + b"\n" + np.ascontiguousarray(array).tobytes()).hexdigest()
