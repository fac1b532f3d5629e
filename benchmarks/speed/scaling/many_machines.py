"""Tables of generations of Humanoid-v5 with a population of 10,000 on clusters of 1 to 10,000 workers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.published import HUMANOID_MINUTES
from benchmarks.speed.scaling.cluster import ClusterGeneration, Nodes, Spent, Wire, alone
from benchmarks.speed.scaling.costs import LARGE_POPULATION, Costs, Episodes
from benchmarks.tables import against_aim, markdown_table
from fastes.pools.cluster.messages import Draws, Step, Terms, pack
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.obs_normalizer import MomentSums, ObsNormalizer

WORKERS = (1, 18, 90, 360, 720, 1_440, 2_880, 5_000, 10_000)
PER_NODE, AIM, AIM_WORKERS, FULL_LENGTH = 16, 0.95, 1_440, 1000
PLACES = 9  # ranges that such a node takes at a time: one needs 56 MB
_GENERATIONS = 5


class Stage(NamedTuple):
    """Of a training. generations: CPU seconds of each one's jobs."""

    name: str
    generations: list[list[float]]


class Point(NamedTuple):
    """Means over a stage's generations. efficiency: one worker's time over workers x this time. bound: of jobs alone."""

    workers: int
    seconds: float
    efficiency: float
    bound: float
    spent: Spent


def stages(costs: Costs, walking_spread: float) -> list[Stage]:
    """When all fall, as was measured; when half of them fall somewhere on the way, and when nobody falls, which is assumed.

    walking_spread: of the times of equally long episodes.
    """
    rng = np.random.default_rng(0)
    measured = [length for generation in costs.lengths for length in generation]
    half, every = LARGE_POPULATION // 2, [FULL_LENGTH] * LARGE_POPULATION
    falling = [rng.choice(measured, LARGE_POPULATION).tolist() for _ in range(_GENERATIONS)]
    mixed = [
        rng.permutation([*every[:half], *rng.integers(min(measured), FULL_LENGTH, half)]).tolist() for _ in range(_GENERATIONS)
    ]
    walking = costs._replace(spread=walking_spread)
    return [
        Stage(f"all fall, after {np.mean(measured):.0f} steps on average", _jobs(costs, falling)),
        Stage(f"half fall somewhere before step {FULL_LENGTH}", _jobs(walking, mixed)),
        Stage(f"nobody falls in {FULL_LENGTH} steps", _jobs(walking, [every] * _GENERATIONS)),
    ]


def _jobs(costs: Costs, lengths: list[list[int]]) -> list[list[float]]:
    episodes = Episodes(costs, 0)
    return [episodes.jobs(generation) for generation in lengths]


def point(stage: Stage, costs: Costs, workers: int, wire: Wire) -> Point:
    update = costs.large_update_seconds
    nodes = Nodes(workers, PER_NODE, update, terms_bytes(costs.obs_size), moment_bytes(costs.obs_size), PLACES)
    spent = [ClusterGeneration(jobs, nodes, wire).run() for jobs in stage.generations]
    one = sum(alone(jobs, update) for jobs in stage.generations)
    seconds = sum(each.seconds for each in spent)
    busy = sum(map(sum, stage.generations))
    bound = busy / workers / sum(greedy_seconds(jobs, workers) for jobs in stage.generations)
    return Point(workers, seconds / len(spent), one / workers / seconds, bound, spent[0])


def terms_bytes(obs_size: int) -> int:
    """Of what a node is told of a generation beside the fitness or theta."""
    step = Step(bytes(16), 1.0, 0, np.zeros((0, 2)), bytes(16))
    normalizer = ObsNormalizer((obs_size,), 5.0)
    return len(
        pack(Terms(1, 0, step, Draws(0, 0, 1, 0.1, 0, 1.0), np.zeros(0, np.int64), normalizer, EpisodeSettings(), 0, False))
    )


def moment_bytes(obs_size: int) -> int:
    """Of a node's sums, of observations that are normally distributed."""
    rows = np.random.default_rng(0).standard_normal((100, 2, obs_size))
    return len(pack(MomentSums.of(rows, np.ones(100, dtype=np.int64))))


def greedy_seconds(jobs: Sequence[float], workers: int) -> float:
    """Until all jobs are played, where whoever is idle takes the next one at once: what a barrier and whole episodes allow."""
    ends = [0.0] * workers
    for seconds in jobs:
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(ends)


def tables(costs: Costs, walking_spread: float, wire: Wire) -> str:
    parts = []
    for stage in stages(costs, walking_spread):
        points = [point(stage, costs, workers, wire) for workers in WORKERS]
        rows = [_row(each, costs) for each in points]
        parts.append(f"#### {stage.name}\n\n{markdown_table(_HEADER, rows)}")
    messages, spread = _of_messages(costs, walking_spread, wire), _of_spread(costs, wire)
    parts.append(f"#### Nobody falls: efficiency over the driver's time for a message\n\n{messages}")
    parts.append(f"#### Nobody falls: over the spread of the times of episodes\n\n{spread}")
    return "\n\n".join(parts)


_BOUND = "jobs alone"
_HEADER = ("workers", "s a generation", "efficiency", _BOUND, "messages", "MB down: scalars", "theta", "MB up", "aim")


def _row(each: Point, costs: Costs) -> list[str]:
    nodes = -(-each.workers // PER_NODE)
    aim = against_aim(each.efficiency, AIM) if each.workers == AIM_WORKERS else ""
    theta = nodes * (4 * costs.num_params + terms_bytes(costs.obs_size))
    return [
        f"{each.workers:,}",
        f"{each.seconds:.3g}",
        f"{each.efficiency:.1%}",
        f"{each.bound:.1%}",
        f"{each.spent.messages:,}",
        f"{each.spent.bytes_down / 1e6:.2f}",
        f"{theta / 1e6:.2f}",
        f"{each.spent.bytes_up / 1e6:.2f}",
        aim,
    ]


def _of_messages(costs: Costs, walking_spread: float, wire: Wire) -> str:
    """Efficiency over the driver's time for a message."""
    stage, times = stages(costs, walking_spread)[-1], (0.0, 20e-6, 0.1e-3, 0.5e-3)
    rows = []
    for workers in (360, AIM_WORKERS, 5_000, 10_000):
        found = [point(stage, costs, workers, wire._replace(message_seconds=seconds)).efficiency for seconds in times]
        rows.append([f"{workers:,}", *(f"{efficiency:.1%}" for efficiency in found)])
    return markdown_table(("workers", *(f"{1e3 * seconds:g} ms" for seconds in times)), rows)


def _of_spread(costs: Costs, wire: Wire) -> str:
    """Efficiency on AIM_WORKERS over how unlike the times of equally long episodes are, and what jobs alone allow."""
    spreads = (0.0, 0.02, 0.05, 0.1)
    points = [point(stages(costs, spread)[-1], costs, AIM_WORKERS, wire) for spread in spreads]
    rows = [
        ["efficiency", *(f"{each.efficiency:.1%}" for each in points)],
        [_BOUND, *(f"{each.bound:.1%}" for each in points)],
    ]
    return markdown_table((f"{AIM_WORKERS:,} workers", *(f"{spread:.0%}" for spread in spreads)), rows)


def paper_line() -> str:
    (few, slow), (many, fast) = HUMANOID_MINUTES.items()
    times, cores = slow / fast, many / few
    return (
        f"The paper's Humanoid: {few} cores {slow:.0f} min, {many:,} cores {fast:.0f} min, so {times:.1f} times as fast "
        f"on {cores:.0f} times the cores: {times / cores:.0%}."
    )
