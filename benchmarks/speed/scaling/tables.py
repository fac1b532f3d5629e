"""Tables of HalfCheetah-v5's whole training on one machine of 1 to 64 cores."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.speed.scaling.costs import Costs
from benchmarks.speed.scaling.machine import Machine
from benchmarks.speed.scaling.training import Way, plan_of, simulate
from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import choose_settings

CORES = (1, 2, 4, 8, 16, 32, 64)
FULL_LENGTH = 1000
FREE_PARENT = {"update_seconds": 0.0, "message_seconds": 0.0}
EQUAL_EPISODES = {"spread": 0.0}


class Setup(NamedTuple):
    """A row: how trainings are played. changes: of the costs; seeds: trainings at once."""

    name: str
    way: Way
    changes: dict[str, float] = {}  # noqa: RUF012
    seeds: int = 1

    @property
    def spares(self) -> int:
        """Workers for evaluations alone: as many as evaluations can be in flight."""
        return self.way.lag + 1 if self.way.lag else 0


ONE_CORE = Setup("evaluations in their generation (eval_lag 0)", Way(0))
PRESET = Setup("the preset: eval_lag 2, trials side by side", Way(2, side_by_side=True))
SETUPS = (
    ONE_CORE,
    *(Setup(f"eval_lag {lag}", Way(lag)) for lag in (1, 2, 3)),
    PRESET,
    PRESET._replace(name="the preset, with a parent that takes no time", changes=FREE_PARENT),
    PRESET._replace(name="the preset, with equal times of equally long episodes", changes=EQUAL_EPISODES),
    PRESET._replace(name="the preset, with both", changes={**FREE_PARENT, **EQUAL_EPISODES}),
    *(Setup(f"four seeds at once, eval_lag {lag}", Way(lag), seeds=4) for lag in (0, 1, 2)),
)


def seconds(costs: Costs, setup: Setup, cores: int, timesteps: int = 0) -> float:
    """Wall seconds of whole trainings of the preset. timesteps: instead of the preset's, 0 for these."""
    changes = {"total_timesteps": timesteps} if timesteps else {}
    settings, costs = choose_settings(costs.env, changes), costs._replace(**setup.changes)
    plans = [plan_of(costs, settings, FULL_LENGTH, seed, cores + setup.spares) for seed in range(setup.seeds)]
    return simulate(Machine(cores, cores, setup.spares), plans, setup.way)


def speed_table(costs: Costs, timesteps: int = 0) -> str:
    """Speed as multiples of one core's, which has no spare worker and plays evaluations in their generation."""
    rows = []
    for setup in SETUPS:
        one = seconds(costs, ONE_CORE._replace(seeds=setup.seeds, changes=setup.changes), 1, timesteps)
        rows.append([setup.name, *(f"{one / seconds(costs, setup, cores, timesteps):.1f}" for cores in CORES)])
    return markdown_table(("cores", *map(str, CORES)), rows)
