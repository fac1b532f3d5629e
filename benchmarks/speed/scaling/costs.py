"""The measured costs of an environment's training, and episodes that cost what the measured ones did."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

CHUNK = 25  # steps whose time is measured as one
RESULTS = Path(__file__).parents[2] / "results" / "scaling"


class Costs(NamedTuple):
    """Seconds of CPU time on one core. measure.py makes them; a JSON file in benchmarks/results/scaling keeps them.

    Attributes:
        env: The environment, whose preset was trained.
        machine: The machine and versions.
        chunk_seconds: Time of the first CHUNK steps of an episode with everything that a worker does in a step, of the next
            CHUNK steps, and so on.
        reset_seconds: Time of env.reset.
        job_seconds: Time of a job without its episode: to claim it, to build the candidate, to write its results.
        spread: Standard deviation of log(time of an episode / mean time of an episode of its length). Measured on the same
            episodes twice, so that it holds nothing of what other programs did.
        update_seconds: Time of the parent between a generation and the next, without messages.
        message_seconds: Time of the parent for each worker that it wakes for a generation.
    """

    env: str
    machine: str
    chunk_seconds: list[float]
    reset_seconds: float
    job_seconds: float
    spread: float
    update_seconds: float
    message_seconds: float

    def save(self, folder: Path) -> None:
        """Write `<env>.json`, a line per field."""
        folder.mkdir(parents=True, exist_ok=True)
        fields = [f"{json.dumps(name)}: {json.dumps(value, default=float)}" for name, value in self._asdict().items()]
        (folder / f"{self.env}.json").write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, env: str) -> Costs:
        """Read what `save` wrote. Raises FileNotFoundError if the environment was not measured."""
        return cls(**json.loads((folder / f"{env}.json").read_text(encoding="utf-8")))

    def job(self, length: int) -> float:
        """CPU seconds of a job with an episode of `length` steps, as the mean one takes them."""
        whole, rest = divmod(length, CHUNK)
        chunks = self.chunk_seconds
        beyond = max(0, whole - len(chunks)) * chunks[-1]
        steps = sum(chunks[:whole]) + beyond + rest / CHUNK * chunks[min(whole, len(chunks) - 1)]
        return self.job_seconds + self.reset_seconds + steps


class Episodes:
    """Draws the times of jobs: the mean one of a length times a random factor. The same seed gives the same times."""

    def __init__(self, costs: Costs, seed: int) -> None:
        self.costs, self.rng = costs, np.random.default_rng(seed)

    def jobs(self, lengths: list[int]) -> list[float]:
        """CPU seconds of a job for each length."""
        spread = self.costs.spread
        factors = np.exp(self.rng.normal(-0.5 * spread * spread, spread, len(lengths)))
        return [self.costs.job(length) * float(factor) for length, factor in zip(lengths, factors, strict=True)]


def growing_horizon(start: int, factor: float, limit: int) -> list[int]:
    """Steps at which episode_cap="grow" cuts the candidates of each generation, until it reaches the limit."""
    caps = [start]
    while caps[-1] < limit:
        caps.append(min(limit, math.ceil(factor * caps[-1])))
    return caps
