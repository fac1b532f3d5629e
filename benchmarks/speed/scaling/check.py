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
import numpy.typing as npt

from benchmarks.speed.scaling.clock import FOREVER, ClockedTraining, PlayedGeneration
from benchmarks.speed.scaling.cores import FairCores
from benchmarks.speed.scaling.costs import Costs, growing_horizon, preset_measured
from benchmarks.speed.scaling.machine import Machine
from benchmarks.speed.scaling.training import Generation, Training
from fastes import Callback, FastES
from fastes.training.record import Record

Float64 = npt.NDArray[np.float64]
STEP_SECONDS, _CUT, _WHOLE, _SPREAD, _CANDIDATES = 10e-3, 25, 100, 0.02, 16  # of Sleepers


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
    """Plays `count` generations, and keeps their wall seconds, each from one's end to the next one's."""

    def __init__(self, count: int) -> None:
        self.count, self.seconds = count, list[float]()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.seconds.append(record.seconds)
        return len(self.seconds) < self.count


def children() -> set[int]:
    """Processes that this one has started."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, path.read_text(encoding="ascii").split()))


def running_and_waiting(processes: Sequence[int]) -> Float64:
    """Seconds, float64 (2,), for which they have had a core, and for which they could have used one that others had."""
    stats = [Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[:2] for process in processes]
    seconds: Float64 = np.array(stats, dtype=np.float64).sum(axis=0) / 1e9
    return seconds


class RealTraining:
    """A training on workers, played in blocks. processes: its workers, spare ones too."""

    def __init__(self, env: Any, n_workers: int, **settings: Any) -> None:
        before = children()
        self.model = FastES(env, n_workers=n_workers, seed=0, target_return="none", **settings)
        self.play(1)  # starts the workers
        self.processes = sorted(children() - before)

    def play(self, count: int) -> Block:
        block = Block(count)
        self.model.learn(FOREVER, block, reset_num_timesteps=False)
        return block

    def play_shared(self, count: int) -> tuple[Block, float]:
        """A block, and the share of the time for which workers had a core when they could use one."""
        before = running_and_waiting(self.processes)
        block = self.play(count)
        ran, waited = running_and_waiting(self.processes) - before
        return block, float(ran / (ran + waited))


def simulated_seconds(generations: list[Generation], workers: int, spares: int, lag: int, costs: Costs, cores: int) -> float:
    """Wall seconds of all but the first lag + 1 generations: these have evaluations that none of an earlier one play beside."""
    machine = Machine(FairCores(cores), workers, spares)
    update_seconds = costs.update_seconds + (workers + spares) * costs.message_seconds
    training = Training(machine, iter(generations), lag, update_seconds, lambda: None)
    machine.run()
    return training.ends[-1] - training.ends[lag]


def as_clocked(played: PlayedGeneration, costs: Costs) -> Generation:
    """Jobs that take what they took under the clock."""
    kinds = (played.candidates, played.evaluations)
    return Generation(*([episode.seconds() + costs.job_seconds for episode in episodes] for episodes in kinds))


def check_computing(costs: Costs, workers: Sequence[int], seconds: float, count: int = 3, lag: int = 1) -> list[Compared]:
    """Blocks of the same generations under the clock, which the simulation replays, and on workers, in turn."""
    clocked, whole = ClockedTraining(costs.env, 0), lag + 1 + count
    clocked.generation()
    real = {number: RealTraining(costs.env, number, preset=preset_measured(costs.env), eval_lag=lag) for number in workers}
    found = {number: Compared(f"{costs.env}, lag {lag}", number, [], []) for number in workers}
    until = time.perf_counter() + seconds
    try:
        while time.perf_counter() < until:
            generations = [as_clocked(clocked.generation(), costs) for _ in range(whole)]
            for number, training in real.items():
                block, share = training.play_shared(whole)
                spares = len(training.processes) - number
                simulated = simulated_seconds(generations, number, spares, lag, costs, number)
                found[number].shares.append(share)
                found[number].ratios.append(simulated / (sum(block.seconds[lag + 1 :]) * share))
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
        time.sleep(max(0.0, self.began + self.steps * STEP_SECONDS * self.factor - time.perf_counter()))
        return np.zeros(2), self.rng.random(), False, self.steps == _WHOLE, {}


def check_waiting(costs: Costs, workers: int, lag: int, count: int) -> Compared:
    """Generations of Sleepers: 16 candidates that are cut after a quarter of the time that an evaluation takes."""
    shape = {"population_size": _CANDIDATES, "episode_cap": "grow", "episode_cap_start": _CUT, "episode_cap_factor": 1.001}
    training, whole = RealTraining(Sleeper, workers, policy="LinearPolicy", eval_lag=lag, **shape), lag + 1 + count
    try:
        block = training.play(whole)
    finally:
        training.model.close()
    rng, generations = np.random.default_rng(0), []
    for cut in growing_horizon(_CUT, 1.001, _WHOLE)[1 : 1 + whole]:  # one was played to start the workers
        pairs = np.exp(rng.normal(0.0, _SPREAD, _CANDIDATES // 2))  # both sides of a pair share the seed
        candidates = (cut * STEP_SECONDS * np.repeat(pairs, 2) + costs.job_seconds).tolist()
        evaluation = _WHOLE * STEP_SECONDS * math.exp(rng.normal(0.0, _SPREAD)) + costs.job_seconds
        generations.append(Generation(candidates, [evaluation]))
    spares = len(training.processes) - workers
    simulated = simulated_seconds(generations, workers, spares, lag, costs, workers + spares + 1)
    what = f"episodes that wait, lag {lag}, spares {spares}"
    return Compared(what, workers, [simulated / sum(block.seconds[lag + 1 :])], [1.0])
