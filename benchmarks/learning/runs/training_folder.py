"""A training as `fastes train` does it, in a run folder that a later process resumes."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from fastes import FastES
from fastes.cli.main import main
from fastes.cli.saved_model import wrapped_source
from fastes.runs.run_folder import RunFolder


def trained(env: str, flags: Sequence[str], seed: int, timesteps: int, runs: Path, settings: str = "") -> Path:
    """Train to the end of a budget in this process, or resume what an earlier one left.

    If another process trains the same, wait for its end.

    Args:
        flags: Further ones of `fastes train`.
        runs: Folder for run folders; those of this training lie in one of its own in it.
        settings: Tells trainings with the same flags apart.

    Returns:
        The run folder, which is finished.

    Raises:
        SystemExit: `fastes train` ended with an error, which it has told.
    """
    told = json.dumps([env, *flags, seed, timesteps, settings])
    home = runs / f"{re.sub(r'[^A-Za-z0-9]+', '-', env)}-{seed}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        saved = list(home.glob("*/*/checkpoint.zip"))  # a process killed before its first checkpoint leaves other folders
        if not saved:
            own = ["--seed", str(seed), "--runs", str(home), "--target-return", "none", "--total-timesteps", str(timesteps)]
            _train(env, *own, *flags)
            saved = list(home.glob("*/*/checkpoint.zip"))
        elif not RunFolder(saved[0].parent).finished:
            _train("--resume", str(saved[0].parent))  # which keeps its settings and its budget
    return saved[0].parent


def load(checkpoint: Path, env: str) -> FastES:
    """The model of a checkpoint in a run folder, in this process. env: its id, whose module may have to be imported first."""
    if ":" in env:
        importlib.import_module(env.partition(":")[0])
    return FastES.load(checkpoint, wrapped_source(checkpoint.parent, None, {}, ()), n_workers=0)


def _train(*arguments: str) -> None:
    if status := main(["train", *arguments, "--workers", "0", "--quiet"]):
        raise SystemExit(status)
