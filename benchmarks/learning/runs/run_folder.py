"""A training that has ended, from its run folder: what it reached after how many steps and core-hours, and its curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastes.errors import FastESError
from fastes.reports.csv_log import read_progress
from fastes.reports.plots import Outcome, smoothed
from fastes.runs.curves import read_curve
from fastes.runs.run_config import read_config

Numbers = NDArray[np.float64]


class Ended(NamedTuple):
    """steps: of candidates and evaluations, without a race of the archive at the end. core_hours: wall time of the generations,
    times the workers of the command that played each. first: return of the first evaluation.

    at, hours, median: by evaluation, of the parameters that it played: candidates' steps, core-hours until then, and the
    running median of the returns.
    """

    folder: Path
    env: str
    seed: int
    steps: int
    core_hours: float
    outcome: Outcome
    first: float
    versions: str
    at: Numbers
    hours: Numbers
    median: Numbers

    def sampled(self, num_points: int) -> NDArray[np.int64]:
        """Indices of evaluations for a curve of at most so many points, ends included."""
        return np.unique(np.linspace(0, len(self.at) - 1, num_points).astype(np.int64))


def read_ended(folder: Path) -> Ended:
    """Raises FastESError where the training has not ended, where its environment was given arguments, and where a cluster is
    noted, since its cores are not."""
    config, columns = read_config(folder / "config.toml") or {}, read_progress(folder / "progress.csv")
    run, curve = config.get("run", {}), read_curve(folder, folder / "progress.csv", folder / "config.toml")
    if curve.outcome is None:
        raise FastESError(f"{folder} is no training that ended: expected a run folder of fastes train")
    if (given := run.get("env_kwargs", "{}")) != "{}":
        raise FastESError(f"{folder} was trained with env_kwargs = {given}: expected the environment as it is")
    sessions = [*config.get("earlier", []), config]
    if any("cluster" in session["run"] for session in sessions):
        raise FastESError(
            f"{folder} was trained on a Ray cluster, whose cores are not noted, so that core-hours cannot be counted"
        )
    steps = np.array(columns["timesteps"])
    hours = np.cumsum(np.array(columns["seconds"]) * _workers(sessions, steps)) / 3600
    return Ended(
        folder,
        str(run["env"]),
        int(run["seed"]),
        int(steps[-1] + columns["eval_timesteps"][-1]),
        float(hours[-1]),
        curve.outcome,
        float(curve.returns[0]),
        " ".join(f"{name} {version}" for name, version in config["versions"].items()),
        curve.steps,
        np.interp(curve.steps, np.concatenate(([0.0], steps)), np.concatenate(([0.0], hours))),
        smoothed(curve.returns),
    )


def _workers(sessions: list[dict[str, Any]], steps: Numbers) -> Numbers:
    """Of each generation, by the steps at its end: those of the last command that had begun before."""
    found = np.ones(len(steps))
    for session in sessions:
        found[steps > session["run"]["at_timesteps"]] = max(1, int(session["run"]["n_workers"]))
    return found
