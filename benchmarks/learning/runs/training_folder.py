"""A training as `fastes train` does it, in a run folder that a later process resumes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fastes.cli.main import main
from fastes.runs.run_folder import RunFolder


def trained(env: str, flags: Sequence[str], seed: int, timesteps: int, runs: Path) -> Path:
    """Train to the end of a budget in this process, or resume what an earlier one left.

    Args:
        flags: Further ones of `fastes train`.
        runs: Folder for run folders; those of this training lie in one of its own in it.

    Returns:
        The run folder, which is finished.

    Raises:
        RuntimeError: `fastes train` ended with an error; it has said which.
    """
    home = runs / "-".join((env, str(seed), str(timesteps), *flags)).replace("/", "-")
    saved = list(home.glob("*/*/checkpoint.zip"))  # a process that was killed before its first checkpoint leaves other folders
    if not saved:
        own = ["--seed", str(seed), "--runs", str(home), "--target-return", "none", "--total-timesteps", str(timesteps)]
        _train(env, *own, *flags)
        saved = list(home.glob("*/*/checkpoint.zip"))
    elif not RunFolder(saved[0].parent).finished:
        _train("--resume", str(saved[0].parent))  # which keeps its settings and its budget
    return saved[0].parent


def _train(*arguments: str) -> None:
    given = ["train", *arguments, "--workers", "0", "--quiet"]
    if status := main(given):
        raise RuntimeError(f"fastes {shlex.join(given)} ended with status {status}, as is said above")
