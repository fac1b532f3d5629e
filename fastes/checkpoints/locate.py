"""The file that a path to a checkpoint means: itself, with or without its suffix, or that of a run folder."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from pathlib import Path

from fastes.errors import CheckpointError, shorten, writable
from fastes.system.near_paths import in_words, names_in, what_is_beside

RUN_FILES = BEST, CHECKPOINT = "best.zip", "checkpoint.zip"  # of a run folder: the best parameters, and the last ones
MIDWAY = "midway.zip"  # those from its midst


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """Return the path with the suffix .zip, as SB3 writes it; ValueError for one that names no file."""
    given, path = path, Path(path)
    if path.name in ("", "..") or "\0" in str(path):
        raise ValueError(f"{os.fspath(given)!r} names no file: expected a path such as 'model.zip'")
    return path if path.suffix == ".zip" else path.with_name(path.name + ".zip")


def find_checkpoint(path: str | os.PathLike[str], which: str = "best") -> Path:
    """Return the checkpoint file that a path means.

    Args:
        path: A file, with or without its suffix .zip, or a run folder.
        which: The file of a run folder: 'best' (or the last one, if there is no best yet) or 'last'.

    Raises:
        CheckpointError: There is none; the message says what is there instead.
    """
    try:
        for candidate in _candidates(path, which):
            if candidate.is_file():
                return candidate
        there = _in_place_of(Path(path), which)
    except (OSError, ValueError) as error:  # a name that no file can have, or a folder that cannot be read
        why = error.strerror if isinstance(error, OSError) else shorten(error)
        raise CheckpointError(f"there is no checkpoint at {reprlib.repr(os.fspath(path))}: {why}") from error
    raise CheckpointError(f"there is no checkpoint at {writable(str(path))}{there}")


def _candidates(path: str | os.PathLike[str], which: str) -> Iterator[Path]:
    if os.fspath(path) and Path(path).is_dir():
        yield from (Path(path) / name for name in (RUN_FILES if which == "best" else (CHECKPOINT,)))
        if Path(path).name in ("", ".."):
            return
    yield Path(path)
    yield checkpoint_path(path)


def is_run_folder(folder: Path) -> bool:
    return any(os.path.isfile(folder / name) for name in RUN_FILES)


def _in_place_of(path: Path, which: str) -> str:
    """Return what a path is instead of a checkpoint, or what lies near it, in words."""
    if not path.is_dir():
        return f": there is no such file or folder{what_is_beside(path)}"
    names = names_in(path)
    if runs := [name for name in names if is_run_folder(path / name)]:
        return f" (it is a folder): name one of its runs, as in {writable(str(path / runs[-1]))}; it has {in_words(runs)}"
    wanted = f"a run folder holds {' or '.join(RUN_FILES) if which == 'best' else CHECKPOINT}"
    return f" (it is a folder): {wanted}, and this one {in_words(names) or 'nothing'}"
