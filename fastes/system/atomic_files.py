"""Replacement of whole files: a killed process leaves the old file or the new one, and the next process clears up.

While a file is written it has a name of its own, or none, and a lock that the kernel releases when its process ends. So the
leftovers of a killed process differ from a file that is being written, without process ids.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from fastes.system.console import fill_standard_descriptors

_LEFTOVER = re.compile(
    r"\.(.+)\.(?:([0-9a-f]{8})-[0-9a-f]{16}|\d+-[0-9a-f]{8})\.(?:tmp|bak)"
)  # the second: of earlier versions
_FOREIGN_SECONDS = 86400.0  # the age at which another computer's file is a leftover: its lock may not be seen here
_MAX_NAME = 200  # bytes of a file's name that a temporary one takes over


def replace_file(
    path: Path, write: Callable[[IO[bytes]], object], before: Callable[[], None] | None = None, durable: bool = True
) -> None:
    """Write a file next to its place, flush it to disk, then rename it.

    Args:
        path: Its place.
        write: Fills the file; called twice if the system has no files without a name.
        before: Called before the rename.
        durable: Flush to disk first. Otherwise it is faster, and may be empty after a crash of the machine, not of the process.

    Raises:
        OSError: The file cannot be written. The old one stays then, as it does if `write` or `before` raises.
    """
    fill_standard_descriptors()
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    temporary = path.with_name(f".{_stem(path.name)}.{_host()}-{secrets.token_hex(8)}.tmp")
    try:
        remove_leftovers(path.parent, path.name)
        with _written(temporary, folder, write, durable):
            if before is not None:
                before()
            os.replace(temporary, path)
        if durable:
            with contextlib.suppress(OSError):  # some file systems cannot sync a folder
                os.fsync(folder)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(folder)


def _written(temporary: Path, folder: int, write: Callable[[IO[bytes]], object], durable: bool) -> IO[bytes]:
    """Return the whole file, open and so locked. It gets its name once it is whole, if the system can do that."""
    file: IO[bytes]
    try:
        file = open(os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=folder), "wb")  # noqa: SIM115
        with _closed_on_error(file):
            _lock(file)
            _fill(file, write, durable)
            # a descriptor of the folder makes Python call linkat(), which follows the link to the unnamed file
            os.link(f"/proc/self/fd/{file.fileno()}", temporary.name, dst_dir_fd=folder)
    except (AttributeError, OSError):  # not Linux, or a file system without it; a full disk is met again
        file = _named(temporary)
        with _closed_on_error(file):
            _fill(file, write, durable)
    return file


def _named(temporary: Path) -> IO[bytes]:
    """Return a new file with a name, locked."""
    while True:
        file = open(temporary, "xb")  # noqa: SIM115
        _lock(file)
        if temporary.exists():
            return file
        file.close()  # another process took it for a leftover before it was locked


@contextlib.contextmanager
def _closed_on_error(file: IO[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # what it holds cannot be written either
            file.close()
        raise


def _lock(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # a file system without locks: leftovers stay there
        fcntl.flock(file, fcntl.LOCK_EX)


def _fill(file: IO[bytes], write: Callable[[IO[bytes]], object], durable: bool) -> None:
    write(file)
    file.flush()
    if durable:
        os.fsync(file.fileno())


def keep_previous(path: Path) -> None:
    """Make the present file, if any, <name>.bak.

    The link on the way has one name for all processes that save. A file of that name is a whole earlier file, which a killed
    process has left or another one is about to rename, so any process may rename it.
    """
    if not path.exists():
        return
    link, backup = path.with_name(f".{_stem(path.name)}.bak"), path.with_name(path.name + ".bak")
    try:
        try:
            os.link(path, link)
        except FileExistsError:
            _take_further(link, backup)
            os.link(path, link)
    except FileExistsError:  # another process is faster, and does it
        return
    except OSError:  # a file system without hard links
        replace_file(backup, lambda file: _copy(path, file))
        return
    _take_further(link, backup)


def _copy(path: Path, file: IO[bytes]) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file)


def _take_further(link: Path, backup: Path) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):  # another process has done it
            os.replace(link, backup)
    finally:
        link.unlink(missing_ok=True)  # rename() leaves it if both names are links to one file


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove files that killed processes left when they replaced the file of this name, or any file of the folder."""
    stem = None if name is None else _stem(name)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (found := _LEFTOVER.fullmatch(entry.name)) and found[1] == (stem or found[1]):
                _remove_if_left(Path(entry.path), found[2] == _host())


def _remove_if_left(path: Path, ours: bool) -> None:
    with contextlib.suppress(OSError):  # a process is writing it, it has its name by now, or the folder is read-only
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if ours or time.time() - os.fstat(descriptor).st_mtime > _FOREIGN_SECONDS:
                os.unlink(path)
        finally:
            os.close(descriptor)


def keep_aside(path: Path) -> Path:
    """Rename a file that cannot be read to <name>.damaged, or <name>.damaged.2, ...; return the new name."""
    number, aside = 1, path.with_name(f"{path.name}.damaged")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged.{number}")
    os.rename(path, aside)
    return aside


def _stem(name: str) -> str:
    return name if len(os.fsencode(name)) <= _MAX_NAME else hashlib.sha256(os.fsencode(name)).hexdigest()


def _host() -> str:
    return hashlib.sha256(platform.node().encode(errors="surrogateescape")).hexdigest()[:8]


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace a file's text: a crash leaves the old one or the new one. durable: as for replace_file."""
    replace_file(path, lambda file: file.write(text.encode()), durable=durable)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file's content: a crash leaves the old one or the new one."""
    replace_file(path, lambda file: file.write(content))


def append_whole(path: Path, content: bytes, start: bytes = b"") -> None:
    """Append to a file. start: the first bytes of a new file. Raises OSError if it fails; the file is as before then."""
    fill_standard_descriptors()
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        left = content if size else start + content
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(size)
            raise
