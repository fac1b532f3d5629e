"""Faults for a training that runs in another process: signals to its workers, orders to their environments, pauses."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reliability.chaos.env import EXIT, HANG, SYS_EXIT, give_order, takers
from fastes.settings.settings import setting_names

SIGNALS = {
    "kill": signal.SIGKILL,
    "segv": signal.SIGSEGV,
    "abort": signal.SIGABRT,
    "bus": signal.SIGBUS,
    "stop": signal.SIGSTOP,
}
TO_TRAINING = {"alarm": signal.SIGALRM, "fork": signal.SIGUSR1}  # benchmarks.reliability.chaos.training has their handlers
PAUSE, KILL_TRAINING = "pause", "kill-training"
# No limit on a worker's memory: a failed allocation is a MemoryError of the environment, which ends a training by intent.
KINDS = {
    "kill": "worker: SIGKILL",
    "segv": "worker: SIGSEGV",
    "abort": "worker: SIGABRT",
    "bus": "worker: SIGBUS",
    "stop": "worker: SIGSTOP, no SIGCONT",
    EXIT: "worker: os._exit in env.step",
    SYS_EXIT: "worker: sys.exit in env.step",
    HANG: "worker: env.step hangs",
    "alarm": "training process: an exception from SIGALRM's handler, then `learn` again",
    "fork": "training process: forks, and the copy evaluates on workers of its own",
    PAUSE: "training process: SIGSTOP, SIGCONT after 0.5 s",
    KILL_TRAINING: "training process: SIGKILL, then resumed",
}
TIMEOUT_SETTING = "step_timeout"
_PAUSE_SECONDS = 0.5


def possible_kinds() -> list[str]:
    """All kinds, without hanging if no setting ends it."""
    return [kind for kind in KINDS if kind != HANG or TIMEOUT_SETTING in setting_names()]


class Injector:
    """Injects faults of random kinds at random times, on average one in `every` seconds.

    counts: faults by kind.
    idle_seconds: from each fault to the end of the worker that it hit, summed.
    spans: of the faults since `begin`, start and end.
    """

    def __init__(self, kinds: Sequence[str], every: float, order: Path, rng: random.Random) -> None:
        self.kinds, self.every, self.order, self.rng = [k for k in kinds if k != KILL_TRAINING], every, order, rng
        self.counts: Counter[str] = Counter()
        self.idle_seconds, self.last = 0.0, "none yet"
        self.spans: list[tuple[float, float]] = []
        self._hit: dict[int, tuple[int, float]] = {}  # pidfd -> worker that a fault hit, when
        self._due = 0.0

    @property
    def worker_faults(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind not in (PAUSE, KILL_TRAINING, *TO_TRAINING))

    def begin(self) -> None:
        """A stretch begins: the next fault comes within `every` seconds."""
        self.spans.clear()
        self._due = time.monotonic() + self.every * self.rng.random()

    def step(self, training: int) -> None:
        """Look after the workers that were hit, and inject a fault into a training (its process id) when it is due."""
        for pid in takers(self.order):
            self._watch(pid)
        self._note_ends()
        if self.kinds and time.monotonic() >= self._due and self._inject(self.rng.choice(self.kinds), training):
            self._due = time.monotonic() + self.every * self.rng.uniform(0.5, 1.5)

    def finish(self) -> None:
        """The training has ended: no worker is left to obey an order, or to wait for."""
        self.order.unlink(missing_ok=True)
        takers(self.order)
        for pidfd in list(self._hit):
            self._end(pidfd)

    def note(self, kind: str) -> None:
        self.counts[kind] += 1
        self.last = KINDS[kind]

    def _inject(self, kind: str, training: int) -> bool:
        """False if no worker can be hit right now."""
        if kind == PAUSE:
            started = time.monotonic()
            os.kill(training, signal.SIGSTOP)  # our child, not waited for: the number is its own
            time.sleep(_PAUSE_SECONDS)
            os.kill(training, signal.SIGCONT)
            self.spans.append((started, time.monotonic()))
        elif kind in TO_TRAINING:
            os.kill(training, TO_TRAINING[kind])
            self.spans.append((time.monotonic(),) * 2)
        elif kind in SIGNALS:
            hit = {pid for pid, _ in self._hit.values()}
            workers = [pid for pid in workers_of(training) if pid not in hit]
            if not workers or not self._signal(self.rng.choice(workers), SIGNALS[kind], training):
                return False
        elif self.order.exists():
            return False  # the last order waits for someone
        else:
            give_order(self.order, kind)
        self.note(kind)
        return True

    def _signal(self, pid: int, number: signal.Signals, training: int) -> bool:
        pidfd = self._watch(pid)
        if pidfd is None:
            return False
        if pid not in workers_of(training):  # the number may be another process's by now
            del self._hit[pidfd]
            os.close(pidfd)
            return False
        signal.pidfd_send_signal(pidfd, number)
        return True

    def _watch(self, pid: int) -> int | None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None  # gone already
        self._hit[pidfd] = pid, time.monotonic()
        return pidfd

    def _note_ends(self) -> None:
        for pidfd in ended(list(self._hit), 0.0):
            self._end(pidfd)

    def _end(self, pidfd: int) -> None:
        started, now = self._hit.pop(pidfd)[1], time.monotonic()
        os.close(pidfd)
        self.idle_seconds += now - started
        self.spans.append((started, now))


def ended(pidfds: Sequence[int], seconds: float) -> list[int]:
    """Return those whose process has ended; wait up to `seconds` for the first one."""
    poll = select.poll()
    for pidfd in pidfds:
        poll.register(pidfd, select.POLLIN)
    return [pidfd for pidfd, _ in poll.poll(1000 * seconds)] if pidfds else []


def kill_with_children(training: int, seconds: float = 5.0) -> int:
    """SIGKILL a training process; returns how many of its workers outlive it by `seconds`."""
    pidfds = [os.pidfd_open(pid) for pid in children(training)]
    os.kill(training, signal.SIGKILL)
    limit, left = time.monotonic() + seconds, list(pidfds)
    while left and time.monotonic() < limit:
        over = ended(left, 0.1)
        left = [pidfd for pidfd in left if pidfd not in over]
    for pidfd in pidfds:
        os.close(pidfd)
    return len(left)


def workers_of(training: int) -> list[int]:
    """Process ids of a training's live workers: its children except forked copies of it."""
    own = _command(training)
    return [pid for pid in children(training) if _command(pid) != own]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """Process ids of the live children of a process, sorted."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == pid and state not in "ZX":
                found.append(int(entry))
    return sorted(found)
