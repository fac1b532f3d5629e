"""What was measured of an environment's training, and episodes that cost what the measured ones did."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastes.settings.preset_loader import DEFAULT, preset_for

CHUNK = 25  # steps whose time is measured as one
LARGE_POPULATION = 10_000
RESULTS = Path(__file__).parents[2] / "results" / "scaling"


def preset_measured(env: str) -> str:
    """The environment's own; Humanoid's tables are of the default settings, whose network is the paper's."""
    return DEFAULT if env == "Humanoid-v5" else preset_for(env)


class Costs(NamedTuple):
    """Seconds of CPU time on one core. Measured by measure.py, kept as a JSON file in benchmarks/results/scaling.

    env: whose training was measured, with the settings of `preset_measured`.
    machine: and versions.
    chunk_seconds: of the first CHUNK steps of an episode with everything that a worker does in a step, of the next ones, ...
    reset_seconds: of env.reset.
    job_seconds: of a job beside its episode: to claim it, to build the candidate, to write its results.
    spread: standard deviation of log(time of an episode over that of the mean one of its length). Measured on the same
        episodes twice, so that what other programs did is not in it.
    update_seconds: of the parent between a generation and the next, beside messages.
    message_seconds: of the parent for each worker that it wakes for a generation.
    num_params, obs_size: of their policy.
    large_update_seconds: of asking and telling a strategy with LARGE_POPULATION candidates.
    lengths: steps of candidates, a list for each of the first generations.
    """

    env: str
    machine: str
    chunk_seconds: list[float]
    reset_seconds: float
    job_seconds: float
    spread: float
    update_seconds: float
    message_seconds: float
    num_params: int
    obs_size: int
    large_update_seconds: float
    lengths: list[list[int]]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fields = [f"{json.dumps(name)}: {json.dumps(value, default=float)}" for name, value in self._asdict().items()]
        (folder / f"{self.env}.json").write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, env: str) -> Costs:
        return cls(**json.loads((folder / f"{env}.json").read_text(encoding="utf-8")))

    def job(self, length: int) -> float:
        """CPU seconds of a job with an episode of so many steps, as the mean one takes them."""
        whole, rest = divmod(length, CHUNK)
        chunks = self.chunk_seconds
        beyond = max(0, whole - len(chunks)) * chunks[-1]
        steps = sum(chunks[:whole]) + beyond + rest / CHUNK * chunks[min(whole, len(chunks) - 1)]
        return self.job_seconds + self.reset_seconds + steps


class Episodes:
    """Draws job times: the mean one of a length times a random factor. The same seed gives the same ones."""

    def __init__(self, costs: Costs, seed: int) -> None:
        self.costs, self.rng = costs, np.random.default_rng(seed)

    def jobs(self, lengths: list[int]) -> list[float]:
        """CPU seconds of a job for each length."""
        spread = self.costs.spread
        factors = np.exp(self.rng.normal(-0.5 * spread * spread, spread, len(lengths)))
        return [self.costs.job(length) * float(factor) for length, factor in zip(lengths, factors, strict=True)]


def growing_horizon(start: int, factor: float, limit: int) -> list[int]:
    """Steps at which episode_cap="grow" cuts the candidates of each generation, until it has reached the limit."""
    caps = [start]
    while caps[-1] < limit:
        caps.append(min(limit, math.ceil(factor * caps[-1])))
    return caps
