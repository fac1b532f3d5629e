"""Descriptors and processes that run out: which limit it was, what it is, and what to do."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

from fastes.system.cgroups import MEMBERSHIP, ROOT, group_folders, read_number

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def explained(error: Exception, n_workers: int, running: int, cgroup_root: str = ROOT, membership: str = MEMBERSHIP) -> OSError:
    """An error of the same number that names the limit. running: workers that there are. Other errors are raised again."""
    if isinstance(error, RuntimeError) and "start new thread" in str(error):  # threading's word for EAGAIN
        error = BlockingIOError(errno.EAGAIN, str(error))
    if not isinstance(error, OSError) or error.errno not in (*OUT_OF_DESCRIPTORS, errno.EAGAIN):
        raise error
    what = _of_processes(cgroup_root, membership) if error.errno == errno.EAGAIN else _of_descriptors(error.errno)
    asked = f"{running} of {n_workers} workers could be started, then no more"
    return OSError(error.errno, f"{asked} ({error.strerror}): {what}, or use fewer workers (n_workers)")


def _of_descriptors(number: int) -> str:
    if number == errno.ENFILE:
        most = read_number(Path("/proc/sys/fs/file-max"))
        return f"the machine has as many files open as it may, {most} (fs.file-max). Close programs"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process has {_said(soft)} files open, as many as it may (RLIMIT_NOFILE, hard limit {_said(hard)}), and a worker "
        "takes 3. Raise that with `ulimit -n`"
    )


def _of_processes(cgroup_root: str, membership: str) -> str:
    limits = []
    for folder in group_folders("pids", cgroup_root, membership):
        if (most := read_number(folder / "pids.max")) is not None:
            limits.append(f"{most} in the container ({folder / 'pids.max'}, {read_number(folder / 'pids.current')} are in use)")
    if hasattr(resource, "RLIMIT_NPROC"):
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        limits.append(f"{_said(soft)} of this user (RLIMIT_NPROC, `ulimit -u`, hard limit {_said(hard)})")
    for path in ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"):
        if (most := read_number(Path(path))) is not None:
            limits.append(f"{most} on the machine ({path})")
    return f"there may be so many processes and threads, and no more: {'; '.join(limits)}. Raise the limit that is reached"


def _said(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
