"""The simulation beside real trainings: on 1 and 2 workers that compute, and on more than there are cores that only wait."""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from benchmarks.speed.scaling.clock import FOREVER, ClockedTraining, PlayedGeneration
from benchmarks.speed.scaling.cores import FairCores
from benchmarks.speed.scaling.costs import Costs, growing_horizon
from benchmarks.speed.scaling.machine import Machine
from benchmarks.speed.scaling.training import Generation, Plan, Way, simulate
from fastes import Callback, FastES
from fastes.settings.preset_loader import preset_for
from fastes.training.record import Record

_STEP_SECONDS, _CUT, _WHOLE, _SPREAD, _CANDIDATES = 4e-3, 25, 100, 0.05, 16  # of Sleepers


class Compared(NamedTuple):
    """Simulated over real seconds of the same generations, (blocks,), and the share of real time for which workers had a core.

    Workers that compute share cores with whatever else runs, and the simulation has them alone: real seconds are multiplied by
    the share.
    """

    what: str
    workers: int
    ratios: list[float]
    shares: list[float]

    def median(self) -> float:
        return statistics.median(self.ratios)


class Block(Callback):
    """Plays `count` generations, and keeps their records and the CPU seconds of the workers."""

    def __init__(self, count: int, workers: list[int]) -> None:
        self.count, self.workers, self.records = count, workers, list[Record]()
        self.began = cpu_seconds(workers)

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.records.append(record)
        return len(self.records) < self.count

    def seconds(self) -> float:
        """Wall seconds of the generations, summed."""
        return sum(record.seconds for record in self.records)

    def share_on_cores(self, n_workers: int) -> float:
        """CPU seconds of workers over the seconds that they spent in episodes."""
        in_episodes = sum(n_workers * record.utilisation * record.seconds for record in self.records)
        return (cpu_seconds(self.workers) - self.began) / in_episodes


def cpu_seconds(processes: Sequence[int]) -> float:
    """CPU seconds of processes since they began."""
    return sum(time.clock_gettime((~process << 3) | 2) for process in processes)  # the clock of clock_getcpuclockid(3)


def children() -> set[int]:
    """Processes that this one has started."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, path.read_text(encoding="ascii").split()))


class RealTraining:
    """A training on workers, played in blocks."""

    def __init__(self, env: Any, n_workers: int, **settings: Any) -> None:
        before = children()
        self.model = FastES(env, n_workers=n_workers, seed=0, target_return="none", **settings)
        self.model.learn(FOREVER, Block(1, []), reset_num_timesteps=False)
        self.workers = sorted(children() - before)

    def play(self, count: int) -> Block:
        block = Block(count, self.workers)
        self.model.learn(FOREVER, block, reset_num_timesteps=False)
        return block


def lag_of(model: FastES) -> int:
    """Generations after which the model tells of an evaluation."""
    return getattr(model.settings, "eval_lag", 0)  # a version without the setting waits for evaluations


def replayed(generations: list[PlayedGeneration], costs: Costs, workers: int) -> Plan:
    """A plan of jobs that take what they took under the clock."""
    plan = [
        Generation(*([played.seconds() + costs.job_seconds for played in episodes] for episodes in (candidates, evaluations)))
        for candidates, evaluations, _ in generations
    ]
    return Plan([], [], plan, costs.update_seconds + workers * costs.message_seconds)


def check_computing(costs: Costs, workers: Sequence[int], seconds: float, count: int = 3) -> list[Compared]:
    """Blocks of the same generations under the clock, which the simulation replays, and on workers, in turn."""
    clocked = ClockedTraining(costs.env, 0)
    clocked.generation()
    real = {number: RealTraining(costs.env, number, preset=preset_for(costs.env)) for number in workers}
    found = {number: Compared(costs.env, number, [], []) for number in workers}
    until = time.perf_counter() + seconds
    try:
        while time.perf_counter() < until:
            generations = [clocked.generation() for _ in range(count)]
            for number, training in real.items():
                block = training.play(count)
                plan, way = replayed(generations, costs, number), Way(lag_of(training.model))
                simulated = simulate(Machine(FairCores(number), number), [plan], way)
                found[number].shares.append(block.share_on_cores(number))
                found[number].ratios.append(simulated / (block.seconds() * found[number].shares[-1]))
    finally:
        for training in real.values():
            training.model.close()
    return list(found.values())


class Sleeper(gymnasium.Env[Any, Any]):
    """Episodes that take time and no CPU: any number of workers can play them at once. The seed makes one slower or faster."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        self.began, self.steps = time.perf_counter(), 0
        self.rng = random.Random(seed)
        self.factor = math.exp(self.rng.gauss(0.0, _SPREAD))
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        self.steps += 1
        time.sleep(max(0.0, self.began + self.steps * _STEP_SECONDS * self.factor - time.perf_counter()))
        return np.zeros(2), self.rng.random(), False, self.steps == _WHOLE, {}


def check_waiting(costs: Costs, workers: int, count: int, **settings: Any) -> Compared:
    """Generations of Sleepers: 16 candidates that are cut after a quarter of the time that an evaluation takes."""
    shape = {"population_size": _CANDIDATES, "episode_cap": "grow", "episode_cap_start": _CUT, "episode_cap_factor": 1.001}
    training = RealTraining(Sleeper, workers, policy="LinearPolicy", **shape, **settings)
    try:
        block = training.play(count)
    finally:
        training.model.close()
    rng = np.random.default_rng(0)
    plan = []
    for cut in growing_horizon(_CUT, 1.001, _WHOLE)[1 : count + 1]:  # one was played to start the workers
        pairs = np.exp(rng.normal(0.0, _SPREAD, _CANDIDATES // 2))  # both sides of a pair share the seed
        candidates = (cut * _STEP_SECONDS * np.repeat(pairs, 2) + costs.job_seconds).tolist()
        evaluation = _WHOLE * _STEP_SECONDS * math.exp(rng.normal(0.0, _SPREAD)) + costs.job_seconds
        plan.append(Generation(candidates, [evaluation]))
    update_seconds = costs.update_seconds + workers * costs.message_seconds
    machine = Machine(FairCores(workers + 1), workers)
    simulated = simulate(machine, [Plan([], [], plan, update_seconds)], Way(lag_of(training.model)))
    return Compared("episodes that wait", workers, [simulated / block.seconds()], [1.0])
