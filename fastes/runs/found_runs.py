"""Run folders: those that a path means."""

from __future__ import annotations

import os
from pathlib import Path

from fastes.checkpoints.locate import is_run_folder
from fastes.errors import FastESError, warn_user
from fastes.runs.run_config import PROGRESS
from fastes.system.near_paths import in_words, names_in, what_is_beside

DEPTH = 2  # folders from runs/ to runs/CartPole-v1/1


def runs_of(path: Path) -> list[Path]:
    """Return the run folders that a path means: itself, the folder of a run's file, or all runs in a folder.

    Those in runs/ are in folders of their environments. Folders that hide, such as .git, are not searched.

    Raises:
        FastESError: If there are none; it says what the path is instead.
    """
    if path.is_file() and (path.parent / PROGRESS).exists():
        return [path.parent]
    if not path.is_dir():
        what = "not a run folder: expected one such as runs/CartPole-v1/1" if path.exists() else "missing"
        raise FastESError(f"{path} is {what}{what_is_beside(path)}")
    if runs := runs_in(path, depth=DEPTH):
        return runs
    has = in_words(names_in(path)) or "nothing"
    raise FastESError(f"{path} is not a run folder, and holds none: expected one such as runs/CartPole-v1/1; it has {has}")


def each_once(runs: list[Path]) -> list[Path]:
    """Leave out runs that are named more than once, in whatever spelling: they would count twice."""
    named: dict[Path, Path] = {}
    for run in runs:
        if named.setdefault(run.resolve(), run) is not run:
            warn_user(f"{run} is named more than once: it counts once", UserWarning)
    return list(named.values())


def runs_in(path: Path, depth: int) -> list[Path]:
    """Return a folder itself if it is a run's, or else those in it, or in its folders, down to a depth."""
    if os.path.lexists(path / PROGRESS) or is_run_folder(path):
        return [path]
    return [run for name in names_in(path, most=None) for run in runs_in(path / name, depth - 1)] if depth else []
