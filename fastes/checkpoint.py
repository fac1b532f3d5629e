"""Checkpoint files: a zip with one JSON member and safetensors members. No code runs when one is saved or loaded."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fastes.errors import CheckpointError

FORMAT = "fastes-checkpoint"
FORMAT_VERSION = 1
_DATA = "data"
_SUFFIX = ".safetensors"
_MAX_DATA_BYTES = 4 << 20
_MAX_MEMBER_BYTES = 4 << 30

Arrays = dict[str, npt.NDArray[Any]]


class Checkpoint(NamedTuple):
    """data: JSON values (settings, environment, counters, versions). arrays: group name -> array name -> array."""

    data: dict[str, Any]
    arrays: dict[str, Arrays]


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """path with the suffix .zip, as SB3 writes it."""
    path = Path(path)
    return path if path.suffix == ".zip" else path.with_name(path.name + ".zip")


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> Path:
    """Write the whole file beside its place, flush it to disk, then rename: the path holds the old file or the new one.

    The file that was there before stays as <name>.bak. Raises OSError when the folder cannot be written; the old file stays.
    """
    path = checkpoint_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write_zip(file, checkpoint)
            file.flush()
            os.fsync(file.fileno())
        _keep_previous(path)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)
    return path


def _write_zip(file: Any, checkpoint: Checkpoint) -> None:
    data = {"format": FORMAT, "format_version": FORMAT_VERSION, **checkpoint.data}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_DATA, json.dumps(data, indent=1, allow_nan=False))
        for group, arrays in checkpoint.arrays.items():
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            archive.writestr(group + _SUFFIX, save_tensors(contiguous))


def _keep_previous(path: Path) -> None:
    if not path.exists():
        return
    previous = path.with_name(f".{path.name}.{secrets.token_hex(4)}.bak")
    try:
        os.link(path, previous)
    except OSError:  # a file system without hard links
        shutil.copy2(path, previous)
    try:
        os.replace(previous, path.with_name(path.name + ".bak"))
    except OSError:
        previous.unlink()
        raise


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(fd)
    finally:
        os.close(fd)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint (with or without its suffix .zip). Raises CheckpointError that says what is wrong."""
    path = _existing(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_zip(path, archive)
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, SafetensorError, EOFError, RuntimeError, MemoryError, ValueError, KeyError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint: {error}") from error


def _existing(path: str | os.PathLike[str]) -> Path:
    for candidate in (Path(path), checkpoint_path(path)):
        if candidate.is_file():
            return candidate
    raise CheckpointError(f"there is no checkpoint at {path}" + (" (it is a folder)" if Path(path).is_dir() else ""))


def _read_zip(path: Path, archive: zipfile.ZipFile) -> Checkpoint:
    names = archive.namelist()
    if _DATA not in names:
        raise CheckpointError(f"{path} is not a FastES checkpoint: it has no member {_DATA!r}")
    data = json.loads(_member(archive, _DATA, _MAX_DATA_BYTES))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a FastES checkpoint; Stable-Baselines3 models are loaded with their own classes")
    if data.get("format_version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {data.get('format_version')!r}, this FastES reads version {FORMAT_VERSION}: "
            "load it with the version that wrote it, or a newer one"
        )
    groups = [name for name in names if name.endswith(_SUFFIX)]
    arrays = {name[: -len(_SUFFIX)]: load_tensors(_member(archive, name, _MAX_MEMBER_BYTES)) for name in groups}
    return Checkpoint(data, arrays)


def _member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.file_size > limit:
        raise CheckpointError(f"member {name!r} is compressed or larger than {limit} bytes: FastES does not write such files")
    return archive.read(info)  # checks the member's CRC-32


def require(mapping: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """mapping[key] of a kind, or CheckpointError."""
    value = mapping.get(key)
    if not isinstance(value, kind):
        raise CheckpointError(f"the checkpoint's {key!r} is {value!r}: the file is damaged or was edited")
    return value
