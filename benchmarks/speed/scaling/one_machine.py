"""Tables of a preset's whole training on one machine of 1 to 64 cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.speed.scaling.cores import Cores, FairCores, RunQueues
from benchmarks.speed.scaling.costs import Costs
from benchmarks.speed.scaling.machine import Machine
from benchmarks.speed.scaling.plans import whole_training
from benchmarks.speed.scaling.training import Way, simulate
from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import choose_settings

CORES = (1, 2, 4, 8, 16, 32, 64)
_FULL_LENGTH = 1000


class Setup(NamedTuple):
    """A row: how trainings are played. spares: processes for evaluations alone; seeds: trainings at once.

    light_parent: with what a parent would cost that does between two generations only what the next one needs.
    """

    name: str
    way: Way
    spares: int = 0
    seeds: int = 1
    sharing: Callable[[int], Cores] = FairCores
    light_parent: bool = False


LIGHT_UPDATE_SECONDS, LIGHT_MESSAGE_SECONDS = 0.3e-3, 10e-6
LAGS = (1, 2, 3)


def setups(name: str, side_by_side: bool = False, seeds: int = 1, sharing: Callable[[int], Cores] = FairCores) -> list[Setup]:
    """A row for each lag, with as many spare processes as evaluations can be in flight; then the same with a light parent."""
    return [
        Setup(f"lag {lag}, spares {lag + 1}{name}", Way(lag, side_by_side), lag + 1, seeds, sharing, light)
        for light in (False, True)
        for lag in LAGS
    ]


BEFORE = Setup("lag 0: evaluations in their generation", Way(0))
LATER = [Setup(f"lag {lag}, spares {spares}", Way(lag), spares) for lag in LAGS for spares in sorted({0, 1, 2, lag + 1})]
SIDE_BY_SIDE, SEEDS = setups(", starts side by side", side_by_side=True), setups(", 4 seeds", seeds=4)
TABLES = {
    "Evaluations that are told later, and spare processes for them": [BEFORE, *LATER, *setups("")[len(LAGS) :]],
    "Run queues in place of fair cores": setups("", sharing=RunQueues),
    "Starts side by side": [BEFORE._replace(name="lag 0, starts side by side", way=Way(0, True)), *SIDE_BY_SIDE],
    "Four seeds on one pool": [BEFORE._replace(name="lag 0, 4 seeds", seeds=4), *SEEDS],
}
PICTURED = {
    "4 seeds at once, lag 2": SEEDS[1],
    "starts side by side, lag 2": SIDE_BY_SIDE[1],
    "one training, lag 2": setups("")[1],
    "evaluations in their generation": BEFORE,
}


def seconds(costs: Costs, setup: Setup, cores: int, timesteps: int = 0) -> float:
    """Of whole trainings of the preset; timesteps: in place of the preset's, 0 for these."""
    changes = {"total_timesteps": timesteps} if timesteps else {}
    settings = choose_settings(costs.env, None, changes)
    if setup.light_parent:
        costs = costs._replace(update_seconds=LIGHT_UPDATE_SECONDS, message_seconds=LIGHT_MESSAGE_SECONDS)
    plans = [whole_training(costs, settings, _FULL_LENGTH, seed, cores + setup.spares) for seed in range(setup.seeds)]
    return simulate(Machine(setup.sharing(cores), cores, setup.spares), plans, setup.way)


def missing(costs: Costs, timesteps: int = 0) -> str:
    """What the preset as it is would gain where the parent took no time, and where episodes of a length took the same time."""
    free = {"update_seconds": 0.0, "message_seconds": 0.0}
    changed: dict[str, dict[str, float]] = {
        "as measured": {},
        "a parent that takes no time": free,
        "episodes of a length that take the same time": {"spread": 0.0},
        "both": {**free, "spread": 0.0},
    }
    rows = []
    for name, changes in changed.items():
        these = costs._replace(**changes)
        one = seconds(these, BEFORE, 1, timesteps)
        rows.append([name, *(f"{one / seconds(these, SIDE_BY_SIDE[1], cores, timesteps):.1f}" for cores in CORES)])
    return markdown_table((SIDE_BY_SIDE[1].name, *map(str, CORES)), rows)


def tables(costs: Costs, timesteps: int = 0) -> str:
    """Times one core's speed, which has no spare process and plays evaluations in their generation."""
    one_core = {number: seconds(costs, BEFORE._replace(seeds=number), 1, timesteps) for number in (1, 4)}
    parts = []
    for title, setups in TABLES.items():
        rows = [
            [
                setup.name + (", light parent" if setup.light_parent else ""),
                *(f"{one_core[setup.seeds] / seconds(costs, setup, cores, timesteps):.1f}" for cores in CORES),
            ]
            for setup in setups
        ]
        parts.append(f"#### {title}\n\n{markdown_table(('cores', *map(str, CORES)), rows)}")
    parts.append(f"#### What keeps it from one core's speed times the cores\n\n{missing(costs, timesteps)}")
    return "\n\n".join(parts)
