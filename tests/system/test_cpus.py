"""Risk: more workers than the machine, the affinity mask or the container allows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fastes import FastES
from fastes.system.limits import available_cpus


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)


class Cgroups:
    """A fake /sys/fs/cgroup and /proc/self/cgroup."""

    def __init__(self, folder: Path) -> None:
        self.root, self.membership = folder / "cgroup", folder / "self"
        self.root.mkdir()
        self.membership.write_text("")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v1(self, controllers: str, group: str, quota: str, period: str = "100000") -> None:
        self.write(f"{controllers}/{group}/cpu.cfs_quota_us", quota + "\n")
        self.write(f"{controllers}/{group}/cpu.cfs_period_us", period + "\n")

    def cpus(self) -> int:
        return available_cpus(str(self.root), str(self.membership))


@pytest.fixture
def cgroups(tmp_path: Path) -> Cgroups:
    return Cgroups(tmp_path)


def test_affinity_counts_and_not_the_machine(cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cgroups.cpus() == 8
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    assert cgroups.cpus() == 1


def test_a_system_without_affinity(cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    assert cgroups.cpus() == 64
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert cgroups.cpus() == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("25000 50000", 1),
        ("1600000 100000", 8),
        ("max 100000", 8),
        ("", 8),
    ],
)
def test_quota_of_version_2(text: str, expected: int, cgroups: Cgroups) -> None:
    cgroups.membership.write_text("0::/\n")
    cgroups.write("cpu.max", text + "\n")
    assert cgroups.cpus() == expected


def test_the_tightest_of_the_parents_counts(cgroups: Cgroups) -> None:
    cgroups.membership.write_text("0::/system.slice/docker/abc\n")
    cgroups.write("system.slice/docker/abc/cpu.max", "max 100000\n")
    cgroups.write("system.slice/docker/cpu.max", "300000 100000\n")
    cgroups.write("system.slice/cpu.max", "500000 100000\n")
    assert cgroups.cpus() == 3
    cgroups.write("system.slice/docker/abc/cpu.max", "200000 100000\n")
    assert cgroups.cpus() == 2
    cgroups.write("system.slice/docker/abc/cpu.max", "400000 100000\n")
    assert cgroups.cpus() == 3
    cgroups.write("other/cpu.max", "100000 100000\n")
    assert cgroups.cpus() == 3


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [
        ("200000", "100000", 2),
        ("-1", "100000", 8),
        ("250000", "100000", 3),
        ("20000", "100000", 1),
        ("", "", 8),
        ("0", "100000", 8),
    ],
)
def test_quota_of_version_1(quota: str, period: str, expected: int, cgroups: Cgroups) -> None:
    cgroups.membership.write_text(
        "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n"
    )
    cgroups.v1("cpu,cpuacct", "docker/abc", quota, period)
    cgroups.v1("memory", "docker/abc", "100000")
    assert cgroups.cpus() == expected


def test_a_container_that_sees_its_own_group_as_the_root(cgroups: Cgroups) -> None:
    """Docker with version 1: the membership is the host's path, the mount is the container's own group."""
    cgroups.membership.write_text("4:cpu,cpuacct:/docker/abc\n")
    cgroups.v1("cpu,cpuacct", "", "300000")
    assert cgroups.cpus() == 3


def test_cpusets_are_no_quota(cgroups: Cgroups) -> None:
    cgroups.membership.write_text("4:cpuset:/docker/abc\n")
    cgroups.v1("cpuset", "docker/abc", "100000")
    assert cgroups.cpus() == 8


def test_unreadable_files_mean_no_quota(tmp_path: Path) -> None:
    assert available_cpus(str(tmp_path / "none"), str(tmp_path / "none")) == 8


def test_one_worker_a_cpu_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastes.pools.make_pool.available_cpus", lambda: 3)
    with FastES("CartPole-v1") as model:
        assert model.n_workers == 3


def test_this_machine_has_at_least_one() -> None:
    assert 1 <= available_cpus() <= 8 <= (os.cpu_count() or 8)


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_a_group_may_have_any_name(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path)
    groups.membership.write_bytes(b"0::/caf\xe9\n")
    (groups.root / os.fsdecode(b"caf\xe9")).mkdir()
    (groups.root / os.fsdecode(b"caf\xe9") / "cpu.max").write_text("300000 100000\n")
    assert groups.cpus() == 3
