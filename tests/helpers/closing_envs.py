"""Environments that have something to close. A module of their own: workers import it, and would import all of a test's."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import Any

from envs_for_tests import Toy


class Simulated(Toy):
    """Starts a program, as simulators do, and ends it in close. `log` gets its process id, with a minus when it is closed.

    how: 'program' or 'fork', a process of multiprocessing. closing: what close does besides.
    """

    def __init__(self, log: str, how: str = "program", closing: str = "", worker_only: int = 0, **habits: Any) -> None:
        super().__init__(**habits)
        self.log, self.closing = log, closing if os.getpid() != worker_only else ""
        self.program: Any
        if how == "fork":
            self.program = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100.0,), daemon=True)
            self.program.start()
        else:
            self.program = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.note(self.program.pid)

    def note(self, number: int) -> None:
        with open(self.log, "a") as file:
            file.write(f"{number}\n")

    def close(self) -> None:
        pid = self.program.pid
        if self.closing == "hang":
            self.program.kill()
            time.sleep(100.0)
        if self.closing == "print":
            for _ in range(300):
                print("bye " * 1000, file=sys.stderr, flush=True)
        self.program.terminate()
        (self.program.wait if isinstance(self.program, subprocess.Popen) else self.program.join)()
        self.note(-pid)
        if self.closing == "raise":
            raise ValueError("close raises")
        if self.closing == "exit":
            sys.exit(3)


class Stubborn(Simulated):
    """Swallows every exception of a step, and takes SIGTERM for itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        try:
            self._misbehave()
        except BaseException as error:
            if isinstance(error, ValueError):
                raise
        self.steps -= 1
        return super().step(action)


class Slow(Simulated):
    """Takes a second to build where `slow` is written to, and says so there."""

    def __init__(self, log: str, slow: str, parent: int, **habits: Any) -> None:
        super().__init__(log, **habits)
        if os.getpid() != parent and os.path.exists(slow):
            with open(slow, "a") as file:
                file.write("building\n")
            time.sleep(1.0)


class Unclosable(Toy):
    """how: what close does, in any process."""

    def __init__(self, how: str = "raise", **habits: Any) -> None:
        super().__init__(**habits)
        self.how = how

    def close(self) -> None:
        if self.how == "exit":
            sys.exit(3)
        raise ValueError("close raises")
