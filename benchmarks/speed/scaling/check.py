"""The simulation compared with real trainings: on 1 and 2 workers that compute, and on many workers that only wait."""

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

from benchmarks.speed.scaling.costs import Costs, Episodes, growing_horizon
from benchmarks.speed.scaling.machine import Machine
from benchmarks.speed.scaling.measure import FOREVER, Generations
from benchmarks.speed.scaling.tables import FULL_LENGTH
from benchmarks.speed.scaling.training import Generation, train
from fastes import FastES
from fastes.settings.preset_loader import choose_settings

STEP_SECONDS, _CUT, _WHOLE, _SPREAD, _CANDIDATES = 10e-3, 25, 100, 0.02, 16  # of Sleeper and its trainings


class Compared(NamedTuple):
    """Simulated over real seconds of the same generations, (blocks,), and the share of real time for which workers had a core.

    Workers that compute share cores with other programs, and the simulation has the cores alone: real seconds are multiplied
    by the share.
    """

    what: str
    workers: int
    ratios: list[float]
    shares: list[float]

    def median(self) -> float:
        return statistics.median(self.ratios)


def children() -> set[int]:
    """Processes that this one has started."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, path.read_text(encoding="ascii").split()))


def running_and_waiting(processes: Sequence[int]) -> tuple[float, float]:
    """Seconds for which they have had a core, and for which they could have used one that others had."""
    stats = [Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[:2] for process in processes]
    ran, waited = np.array(stats, dtype=np.float64).sum(axis=0) / 1e9
    return float(ran), float(waited)


class RealTraining:
    """A training on workers, played in blocks. processes: its workers, spare ones too."""

    def __init__(self, env: Any, n_workers: int, **settings: Any) -> None:
        before = children()
        self.model = FastES(env, n_workers=n_workers, seed=0, target_return="none", trials=1, **settings)
        self.model.learn(FOREVER, Generations(1))  # starts the workers
        self.processes = sorted(children() - before)

    def play(self, count: int) -> tuple[list[float], float]:
        """Wall seconds of `count` generations, and the share of them for which workers had a core when they could use one."""
        block, before = Generations(count), running_and_waiting(self.processes)
        self.model.learn(FOREVER, block, reset_num_timesteps=False)
        ran, waited = np.subtract(running_and_waiting(self.processes), before)
        return block.wall, float(ran / (ran + waited))


def simulated_seconds(generations: list[Generation], workers: int, spares: int, lag: int, costs: Costs, cores: int) -> float:
    """Wall seconds of all but the first lag + 1 generations, during which no earlier generation's evaluations play."""
    machine, ends = Machine(cores, workers, spares), list[float]()
    update_seconds = costs.update_seconds + (workers + spares) * costs.message_seconds
    machine.env.run(machine.env.process(train(machine, generations, lag, update_seconds, ends)))
    return ends[-1] - ends[lag]


def check_computing(costs: Costs, workers: int, seconds: float, count: int = 5, lag: int = 1) -> Compared:
    """Compare blocks of generations on workers with simulated ones whose candidates are cut after as many steps."""
    training = RealTraining(costs.env, workers, eval_lag=lag, native="off")  # the costs are those of steps in Python
    found = Compared(f"{costs.env}, lag {lag}", workers, [], [])
    settings, episodes = choose_settings(costs.env, {}), Episodes(costs, 0)
    caps = growing_horizon(settings.episode_cap_start, settings.episode_cap_factor, FULL_LENGTH)[1:]
    spares, whole, until = len(training.processes) - workers, lag + 1 + count, time.perf_counter() + seconds
    try:
        while time.perf_counter() < until and len(caps) > whole:
            generations = [
                Generation(
                    episodes.jobs([cap] * settings.population_size), episodes.jobs([FULL_LENGTH] * settings.eval_episodes)
                )
                for cap in caps[:whole]
            ]
            caps = caps[whole:]
            real, share = training.play(whole)
            simulated = simulated_seconds(generations, workers, spares, lag, costs, workers)
            found.ratios.append(simulated / (sum(real[lag + 1 :]) * share))
            found.shares.append(share)
    finally:
        training.model.close()
    return found


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


def check_waiting(costs: Costs, workers: int, lag: int, count: int = 6) -> Compared:
    """Compare generations of Sleepers: 16 candidates that are cut after a quarter of the time that an evaluation takes."""
    shape = {"population_size": _CANDIDATES, "episode_cap": "grow", "episode_cap_start": _CUT, "episode_cap_factor": 1.001}
    training, whole = RealTraining(Sleeper, workers, policy="LinearPolicy", eval_lag=lag, **shape), lag + 1 + count
    try:
        real, _ = training.play(whole)
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
    return Compared(f"episodes that wait, lag {lag}, spares {spares}", workers, [simulated / sum(real[lag + 1 :])], [1.0])
