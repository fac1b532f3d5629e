"""Risk: a link between machines that is cut, or slow, holds a training up or changes it. Hosts are network namespaces."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import SETTINGS, toy
from processes import environment, wait_until
from training import theta_of, train

pytest.importorskip("ray")
TOOLS = shutil.which("ip"), Path(sys.executable).parent / "ray"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or None in TOOLS or sys.platform != "linux", reason="needs root and `ip netns`"),
]
ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
POPULATION = 16
GENERATIONS = 6
DRIVER = """
import sys
from faults import SETTINGS, toy
from fastes import FastES

model = FastES(toy(step_seconds=0.02), preset="default", cluster=sys.argv[1], **{**SETTINGS, "population_size": 16})

def note(model, record):
    print("generation", record.generation, flush=True)
    return record.generation < 6

model.learn(10**9, note)
print("theta", model.theta.tobytes().hex(), flush=True)
model.close()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)


class Hosts:
    """Hosts of a network of their own, each with an address: a switch, and a cable to each."""

    def __init__(self, count: int) -> None:
        self.name = f"fe{os.getpid() % 100000}"
        self.folder = tempfile.mkdtemp(prefix="fe", dir="/tmp")  # a short name: it has Unix sockets
        self.switch, self.processes = f"{self.name}s", list[subprocess.Popen[str]]()
        self.hosts = [f"{self.name}h{number}" for number in range(count)]
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, host in enumerate(self.hosts):
            cable = f"{self.name}c{number}"
            ip("netns", "add", host)
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", cable, "netns", self.switch)
            ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", cable, "master", "br0")
            ip("-n", self.switch, "link", "set", cable, "up")

    def address(self, number: int) -> str:
        return f"10.77.26.{number + 1}"

    def cut(self, number: int) -> None:
        ip("-n", self.switch, "link", "set", f"{self.name}c{number}", "down")

    def slow_down(self, number: int) -> bool:
        """40 ms of delay, or a megabit a second; False where the kernel has neither."""
        for rule in (["netem", "delay", "40ms"], ["tbf", "rate", "1mbit", "burst", "16kb", "latency", "100ms"]):
            command = ["ip", "netns", "exec", self.hosts[number], "tc", "qdisc", "add", "dev", "eth0", "root", *rule]
            if shutil.which("tc") and subprocess.run(command, capture_output=True, timeout=60).returncode == 0:
                return True
        return False

    def run(self, number: int, *command: str, log: Path) -> subprocess.Popen[str]:
        """In a process group of its own."""
        with log.open("w") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.hosts[number], *command],
                env={**environment(), **ENVIRONMENT},
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for host in self.hosts:
            found = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, timeout=60)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait(60)
        for name in (*self.hosts, self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    made = Hosts(3)
    try:
        yield made
    finally:
        made.end()


def test_a_cut_and_a_slow_link_change_nothing(hosts: Hosts, tmp_path: Path) -> None:
    """A head with the driver, and two nodes: one is cut off in the middle of a generation, the other's link gets slow."""
    command = str(Path(sys.executable).parent / "ray")
    common = "--object-store-memory=100000000", "--block"
    head = hosts.address(0)
    start = command, "start", "--head", f"--node-ip-address={head}", "--port=6379", "--num-cpus=0", "--include-dashboard=false"
    hosts.run(0, *start, f"--temp-dir={hosts.folder}", *common, log=tmp_path / "head.log")
    wait_until(lambda: "Ray runtime started" in (tmp_path / "head.log").read_text(), "the head is there", 60.0)
    for number in (1, 2):
        join = f"--address={head}:6379", f"--node-ip-address={hosts.address(number)}", "--num-cpus=1"
        log = tmp_path / f"{number}.log"
        hosts.run(number, command, "start", *join, *common, log=log)
        # one after the other: they share a disk, and Ray's names of files on it
        wait_until(lambda log=log: "Ray runtime started" in log.read_text(), "a node is there", 60.0)
    (tmp_path / "driver.py").write_text(DRIVER)
    log = tmp_path / "driver.log"
    driver = hosts.run(0, sys.executable, str(tmp_path / "driver.py"), f"{head}:6379", log=log)
    wait_until(lambda: "generation 2\n" in log.read_text() or driver.poll() is not None, "a generation is over", 60.0)
    time.sleep(0.5)
    hosts.cut(2)
    is_slow = hosts.slow_down(1)
    driver.wait(120)
    said = log.read_text()
    assert "theta " in said, said
    expected = train(toy(step_seconds=0.02), GENERATIONS, n_workers=2, **{**SETTINGS, "population_size": POPULATION})
    assert said.split("theta ")[1].split()[0] == theta_of(expected.state).tobytes().hex()
    if not is_slow:
        pytest.skip("this kernel has neither netem nor tbf: the link was cut, but never slow")
