"""Use a wheel where a slim container would: in Debian's smallest root, without a compiler, a screen or a graphics driver.

    python -m wheels.slim wheels/dist/fastes-*.whl

Needs root, debootstrap, unshare, 1.5 GB of disk, and the network: packages come from Debian and PyPI. The wheel has to be one
for that Debian's Python. pip's settings come from variables of the environment (PIP_*).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from wheels.build import run

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
EGL = "apt-get install libegl1 libopengl0 libgl1-mesa-dri"  # what fastes names, and what then suffices

# The root is mounted on itself so that it can be made read-only; all mounts go with the namespace.
ENTER = """set -e
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
if [ "$PROC" ]; then mount -t proc proc "$ROOT/proc"; fi
if [ "$SHM" ]; then mkdir -p "$ROOT/dev/shm"; mount -t tmpfs -o "size=$SHM" tmpfs "$ROOT/dev/shm"
else rmdir "$ROOT/dev/shm" 2>/dev/null || true; fi
if [ "$READ_ONLY" ]; then mount -o remount,ro,bind "$ROOT"; fi
exec chroot ${NOBODY:+--userspec=65534:65534} "$ROOT" env -i "$@"
"""


class Container(NamedTuple):
    """A root as a container has it. shm: size of /dev/shm, '' for none. nobody: a user without a home."""

    root: Path
    proc: bool = True
    shm: str = "64m"
    read_only: bool = False
    nobody: bool = False
    ascii: bool = False

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        outside = {"ROOT": str(self.root), "SHM": self.shm, "PROC": "1" * self.proc}
        outside |= {"READ_ONLY": "1" * self.read_only, "NOBODY": "1" * self.nobody}
        inside = {"PATH": "/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CC": "/bin/false", "DEBIAN_FRONTEND": "noninteractive"}
        inside |= settings_of_pip() | (ASCII if self.ascii else {}) | ({} if self.nobody else {"HOME": "/root"})
        words = [f"{name}={value}" for name, value in inside.items()]
        command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh", *words, "sh", "-ec", script]
        return subprocess.run(
            command,
            env={**os.environ, **outside},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


def settings_of_pip() -> dict[str, str]:
    """The environment's, less paths of this machine; its certificates are copied."""
    found = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") and not value.startswith(("/", "file:"))
    }
    return {**found, "PIP_CERT": "/certificates.pem"} if "PIP_CERT" in os.environ else found


def checks(root: Path, wheel: str) -> list[tuple[str, Container, str, str]]:
    """What is done, where, how, and what has to be said; each has to end well. A `!` turns that around."""
    usual, hard = Container(root), Container(root, proc=False, shm="", nobody=True, ascii=True)
    train = "cd /tmp; fastes train CartPole-v1 --seed 0 --runs"
    use = "fastes eval $run --episodes 3; fastes play $run --video $run/v.mp4; fastes plot $run"
    robot = "cd /tmp; fastes play runs/HalfCheetah-v5/1 --video robot.mp4"
    return [
        ("no compiler", usual, "for name in cc gcc clang; do ! command -v $name || exit 1; done", ""),
        (
            "install",
            usual,
            f"python3 -m venv /venv; pip install -q '/{wheel}[mujoco,plots,video]'; fastes --version",
            "fastes ",
        ),
        ("train CartPole-v1", usual, f"{train} runs", "solved"),
        ("use it", usual, f"cd /tmp; run=runs/CartPole-v1/1; {use}", "v.mp4: "),
        (
            "train HalfCheetah-v5",
            usual,
            "cd /tmp; fastes train HalfCheetah-v5 --seed 0 --total-timesteps 100000",
            "to play it back",
        ),
        ("draw it without libraries", usual, f"! {{ {robot}; }}", EGL),
        ("doctor", usual, "fastes doctor", EGL),
        ("doctor, read-only root", usual._replace(read_only=True), "fastes doctor", "All that training needs works"),
        ("doctor, no /proc, no /dev/shm, nobody, ASCII", hard, "fastes doctor", "All that training needs works"),
        ("train there", hard, f"{train} /tmp/hard; run=hard/CartPole-v1/1; {use}", "v.mp4: "),
        ("train with 4 kB of /dev/shm", usual._replace(shm="4k"), f"{train} /tmp/small", "solved"),
        ("the libraries named", usual, f"apt-get update -q; {EGL} -yq --no-install-recommends; {robot}", "robot.mp4: "),
        ("doctor, libraries installed", usual, "fastes doctor", "MuJoCo, egl      works"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m wheels.slim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--suite", default="bookworm", help="of Debian (default: bookworm, with Python 3.11)")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        how = ["--variant=minbase", "--include=python3-venv,ca-certificates"]
        run("debootstrap", *how, arguments.suite, root, arguments.mirror)
        root.parent.chmod(0o755)  # for users other than root
        shutil.copy(arguments.wheel, root)
        for source, target in ((os.environ.get("PIP_CERT"), "certificates.pem"), ("/etc/resolv.conf", "etc/resolv.conf")):
            if source:
                shutil.copy(source, root / target)
        for name, container, script, said in checks(root, arguments.wheel.name):
            began = time.monotonic()
            done = container.run(script)
            works = done.returncode == 0 and said in done.stdout
            failed += not works
            print(f"{name:<46} {'ok' if works else 'FAILED'} {time.monotonic() - began:6.1f} s", flush=True)
            if not works:
                print(f"exit status {done.returncode}, expected 0 and {said!r} in:\n{done.stdout}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
