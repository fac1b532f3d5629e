"""How many CPUs this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from fastes.system.cgroups import MEMBERSHIP, ROOT, group_folders, read_text


def available_cpus(cgroup_root: str = ROOT, membership: str = MEMBERSHIP) -> int:
    """CPUs in this process's affinity mask, or fewer when its container (cgroup v1 or v2) has a smaller CPU quota."""
    affinity, quota = affinity_cpus(), cpu_quota(cgroup_root, membership)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota - 1e-9)))


def affinity_cpus() -> int:
    """CPUs in this process's affinity mask."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(cgroup_root: str = ROOT, membership: str = MEMBERSHIP) -> float | None:
    """CPUs that the container may use, on average; None where it has no quota."""
    quotas = [_quota_v2(folder) or _quota_v1(folder) for folder in group_folders("cpu", cgroup_root, membership)]
    return min((quota for quota in quotas if quota), default=None)


def _quota_v2(folder: Path) -> float | None:
    fields = read_text(folder / "cpu.max").split()
    return None if len(fields) != 2 or fields[0] == "max" else int(fields[0]) / int(fields[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = read_text(folder / "cpu.cfs_quota_us").strip(), read_text(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None
