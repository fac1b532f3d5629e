"""How many CPUs this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cpus(cgroup_root: str = "/sys/fs/cgroup", membership: str = "/proc/self/cgroup") -> int:
    """CPUs in this process's affinity mask, or fewer when its container (cgroup v1 or v2) has a smaller CPU quota."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(Path(cgroup_root), Path(membership))
    return max(1, min(affinity, math.ceil(quota - 1e-9))) if quota else affinity


def _cgroup_quota(root: Path, membership: Path) -> float | None:
    """The tightest quota, in CPUs, of this process's cgroup and its parents; None without one."""
    quotas = []
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controllers if "cpu" in controllers.split(",") else None
        if base is None:
            continue
        group = Path(path.lstrip("/"))
        for folder in (base / group, *(base / parent for parent in group.parents)):
            quotas.append(_quota_v2(folder) or _quota_v1(folder))
    found = [quota for quota in quotas if quota]
    return min(found) if found else None


def _quota_v2(folder: Path) -> float | None:
    fields = _read(folder / "cpu.max").split()
    return None if len(fields) != 2 or fields[0] == "max" else int(fields[0]) / int(fields[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
