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
from fastes.reports.plots import Curve, Numbers, Outcome
from fastes.runs.run_config import read_config
from fastes.settings.settings import SCHEDULES
from fastes.system.near_paths import in_words, names_in, what_is_beside
from fastes.training.starts.parts import round_sizes

_OF_THE_END = ("target_return", "target_episodes")  # settings that change no evaluation before the end


def read_curve(folder: Path, progress: Path, config: Path) -> Curve:
    """The curve of a run; without a configuration it has no target and no starts. Raises OSError when it cannot be read."""
    columns = read_progress(progress)
    steps, returns = np.array(columns["timesteps"]), np.array(columns["eval_return"])
    written = read_config(config) or {}
    sessions = [*written.get("earlier", []), written]
    run, settings = written.get("run", {}), written.get("settings", {})
    at = np.where(np.array(columns["eval_generation"]) > 0, columns["eval_at"], steps)  # files of older versions have neither
    known = np.isfinite(steps) & np.isfinite(returns)
    at, returns = _with_last(at[known], returns[known], run.get("last_evaluation"))
    first, *further = _sizes(settings)
    left_out = _OF_THE_END if _follows_budget(settings) else (*_OF_THE_END, "total_timesteps")
    alike = {key: value for key, value in settings.items() if key not in left_out}
    return Curve(
        f"{run.get('env', folder.name)}, seed {run.get('seed', '?')} ({folder})",
        at,
        returns,
        _number(run.get("target_return"), _number(settings.get("target_return"), math.inf)),
        _start_ends(steps, sessions),
        first,
        (run.get("env"), run.get("env_kwargs"), alike) if settings else None,
        _outcome(run.get("result"), steps),
        tuple(further),
    )


def _follows_budget(settings: dict[str, Any]) -> bool:
    """Whether the budget says more than when training ends."""
    schedules = any(isinstance(settings.get(name), str) for name in SCHEDULES)
    return schedules or _number(settings.get("starts"), 1) > 1


def _outcome(result: object, steps: Numbers) -> Outcome | None:
    """What `RunFolder.note_result` has noted; None where there is none."""
    told = result if isinstance(result, dict) else {}
    mean, std, worst, episodes = (_number(told.get(name), math.nan) for name in ("mean", "std", "worst", "episodes"))
    if not len(steps) or not all(map(math.isfinite, (mean, std, worst, episodes))):
        return None
    return Outcome(float(steps[-1]), mean, std, worst, int(episodes))


def _with_last(at: Numbers, returns: Numbers, last: object) -> tuple[Numbers, Numbers]:
    """And the evaluation that was told when training ended, where no row has it."""
    told = last if isinstance(last, dict) else {}
    timesteps, mean = _number(told.get("at_timesteps"), math.nan), _number(told.get("mean"), math.nan)
    if math.isfinite(timesteps) and math.isfinite(mean) and (not len(at) or timesteps > at[-1]):
        return np.append(at, float(timesteps)), np.append(returns, float(mean))
    return at, returns


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


def _start_ends(steps: Numbers, sessions: list[dict[str, Any]]) -> tuple[float, ...]:
    """Timesteps at which starts were judged.

    As `RunFolder.on_start_judged` has noted them; in runs of older versions as `Starts.due` decides with each session's budget.
    """
    runs = [session.get("run", {}) for session in sessions]
    if all("judged_at" in run for run in runs):
        until = [*(_number(run.get("at_timesteps"), 0.0) for run in runs[1:]), math.inf]  # what came after was done again
        noted = [(run.get("judged_at", []), end) for run, end in zip(runs, until, strict=True)]
        return tuple(sorted({float(at) for all_of_it, end in noted for at in all_of_it if _number(at, math.inf) <= end}))
    ends: list[float] = []
    begun = 0.0
    for now in steps.tolist():
        session = next((s for s in reversed(sessions) if _number(s.get("run", {}).get("at_timesteps"), 0) < now), sessions[0])
        settings = session.get("settings", {})
        sizes, share = _sizes(settings), _number(settings.get("starts_share"), 0.0)
        budget = _number(settings.get("total_timesteps"), math.inf)
        size = _size_of_part(sizes, len(ends)) if sizes[0] > 1 else None
        if size is not None and now - begun >= share * budget / (len(sizes) * size):
            ends.append(now)
            begun = now
    return tuple(ends)


def _size_of_part(sizes: list[int], part: int) -> int | None:
    """How many starts the round of a part has, None after the last one. part: its number, from 0."""
    for size in sizes:
        if part < size:
            return size
        part -= size
    return None


def _sizes(settings: dict[str, Any]) -> list[int]:
    """How many starts each round has."""
    return round_sizes(*(int(_number(settings.get(name), 1)) for name in ("starts", "starts_rounds")))


def _number(value: object, otherwise: float) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
