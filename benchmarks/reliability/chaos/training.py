"""One stretch of a training in a process of its own: it resumes from its run folder and prints a line per generation."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.reliability.chaos.env import make_env
from fastes import Callback, FastES
from fastes.checkpoints.locate import CHECKPOINT
from fastes.pools.processes.worker import die_with_parent
from fastes.reports.console_log import ConsoleLog
from fastes.runs.run_folder import RunFolder
from fastes.settings.preset_loader import preset_for
from fastes.settings.recipes import PLAIN
from fastes.training.record import Record

_TOTAL = 10**12  # timesteps: more than any run takes, and the same in every stretch, as schedules look at it
_EPISODES = 2  # that a forked copy plays, and the training before it
_MARK = "generation-done"


class Plan(NamedTuple):
    """The training and its end: after `seconds` since the end of the first generation, or, with a goal > 0, there."""

    env: str
    seed: int
    n_workers: int
    folder: str
    order: str
    seconds: float
    goal: int
    checkpoint_seconds: float
    settings: dict[str, Any]


class Line(NamedTuple):
    """A generation's end.

    at: on the monotonic clock, which all processes share.
    busy_seconds: of all workers, for all jobs.
    """

    generation: int
    at: float
    jobs: int
    jobs_rerun: int
    busy_seconds: float


def start_training(plan: Plan, log: Path) -> subprocess.Popen[bytes]:
    """A process that follows the plan; its lines come through stdout, what it prints is added to the log."""
    command = [sys.executable, "-m", "benchmarks.reliability.chaos.training", json.dumps(plan._asdict()), str(os.getpid())]
    with open(log, "ab") as stderr:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, bufsize=0, start_new_session=True
        )


def parse_line(text: str) -> Line | None:
    """None for what others print."""
    if not text.startswith(_MARK):
        return None
    _, generation, at, jobs, rerun, busy = text.split()
    return Line(int(generation), float(at), int(jobs), int(rerun), float(busy))


class Alarm(BaseException):
    """Raised by the handler of SIGALRM, as time limits do."""


class Forks(Callback):
    """Forks the training after a generation in which SIGUSR1 came; the copy has to evaluate as the training does."""

    def __init__(self) -> None:
        self.wanted = False
        self._copies: list[int] = []
        signal.signal(signal.SIGUSR1, self._want)

    def _want(self, *_: object) -> None:
        self.wanted = True

    def on_generation(self, model: FastES, record: Record) -> None:  # noqa: ARG002
        self._copies = [pid for pid in self._copies if not _ended(pid, os.WNOHANG)]
        if not self.wanted:
            return
        self.wanted = False
        expected, training = model.evaluate(_EPISODES).returns.tobytes(), os.getpid()
        pid = os.fork()
        if pid:
            self._copies.append(pid)
            return
        status = 1
        try:
            die_with_parent(training)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            status = int(model.evaluate(_EPISODES).returns.tobytes() != expected)
        finally:
            os._exit(status)

    def wait(self) -> None:
        for pid in self._copies:
            _ended(pid, 0)


def _ended(pid: int, options: int) -> bool:
    """Whether a copy has ended; an error where it came to other returns."""
    found, status = os.waitpid(pid, options)
    if found and status:
        raise RuntimeError(f"a forked copy ended with {os.waitstatus_to_exitcode(status)}: it did not evaluate as its parent")
    return bool(found)


class Reporter(Callback):
    """Prints a Line a generation and ends the stretch."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.end = plan, 0.0

    def on_generation(self, model: FastES, record: Record) -> bool:
        now = time.monotonic()
        jobs = model.settings.population_size  # in which workers were busy
        busy = record.utilisation * record.seconds * model.n_workers
        print(_MARK, record.generation, now, jobs, record.jobs_rerun, busy, flush=True)
        if self.plan.goal:
            return record.generation < self.plan.goal
        self.end = self.end or now + self.plan.seconds
        return now < self.end


def open_model(plan: Plan) -> FastES:
    """The training of the plan's folder, or a new one."""
    factory, checkpoint = partial(make_env, plan.env, Path(plan.order)), Path(plan.folder) / CHECKPOINT
    if checkpoint.exists():
        return FastES.load(checkpoint, factory, plan.n_workers)
    settings = {"target_return": "none", **plan.settings}
    return FastES(factory, preset=preset_for(plan.env) or PLAIN, n_workers=plan.n_workers, seed=plan.seed, **settings)


def train(plan: Plan) -> None:
    """Train until the stretch ends; `learn` is called again after each alarm. The console's file is full all the time."""
    folder = RunFolder(Path(plan.folder), plan.checkpoint_seconds, on_save_error="stop")
    reporter, forks = Reporter(plan), Forks()
    full = open("/dev/full", "w", encoding="ascii")  # noqa: SIM115  closing it fails, too
    with open_model(plan) as model:
        callbacks = [ConsoleLog(full), folder, forks, reporter]
        ended = False
        while not ended and (not plan.goal or model.generation < plan.goal):  # it may be killed after its last checkpoint
            try:
                signal.signal(signal.SIGALRM, _raise_alarm)
                model.learn(_TOTAL - model.num_timesteps, callbacks, reset_num_timesteps=False)
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                ended = True
            except Alarm:
                pass
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        forks.wait()
        model.evaluator.run(model.trainer.drain_evaluations())  # what an alarm, or a kill, has kept `learn` from
        folder.save(model)
    with contextlib.suppress(OSError):
        full.close()


def _raise_alarm(*_: object) -> None:
    raise Alarm


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # of its workers, too: they die often
    train(Plan(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
