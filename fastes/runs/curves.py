"""A run folder as a line in a picture, from progress.csv and config.toml alone."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fastes.checkpoints.locate import is_run_folder
from fastes.errors import FastESError
from fastes.reports.csv_log import read_progress
from fastes.reports.plots import Curve, Numbers, Outcome, RungEnd
from fastes.runs.run_config import read_config
from fastes.settings.settings import SCHEDULES
from fastes.system.near_paths import in_words, names_in, what_is_beside

_OF_THE_END = ("target_return", "target_episodes")  # settings that change no evaluation before the end


def read_curve(folder: Path, progress: Path, config: Path) -> Curve:
    """The curve of a run; without a configuration it has no target and no rungs. Raises OSError when it cannot be read."""
    columns = read_progress(progress)
    steps, returns = np.array(columns["timesteps"]), np.array(columns["eval_return"])
    written = read_config(config) or {}
    sessions = [*written.get("earlier", []), written]
    run, settings = written.get("run", {}), written.get("settings", {})
    at = np.where(np.array(columns["eval_generation"]) > 0, columns["eval_at"], steps)
    known = np.isfinite(steps) & np.isfinite(returns)
    trials = np.array(columns["trial"])[known]
    at, returns, trials = _with_last(at[known], returns[known], trials, run.get("last_evaluation"))
    left_out = _OF_THE_END if _follows_budget(settings) else (*_OF_THE_END, "total_timesteps")
    alike = {key: value for key, value in settings.items() if key not in left_out}
    return Curve(
        f"{run.get('env', folder.name)}, seed {run.get('seed', '?')} ({folder})",
        at,
        returns,
        _number(run.get("target_return"), _number(settings.get("target_return"), math.inf)),
        trials,
        _rung_ends(sessions),
        (run.get("env"), run.get("env_kwargs"), alike) if settings else None,
        _outcome(run.get("result"), steps),
    )


def _follows_budget(settings: dict[str, Any]) -> bool:
    """Whether the budget says more than when training ends."""
    schedules = any(isinstance(settings.get(name), str) for name in SCHEDULES)
    return schedules or _number(settings.get("trials"), 1) > 1


def _outcome(result: object, steps: Numbers) -> Outcome | None:
    """What `RunFolder.note_result` has noted; None where there is none."""
    told = result if isinstance(result, dict) else {}
    mean, std, worst, episodes = (_number(told.get(name), math.nan) for name in ("mean", "std", "worst", "episodes"))
    if not len(steps) or not all(map(math.isfinite, (mean, std, worst, episodes))):
        return None
    return Outcome(float(steps[-1]), mean, std, worst, int(episodes))


def _with_last(at: Numbers, returns: Numbers, trials: Numbers, last: object) -> tuple[Numbers, Numbers, Numbers]:
    """And the evaluation that was told when training ended, if no row has it."""
    told = last if isinstance(last, dict) else {}
    names = "at_timesteps", "mean", "trial"
    timesteps, mean, trial = found = [float(_number(told.get(name), math.nan)) for name in names]
    own = at[trials == trial]
    if all(map(math.isfinite, found)) and (not len(own) or timesteps > own[-1]):
        return np.append(at, timesteps), np.append(returns, mean), np.append(trials, trial)
    return at, returns, trials


def runs_of(path: Path, progress: str) -> list[Path]:
    """The run folders that a path means: itself, the folder of a file that is in one, or all runs that a folder holds.

    progress: the name of the file that makes a folder a run's.

    Raises FastESError that says what there is in its place.
    """
    if path.is_file() and (path.parent / progress).exists():
        return [path.parent]
    if not path.is_dir():
        what = "no run folder: expected one such as runs/CartPole-v1/1" if path.exists() else "missing"
        raise FastESError(f"{path} is {what}{what_is_beside(path)}")
    if os.path.lexists(path / progress) or is_run_folder(path):
        return [path]
    names = names_in(path)
    if runs := [path / name for name in names if os.path.lexists(path / name / progress)]:
        return runs
    has = in_words(names) or "nothing"
    raise FastESError(f"{path} is no run folder, and holds none: expected one such as runs/CartPole-v1/1; it has {has}")


def read_curves(folders: list[Path], progress: str, config: str) -> list[Curve]:
    """Of several runs. Those without a whole row in their progress are left out, with a warning; FastESError where all are."""
    curves: list[Curve] = []
    for folder in folders:
        curve = read_curve(folder, folder / progress, folder / config)
        said = f"{folder} has no evaluations in {progress} yet: they come with its first generations"
        if len(curve.steps):
            curves.append(curve)
        elif len(folders) == 1:
            raise FastESError(said)
        else:
            warnings.warn(f"{said}. It is left out", stacklevel=2)
    if not curves:
        raise FastESError(f"none of {in_words([str(folder) for folder in folders])} has evaluations in {progress} yet")
    return curves


def title_of(curves: list[Curve]) -> str:
    """What the curves share."""
    names = [curve.name.partition(" (")[0] for curve in curves]
    envs = {name.partition(", seed")[0] for name in names}
    if len(curves) == 1:
        return names[0]
    return f"{envs.pop()}, {len(curves)} runs" if len(envs) == 1 else f"{len(curves)} runs"


def _rung_ends(sessions: list[dict[str, Any]]) -> tuple[RungEnd, ...]:
    """The rungs that have ended, as `RunFolder.on_rung` has noted them in each session."""
    runs = [session.get("run", {}) for session in sessions]
    until = [*(_number(run.get("at_timesteps"), 0.0) for run in runs[1:]), math.inf]  # what came after was done again
    found = dict[float, int]()
    for run, end in zip(runs, until, strict=True):
        noted = run.get("rungs")
        for rung in noted if isinstance(noted, list) else []:
            fields = rung if isinstance(rung, dict) else {}
            at = float(_number(fields.get("at_timesteps"), math.inf))
            if at <= end and math.isfinite(at):
                found[at] = _winner_of(fields)
    return tuple(RungEnd(at, found[at]) for at in sorted(found))


def _winner_of(rung: dict[str, Any]) -> int:
    """The trial that was left after a rung; 0 if several were."""
    scores = rung.get("scores")
    best = next(iter(scores), "") if isinstance(scores, dict) and rung.get("kept") == 1 else ""
    return int(best) if best.isdecimal() and len(best) < 10 else 0


def _number(value: object, otherwise: float) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
