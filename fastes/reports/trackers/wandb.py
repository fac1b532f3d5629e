"""Reports to Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fastes.reports.trackers.courier import Run
from fastes.reports.trackers.reporter import END_SECONDS, Reporter

PROJECT = "fastes"


class WandB(Reporter):
    """Logs to a run of W&B: the script's own if `wandb.init` was called before, else one of the project 'fastes'.

    The environment variables of W&B count, such as WANDB_MODE=offline, WANDB_PROJECT and WANDB_DIR.

    Args:
        init: Arguments for wandb.init, such as project, group or tags.
    """

    name = package = "wandb"

    def __init__(self, **init: Any) -> None:
        super().__init__()
        self._init = init
        self._run: Any = None
        self._is_ours = False

    def start(self, run: Run) -> None:
        import wandb

        self._run, self._is_ours = wandb.run, wandb.run is None
        if not self._is_ours:
            self._run.config.update(dict(run.config), allow_val_change=True)
            return
        mode = self._init.get("mode") or wandb.setup().settings.mode
        if mode in ("online", "shared") and not wandb.login(prompt=False, verify=False):  # a question would wait for an answer
            raise RuntimeError("no API key: 'wandb login' sets one, and WANDB_MODE=offline needs none")
        ours = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "id": run.name,
            "name": run.name,
            "resume": "allow",
            "reinit": "create_new",  # trainings of several seeds go on at the same time
            "config": dict(run.config),
            "settings": wandb.Settings(console="off", init_timeout=END_SECONDS, finish_timeout=END_SECONDS),
        }
        self._run = wandb.init(**{**ours, **self._init})

    def log(self, step: int, row: Mapping[str, float]) -> None:
        if step >= self._run.step:  # a resumed training plays what came after its checkpoint again
            self._run.log(dict(row), step=step)

    def note(self, step: int, values: Mapping[str, float]) -> None:  # noqa: ARG002
        self._run.summary.update(dict(values))

    def end(self) -> None:
        if self._is_ours:
            self._run.finish()
