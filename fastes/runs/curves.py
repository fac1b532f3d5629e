"""Learning curves: read from the progress.csv and config.toml of a run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fastes.errors import FastESError, warn_user
from fastes.reports.progress_rows import Clock, Numbers, evaluated_at, read_progress
from fastes.runs.run_config import (
    CONFIG,
    PROGRESS,
    LastEvaluation,
    last_evaluation_in,
    leader_in,
    number_or,
    read_config,
    result_in,
    sessions_in,
)
from fastes.runs.rungs import recipes_in, rungs_in
from fastes.runs.setting_differences import flat_settings, seeds_share, told_settings
from fastes.settings.config_file import given_in
from fastes.system.near_paths import in_words
from fastes.training.selection import eval_return_after


class Outcome(NamedTuple):
    """The result of a training: the noise-free return of the parameters that were kept.

    Attributes:
        at: Timesteps of the whole training.
        mean, std, worst: Statistics of `episodes` episodes.
    """

    at: float
    mean: float
    std: float
    worst: float
    episodes: int


class RungEnd(NamedTuple):
    """The end of a rung.

    Attributes:
        at: Timesteps of all trials.
        winner: The trial that is left; 0 if several are.
    """

    at: float
    winner: int


class Curve(NamedTuple):
    """The learning curve of a training: its noise-free evaluations over the timesteps of candidates.

    Attributes:
        steps, returns: The finite evaluations, float64 (evaluations,).
        trials: The trial of each evaluation, float64 (evaluations,); empty for a training without trials.
        rung_ends: The rungs that have ended.
        recipes: The name of each trial's settings, by its number; empty if all trials have the same.
        alike: Equal for trainings that differ only in their seeds.
        outcome: None if training has not ended.
        solved: Whether the target has ended it.
        settings: All settings, with the keys of policy_kwargs among them, and env and env_kwargs.
        race: The settings that tell a race of recipes from other runs; None if no recipes raced.
        clock: How long it took.
        scores: The returns by which the last rung ranked the trials that continue, by their numbers.
        shown: The trial that training has shown at its end; 0 before that.
    """

    name: str
    steps: Numbers
    returns: Numbers
    target: float = math.inf
    trials: Numbers = np.zeros(0)
    rung_ends: tuple[RungEnd, ...] = ()
    recipes: Mapping[int, str] = MappingProxyType({})
    alike: object = None
    outcome: Outcome | None = None
    solved: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})
    race: Mapping[str, Any] | None = None
    clock: Clock = Clock()
    scores: Mapping[int, float] = MappingProxyType({})
    shown: int = 0

    def along(self, place: Callable[[Numbers], Numbers]) -> Curve:
        """Return the curve over another axis. place: from timesteps, float64 (n,), to values on that."""
        return self._replace(
            steps=place(self.steps),
            rung_ends=tuple(rung._replace(at=float(place(np.array([rung.at]))[0])) for rung in self.rung_ends),
            outcome=self.outcome and self.outcome._replace(at=float(place(np.array([self.outcome.at]))[0])),
        )

    @property
    def leader(self) -> float:
        """The trial that is left, or that training has shown at its end; before that the one with the best evaluations."""
        at, winner = self.rung_ends[-1] if self.rung_ends else (0.0, 0)
        known: set[float] = {*self.trials.tolist()}
        if not known or (self.shown or winner) in known:  # a damaged file may name another one
            return float(self.shown or winner or 1)
        left = known & {*self.scores} or {*self.trials[self.steps > at].tolist()} or known
        return float(max(sorted(left), key=lambda trial: self._level(trial, at)))

    def _level(self, trial: float, since: float) -> float:
        """Return the running mean of a trial's evaluations since a rung, which begins with its score there."""
        steps, returns = self.of_trial(trial)
        score = self.scores.get(int(trial), -math.inf)
        return eval_return_after(score if math.isfinite(score) else -math.inf, returns[steps > since].tolist())

    def of_trial(self, trial: float) -> tuple[Numbers, Numbers]:
        """Return timesteps and returns of one trial's evaluations."""
        if not len(self.trials):
            return self.steps, self.returns
        return self.steps[self.trials == trial], self.returns[self.trials == trial]


def read_curve(run: Path, shown: Path | None = None) -> Curve:
    """Read the curve of a run. Without a configuration it has no target and no rungs.

    Args:
        run: The run folder.
        shown: Its path in the curve's name; None for run.

    Raises:
        OSError: If a file cannot be read.
    """
    rows = read_progress(run / PROGRESS, (*Clock.COLUMNS, "eval_generation", "eval_at", "eval_return"))
    at = evaluated_at(rows)
    known = np.isfinite(at)
    written = read_config(run / CONFIG) or {}
    rungs = rungs_in(sessions := sessions_in(written))
    noted, settings = written.get("run", {}), written.get("settings", {})
    given, leader = given_in(written), leader_in(noted)
    told = {"env": noted.get("env"), "env_kwargs": noted.get("env_kwargs")}
    found = at[known], rows["eval_return"][known], rows["trial"][known]
    at, returns, trials = _with_last(*found, last_evaluation_in(noted))
    return Curve(
        name=f"{noted.get('env', (shown or run).name)}, seed {noted.get('seed', '?')} ({shown or run})",
        steps=at,
        returns=returns,
        target=number_or(noted.get("target_return"), number_or(settings.get("target_return"), math.inf)),
        trials=trials,
        rung_ends=tuple(RungEnd(rung.at, rung.winner) for rung in rungs),
        recipes=recipes_in(sessions, rungs),
        alike=seeds_share(**told, settings=settings, given=given) if settings else None,
        outcome=_outcome(noted, rows["timesteps"]),
        solved=noted.get("solved") is True,
        settings={**told, **flat_settings(settings)},
        race=None if given is None else {**told, **told_settings(settings, given)},
        clock=Clock.of(rows),
        scores=dict(list(zip(rungs[-1].trials, rungs[-1].scores, strict=True))[: rungs[-1].kept]) if rungs else {},
        shown=leader.number if leader is not None else 0,
    )


def _outcome(run: Mapping[str, Any], steps: Numbers) -> Outcome | None:
    """Return the result that a config's table [run] has, at the end of the training."""
    result = result_in(run)
    return Outcome(float(steps[-1]), *result) if result is not None and len(steps) else None


def _with_last(at: Numbers, returns: Numbers, trials: Numbers, last: LastEvaluation | None) -> tuple[Numbers, Numbers, Numbers]:
    """Append the evaluation that was reported when training ended, if no row has it."""
    if last is None or (at[trials == last.trial] >= last.at).any():
        return at, returns, trials
    return np.append(at, last.at), np.append(returns, last.mean), np.append(trials, last.trial)


def read_curves(runs: list[Path], x: str = "steps") -> list[Curve]:
    """Read the curves of several runs. Runs without evaluations in progress.csv are left out, with a warning.

    Args:
        runs: The run folders.
        x: As of `draw_curves`. Over CPU time, runs that do not know it are left out, too.

    Raises:
        FastESError: If no run is left.
    """
    curves: list[Curve] = []
    for run in runs:
        curve = read_curve(run)
        lacks = "" if len(curve.steps) else f"no evaluations in {PROGRESS} yet: they come with its first generations"
        if not lacks and x == "cpu" and not curve.clock.knows_cpu:
            lacks = f"rows in {PROGRESS} without cpu_seconds, as an earlier version wrote them"
        if not lacks:
            curves.append(curve)
        elif len(runs) == 1:
            raise FastESError(f"{run} has {lacks}")
        else:
            warn_user(f"{run} has {lacks}. It is left out", UserWarning)
    if not curves:
        lacks = f"evaluations in {PROGRESS} yet" if x != "cpu" else f"evaluations and cpu_seconds in {PROGRESS}"
        raise FastESError(f"none of {in_words([str(run) for run in runs])} has {lacks}")
    return curves


def title_of(curves: list[Curve]) -> str:
    """Return the title of a picture of curves."""
    names = [curve.name.partition(" (")[0] for curve in curves]
    envs = {name.partition(", seed")[0] for name in names}
    if len(curves) == 1:
        return names[0]
    return f"{envs.pop()}, {len(curves)} runs" if len(envs) == 1 else f"{len(curves)} runs"
