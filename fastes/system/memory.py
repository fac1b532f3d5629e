"""How much memory there is to have, and a check of what is asked for, before it is."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastes.system.cgroups import MEMBERSHIP, ROOT, group_folders, read_number, read_text

MEMINFO = "/proc/meminfo"
_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of cgroup v2, v1
_WORTH_A_LOOK = 64 << 20  # bytes; less than this is there, or nothing works
_NAMED = 0.05  # the share of all from which on a part is named
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def available_memory(cgroup_root: str = ROOT, membership: str = MEMBERSHIP, meminfo: str = MEMINFO) -> int | None:
    """Bytes that this machine, or the container (cgroup v1 or v2), has left for this process; None where nobody says."""
    found = [left for folder in group_folders("memory", cgroup_root, membership) for left in _left_in_group(folder)]
    of_machine = _of_machine("MemAvailable", meminfo)
    return min([*found, *([] if of_machine is None else [of_machine])], default=None)


def memory_limit(cgroup_root: str = ROOT, membership: str = MEMBERSHIP, meminfo: str = MEMINFO) -> int | None:
    """Bytes that the container (cgroup v1 or v2) may have; None where that is all that the machine has, or nobody says."""
    folders = group_folders("memory", cgroup_root, membership)
    limits = [most for folder in folders for name in _LIMITS if (most := read_number(folder / name)) is not None]
    smallest, total = min(limits, default=None), _of_machine("MemTotal", meminfo)
    return None if smallest is None or (total is not None and smallest >= total) else smallest


def _of_machine(wanted: str, meminfo: str) -> int | None:
    for line in read_text(Path(meminfo)).splitlines():
        name, _, rest = line.partition(":")
        if name == wanted and rest.split()[:1] and rest.split()[0].isdecimal():
            return 1024 * int(rest.split()[0])
    return None


def _left_in_group(folder: Path) -> Iterator[int]:
    """What a group may still have; pages of files that nobody has used for long are given back on demand."""
    for limit, used, cached in (
        (_LIMITS[0], "memory.current", "inactive_file"),
        (_LIMITS[1], "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = read_number(folder / limit), read_number(folder / used)
        if most is not None and now is not None:
            yield max(0, most - max(0, now - _statistic(folder / "memory.stat", cached)))


def _statistic(path: Path, name: str) -> int:
    for line in read_text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0


def check_memory(parts: Mapping[str, int], advice: str) -> None:
    """OSError (ENOMEM) when more is asked for than there is.

    parts: what it is for -> bytes.
    advice: what to change.
    """
    total = sum(parts.values())
    if total < _WORTH_A_LOOK:
        return
    available = available_memory()
    if available is None or total <= available:
        return
    largest = sorted(parts.items(), key=lambda part: -part[1])
    named = [f"{in_bytes(size)} for {what}" for what, size in largest if size >= _NAMED * total]
    needed = f"{in_bytes(total)} needed ({', '.join(named)})"
    raise OSError(errno.ENOMEM, f"not enough memory: {needed}, {in_bytes(available)} available; {advice}")


def in_bytes(size: float) -> str:
    """A number of bytes in a unit of which there are 1 to 999, as '14.7 GB'."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000.0
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
