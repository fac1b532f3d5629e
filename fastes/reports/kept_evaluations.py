"""The evaluations of a model's training, kept in bounded memory for its learning curve."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.training.record import Record
from fastes.training.selection import Rung

Numbers = npt.NDArray[np.float64]

MOST = 1 << 14  # evaluations; more than a model can have trials


class KeptEvaluations(Callback):
    """A callback that keeps the evaluations of each trial: all of them, or every 2nd, 4th, ... of a long training.

    A training that counts its steps from 0 again forgets the ones before.

    Attributes:
        rung_ends: Timesteps of all trials at the end of each rung, and the trial that is left; 0 if several are.
        recipes: The name of each trial's settings, by its number from 1; empty if all trials have the same.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._kept: dict[int, list[tuple[int, float]]] = {}  # trial -> timesteps and return of each
        self._seen: dict[int, int] = {}  # trial -> number of its evaluations
        self._last_at: dict[int, int] = {}  # trial -> timesteps of its last one
        self._every = 1
        self.rung_ends: list[tuple[int, int]] = []
        self.recipes: dict[int, str] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        if not model.num_timesteps or model.num_timesteps < max(self._last_at.values(), default=0):
            self._forget()
        self.recipes |= {trial.number + 1: trial.recipe for trial in model.selection.trials if trial.recipe}

    def on_generation(self, model: Model, record: Record) -> None:  # noqa: ARG002
        if record.eval_generation:
            self._keep(record.trial, record.eval_at, record.eval_return)

    def on_rung(self, model: Model, rung: Rung) -> None:
        self.rung_ends.append((model.num_timesteps, rung.winner))

    def on_end(self, model: Model) -> None:
        """Keep the evaluations that were reported when training ended: no generation came with them."""
        trial = model.selection.last
        for of, evaluation in trial.training.latest_evaluations:
            at = of.timesteps + model.selection.steps_beside(trial)
            if at < model.num_timesteps:  # not of an earlier training, whose steps no longer count
                self._keep(trial.number + 1, at, evaluation.mean)

    def _keep(self, trial: int, at: int, mean: float) -> None:
        if not math.isfinite(mean) or at <= self._last_at.get(trial, -1):
            return
        number = self._seen.get(trial, 0)
        self._seen[trial], self._last_at[trial] = number + 1, at
        if number % self._every == 0:
            self._kept.setdefault(trial, []).append((at, mean))
        if len(self) > MOST:
            self._every *= 2
            self._kept = {each: kept[::2] for each, kept in self._kept.items()}

    def columns(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return timesteps, mean return and trial, from 1, of each evaluation, float64 (evaluations,) each."""
        rows = [(at, mean, trial) for trial, kept in list(self._kept.items()) for at, mean in list(kept)]
        steps, returns, trials = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return steps, returns, trials
