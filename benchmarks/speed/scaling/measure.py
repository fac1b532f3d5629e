"""Measure what simulated trainings cost: the same generations are played twice in this process, under a clock of CPU time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from benchmarks.machine import describe
from benchmarks.speed.scaling.clock import FOREVER, ClockedTraining, OneStep, Played, PlayedGeneration
from benchmarks.speed.scaling.costs import CHUNK, LARGE_POPULATION, Costs, preset_measured
from fastes import Callback, EvolutionStrategy, FastES
from fastes.training.record import Record

_QUICK_GENERATIONS, _GENERATIONS, _KEPT = 200, 30, 40
_WORKERS = (1, 2, 4, 8, 16)


class CpuOfGenerations(Callback):
    """Ends training after some generations, and keeps this process's CPU time at the end of each."""

    def __init__(self, count: int) -> None:
        self.count, self.moments = count, list[float]()

    def on_generation(self, model: FastES, record: Record) -> bool:  # noqa: ARG002
        self.moments.append(time.process_time())
        return len(self.moments) < self.count

    def seconds(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.moments)]


def measure(env: str, seconds: float, seed: int = 0) -> Costs:
    """The costs of an environment's training with `preset_measured`, from as many generations as can be played in the time."""
    first, second = ClockedTraining(env, seed), ClockedTraining(env, seed)
    pairs: list[tuple[PlayedGeneration, PlayedGeneration]] = []
    until = time.perf_counter() + seconds
    while len(pairs) < 3 or time.perf_counter() < until:
        pairs.append((first.generation(), second.generation()))
    generations = [generation for pair in pairs[1:] for generation in pair]
    episodes = [played for generation in generations for played in generation.in_order]
    message = message_seconds()
    costs = Costs(
        env=env,
        machine=describe(),
        chunk_seconds=chunk_medians(episodes),
        reset_seconds=statistics.median(played.resetting() for played in episodes),
        job_seconds=statistics.median(between(generations)),
        spread=0.0,
        update_seconds=statistics.median(parent_seconds(env, preset_measured(env), 1, _GENERATIONS)) - message,
        message_seconds=message,
        num_params=first.model.policy_spec.num_params,
        obs_size=first.model.policy_spec.obs_size,
        large_update_seconds=update_of_population(first.model.policy_spec.num_params, LARGE_POPULATION),
        lengths=[[played.steps for played in pair[0].candidates] for pair in pairs[:_KEPT]],
    )
    return costs._replace(spread=spread(costs, pairs[1:]))


def chunk_medians(episodes: list[Played]) -> list[float]:
    """Median seconds of the first CHUNK steps, of the next ones, ...; as many as three episodes have."""
    columns = [[s for s in column if s is not None] for column in zip_longest(*(played.chunks() for played in episodes))]
    known = [statistics.median(column) for column in columns if len(column) >= 3]
    if not known:
        raise ValueError(f"no episode had {CHUNK} steps")
    return known


def between(generations: list[PlayedGeneration]) -> Iterator[float]:
    """CPU seconds between an episode's last step and the next one's reset, in the same generation."""
    for generation in generations:
        for earlier, later in pairwise(generation.in_order):
            yield later.began - earlier.ended


def spread(costs: Costs, pairs: list[tuple[PlayedGeneration, PlayedGeneration]]) -> float:
    """Standard deviation of log(time over the mean time for that length) among the candidates of a generation.

    What two plays of the same episode have in common is the episode's own; what they do not is the machine's.
    """
    shared: list[float] = []
    for pair in pairs:
        one, other = (np.array([math.log(p.seconds() / costs.job(p.steps)) for p in played.candidates]) for played in pair)
        shared.append(float(np.mean((one - np.median(one)) * (other - np.median(other)))))
    return math.sqrt(max(0.0, statistics.median(shared)))


def message_seconds() -> float:
    """CPU seconds of the parent for each worker that it wakes: the slope over numbers of workers, on OneStep."""
    medians = [
        statistics.median(parent_seconds(OneStep, "HalfCheetah-v5", workers, _QUICK_GENERATIONS)) for workers in _WORKERS
    ]
    slope, _ = np.polyfit(_WORKERS, medians, 1)
    return float(slope)


def parent_seconds(env: Any, preset: str, workers: int, generations: int) -> list[float]:
    """CPU seconds of the parent for each generation of a single start, but the first ones."""
    clock = CpuOfGenerations(generations)
    with FastES(env, preset=preset, n_workers=workers, seed=0, target_return="none", starts=1) as model:
        model.learn(FOREVER, clock)
    return clock.seconds()[generations // 10 :]


def update_of_population(num_params: int, candidates: int, repeats: int = 5) -> float:
    """CPU seconds of asking and telling a strategy of so many parameters and candidates, in this thread."""
    strategy = EvolutionStrategy(np.zeros(num_params, dtype=np.float32), population_size=candidates, seed=0)
    rng, seconds = np.random.default_rng(0), list[float]()
    for _ in range(repeats):
        started = time.process_time()
        strategy.ask()
        seconds.append(time.process_time() - started)
        returns = rng.standard_normal((candidates // 2, 2))
        started = time.process_time()
        strategy.tell(returns)
        seconds[-1] += time.process_time() - started
    return statistics.median(seconds)
