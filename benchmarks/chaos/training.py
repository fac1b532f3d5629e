"""One stretch of a training in a process of its own: it goes on from its run folder and says a line a generation."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chaos.env import make_env
from fastes import Callback, FastES
from fastes.logger import Record
from fastes.parallel.worker import die_with_parent
from fastes.presets import preset_for
from fastes.run_folder import CHECKPOINT, RunFolder

_TOTAL = 10**12  # timesteps: more than any run takes, and the same in every stretch, as schedules look at it
_MARK = "generation-done"


class Plan(NamedTuple):
    """What to train and when to stop: after `seconds` since the end of the first generation, or, with a goal > 0, there."""

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
    """A generation's end. at: on the monotonic clock, which all processes share. busy_seconds: of all workers, for all jobs."""

    generation: int
    at: float
    jobs: int
    jobs_rerun: int
    busy_seconds: float


def start_training(plan: Plan, log: Path) -> subprocess.Popen[bytes]:
    """A process that follows the plan; its lines come through stdout, what it prints is added to the log."""
    command = [sys.executable, "-m", "benchmarks.chaos.training", json.dumps(plan._asdict()), str(os.getpid())]
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


class Reporter(Callback):
    """Prints a Line a generation and ends the stretch."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.end = plan, 0.0

    def on_generation(self, model: FastES, record: Record) -> bool:
        now = time.monotonic()
        jobs = model.settings.population_size + model.settings.eval_episodes
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
    return FastES(factory, preset=preset_for(plan.env), n_workers=plan.n_workers, seed=plan.seed, **settings)


def train(plan: Plan) -> None:
    folder = RunFolder(Path(plan.folder), plan.checkpoint_seconds, on_save_error="stop")
    with open_model(plan) as model:
        if not plan.goal or model.generation < plan.goal:  # a training may be killed after its last checkpoint
            model.learn(_TOTAL - model.num_timesteps, [folder, Reporter(plan)], reset_num_timesteps=False)
        folder.save(model)


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # of its workers, too: they die often
    train(Plan(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
