"""The control groups of this process: where their limits can be read, in version 1 and 2 of cgroups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT, MEMBERSHIP = "/sys/fs/cgroup", "/proc/self/cgroup"


def group_folders(controller: str, root: str = ROOT, membership: str = MEMBERSHIP) -> Iterator[Path]:
    """Folders of this process's group and of its parents, for a controller ('cpu', 'memory', 'pids'). They may be missing."""
    for line in read_text(Path(membership)).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base, group = Path(root) / controllers, Path(path.lstrip("/"))
        yield from (base / group, *(base / parent for parent in group.parents))


def read_text(path: Path) -> str:
    """A file's text, '' where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")  # a group may have any name
    except OSError:
        return ""


def read_number(path: Path) -> int | None:
    """The number in a file; None for 'max', another word, or no file."""
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else None
