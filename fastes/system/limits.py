"""Limits of what this process may use: CPUs, memory, descriptors and processes, of the machine and of its container.

A container's limits are those of its control groups (cgroup v1 or v2). Functions that read them take the folder of control
groups, the file that says in which groups the process is, and the file of the machine's memory.
"""

from __future__ import annotations

import errno
import math
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_ROOT, _MEMBERSHIP, _MEMINFO = "/sys/fs/cgroup", "/proc/self/cgroup", "/proc/meminfo"
_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of cgroup v2, v1
WORTH_A_LOOK = 64 << 20  # bytes; a smaller request is not checked
_NAMED = 0.05  # share of all bytes from which a part is named in an error
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


# --- CPUs -----------------------------------------------------------------------------------------------------------


def available_cpus(cgroup_root: str = _ROOT, membership: str = _MEMBERSHIP) -> int:
    """Return the CPUs in this process's affinity mask, or fewer if its container has a smaller CPU quota."""
    affinity, quota = affinity_cpus(), cpu_quota(cgroup_root, membership)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota - 1e-9)))


def affinity_cpus() -> int:
    """Return the number of CPUs in this process's affinity mask."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(cgroup_root: str = _ROOT, membership: str = _MEMBERSHIP) -> float | None:
    """Return the CPUs that the container may use on average; None if it has no quota."""
    quotas = [_quota_v2(folder) or _quota_v1(folder) for folder in _group_folders("cpu", cgroup_root, membership)]
    return min((quota for quota in quotas if quota), default=None)


def _quota_v2(folder: Path) -> float | None:
    fields = _read_text(folder / "cpu.max").split()
    return None if len(fields) != 2 or fields[0] == "max" else int(fields[0]) / int(fields[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read_text(folder / "cpu.cfs_quota_us").strip(), _read_text(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


# --- memory ---------------------------------------------------------------------------------------------------------


def available_memory(cgroup_root: str = _ROOT, membership: str = _MEMBERSHIP, meminfo: str = _MEMINFO) -> int | None:
    """Return the bytes that the machine or the container has left for this process; None if neither says."""
    found = [left for folder in _group_folders("memory", cgroup_root, membership) for left in _left_in_group(folder)]
    of_machine = _of_machine("MemAvailable", meminfo)
    return min([*found, *([] if of_machine is None else [of_machine])], default=None)


def memory_limit(cgroup_root: str = _ROOT, membership: str = _MEMBERSHIP, meminfo: str = _MEMINFO) -> int | None:
    """Return the bytes that the container may use; None if it has no limit below the machine's memory."""
    folders = _group_folders("memory", cgroup_root, membership)
    limits = [most for folder in folders for name in _MEMORY_LIMITS if (most := _read_number(folder / name)) is not None]
    smallest, total = min(limits, default=None), _of_machine("MemTotal", meminfo)
    return None if smallest is None or (total is not None and smallest >= total) else smallest


def _of_machine(wanted: str, meminfo: str) -> int | None:
    for line in _read_text(Path(meminfo)).splitlines():
        name, _, rest = line.partition(":")
        if name == wanted and rest.split()[:1] and rest.split()[0].isdecimal():
            return 1024 * int(rest.split()[0])
    return None


def _left_in_group(folder: Path) -> Iterator[int]:
    """Yield the bytes that a group has left. Cached pages of files that are not in use are given back on demand."""
    for limit, used, cached in (
        (_MEMORY_LIMITS[0], "memory.current", "inactive_file"),
        (_MEMORY_LIMITS[1], "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = _read_number(folder / limit), _read_number(folder / used)
        if most is not None and now is not None:
            yield max(0, most - max(0, now - _statistic(folder / "memory.stat", cached)))


def _statistic(path: Path, name: str) -> int:
    for line in _read_text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0


def check_memory(parts: Mapping[str, int], advice: str) -> None:
    """Raise OSError (ENOMEM) if more memory is needed than is available.

    Args:
        parts: Purpose -> bytes.
        advice: The change that the error recommends.
    """
    total = sum(parts.values())
    if total < WORTH_A_LOOK:
        return
    available = available_memory()
    if available is None or total <= available:
        return
    largest = sorted(parts.items(), key=lambda part: -part[1])
    named = [f"{in_bytes(size)} for {what}" for what, size in largest if size >= _NAMED * total]
    needed = f"{in_bytes(total)} needed ({', '.join(named)})"
    raise OSError(errno.ENOMEM, f"not enough memory: {needed}, {in_bytes(available)} available; {advice}")


def in_bytes(size: float) -> str:
    """Return a number of bytes in the unit that makes it 1 to 999, as '14.7 GB'."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000.0
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"


# --- descriptors and processes --------------------------------------------------------------------------------------


def explained(
    error: Exception, n_workers: int, running: int, cgroup_root: str = _ROOT, membership: str = _MEMBERSHIP
) -> OSError:
    """Return an error of the same number that names the limit which stopped the start of a worker.

    Args:
        error: The error. One that no limit has caused is raised again.
        n_workers: Workers that were to be started.
        running: Workers that are running.
    """
    if isinstance(error, RuntimeError) and "start new thread" in str(error):  # threading's word for EAGAIN
        error = BlockingIOError(errno.EAGAIN, str(error))
    if not isinstance(error, OSError) or error.errno not in (*OUT_OF_DESCRIPTORS, errno.EAGAIN):
        raise error
    what = _of_processes(cgroup_root, membership) if error.errno == errno.EAGAIN else _of_descriptors(error.errno)
    asked = f"{running} of {n_workers} workers could be started, then none"
    return OSError(error.errno, f"{asked} ({error.strerror}): {what}, or use fewer workers (n_workers)")


def _of_descriptors(number: int) -> str:
    if number == errno.ENFILE:
        most = _read_number(Path("/proc/sys/fs/file-max"))
        return f"the machine has as many files open as it may, {most} (fs.file-max). Close programs"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process has {_said(soft)} files open, as many as it may (RLIMIT_NOFILE, hard limit {_said(hard)}), and a worker "
        "takes 3. Raise that with `ulimit -n`"
    )


def _of_processes(cgroup_root: str, membership: str) -> str:
    limits = []
    for folder in _group_folders("pids", cgroup_root, membership):
        if (most := _read_number(folder / "pids.max")) is not None:
            limits.append(
                f"{most} in the container ({folder / 'pids.max'}, {_read_number(folder / 'pids.current')} are in use)"
            )
    if hasattr(resource, "RLIMIT_NPROC"):
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        limits.append(f"{_said(soft)} of this user (RLIMIT_NPROC, `ulimit -u`, hard limit {_said(hard)})")
    for path in ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"):
        if (most := _read_number(Path(path))) is not None:
            limits.append(f"{most} on the machine ({path})")
    return f"the number of processes and threads is limited: {'; '.join(limits)}. Raise the limit that is reached"


def _said(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


# --- control groups -------------------------------------------------------------------------------------------------


def _group_folders(controller: str, root: str, membership: str) -> Iterator[Path]:
    """Yield the folders of this process's group and its parents; any may be missing. controller: such as 'memory'."""
    for line in _read_text(Path(membership)).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base, group = Path(root) / controllers, Path(path.lstrip("/"))
        yield from (base / group, *(base / parent for parent in group.parents))


def _read_text(path: Path) -> str:
    """Return a file's text, '' if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")  # a group may have any name
    except OSError:
        return ""


def _read_number(path: Path) -> int | None:
    """Return the number in a file; None for 'max', another word, or no file."""
    text = _read_text(path).strip()
    return int(text) if text.isdecimal() else None
