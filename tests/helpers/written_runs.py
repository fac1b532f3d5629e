"""Run folders that no training wrote: as many, as long and as damaged as a test needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tomli_w

from fastes.training.record import Record


def progress_line(generation: int, **values: Any) -> str:
    """A line of progress.csv whose return rises by 1 each generation; every second one has an evaluation."""
    row = {**dict.fromkeys(Record._fields, 0.5), "generation": generation, "timesteps": 100 * generation, "trial": 1}
    row |= {"seconds": 2.0, "return_mean": float(generation), "eval_generation": 0, "eval_return": math.nan}
    if generation % 2 == 0:
        row |= {"eval_generation": generation - 1, "eval_at": 100 * (generation - 1), "eval_return": 2.0 * generation}
    return ",".join(str(value) for value in {**row, **values}.values())


def write_progress(run: Path, lines: list[str]) -> None:
    (run / "progress.csv").write_text("\n".join([",".join(Record._fields), *lines, ""]))


def write_run(folder: Path, generations: int = 20, seed: int = 0, noted: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Write a run folder of `CartPole-v1`; settings and further entries of [run] as given."""
    folder.mkdir(parents=True)
    write_progress(folder, [progress_line(number) for number in range(1, generations + 1)])
    table = {"env": "CartPole-v1", "seed": seed, "finished": True, **(noted or {})}
    config = {"run": table, "settings": {"sigma": 0.1, "total_timesteps": 10_000, **settings}}
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    return folder


def write_race(folder: Path, seed: int, winner: str, given: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Write the folder of a run whose recipes have raced. given: the user's settings; settings: those of the winner."""
    return write_run(folder, seed=seed, noted={"given": given or {}, "recipe": winner}, trials=1, **settings)
