"""Reporter: a callback that hands a training's figures to a tracker."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastes.errors import summary_of, warn_user
from fastes.models.checkpointing import versions
from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.trackers.by_name import REPORTERS
from fastes.reports.trackers.courier import Courier, Run
from fastes.reports.trackers.noted_run import new_name, note_run
from fastes.system.installation import install_command
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record

END_SECONDS = 30.0  # that a training waits at its end for a tracker


class Reporter(Callback):
    """A tracker as a callback: subclass, and override `start`, `log`, `note` and `end`, which `Tracker` describes.

    They are called in a thread of their own and may take long, or fail: a training continues without them, after one warning.
    One object reports one training at a time.

    Attributes:
        name: The name in warnings; of one of FastES' own also the name for `learn` and `fastes train --report`.
        package: The package that it needs, '' for none.
        run_folder: Folder of reports.json, by which a resumed training continues the tracker's run; None for none.
        ends_with_training: Whether the end of `learn` ends the tracker's run and waits for it; if not, `finish` and `wait` do.

    Raises:
        ImportError: If the package is not installed.
    """

    name = ""
    package = ""
    run_folder: Path | None = None
    ends_with_training = True
    _courier: Courier | None = None  # values of the class: a subclass may not call __init__
    _run_name, _step = "", 0

    def __init__(self) -> None:
        self.check_installed()

    @classmethod
    def check_installed(cls) -> None:
        """Raise ImportError, with the command that installs it, if the package is missing."""
        if not cls.package:
            return
        try:
            spec = importlib.util.find_spec(cls.package)
        except ValueError:  # it is None in sys.modules
            spec = None
        if spec is None or spec.origin is None:  # a folder of that name, as W&B makes one, is no package
            how = install_command(cls.package) if cls.package in REPORTERS else f"pip install {cls.package}"
            raise ImportError(f"reports to {cls.name} need the package {cls.package}: {how}")

    def start(self, run: Run) -> None: ...

    def log(self, step: int, row: Mapping[str, float]) -> None: ...

    def note(self, step: int, values: Mapping[str, float]) -> None: ...

    def end(self) -> None: ...

    # --- as a callback ----------------------------------------------------------------------------------------------

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        if self._courier is not None:  # an exception has kept it from on_end
            self._courier.end()
        run = Run(self._name_of_run(model), config_of(model), self.run_folder, model.num_timesteps)
        self._courier = Courier(self, run)

    def on_new_best(self, model: Model, eval_return: float) -> None:
        self._note(model, "best_return", eval_return)

    def on_final_selection(self, model: Model, result: FinalSelection) -> None:
        self._note(model, "selected_return", result.winner.last.mean)

    def on_generation(self, model: Model, record: Record) -> None:  # noqa: ARG002
        if self._courier is not None:
            self._courier.send(record)
            self._tell_of_failure()

    def on_end(self, model: Model) -> None:
        self._note(model, "solved", float(model.solved))
        self._step = model.num_timesteps
        if self.ends_with_training:
            self.finish()
            self.wait(END_SECONDS)

    def finish(self, result: Mapping[str, float] | None = None) -> None:
        """Let the tracker end its run, with figures of the whole run. It does not wait."""
        if self._courier is not None:
            if result:
                self._courier.note(self._step, result)
            self._courier.end()

    def wait(self, seconds: float) -> None:
        """Wait until the tracker has ended its run."""
        if self._courier is not None and not self._courier.end(seconds):
            self._warn(f"has not ended in {END_SECONDS:.0f} s: what it has not sent yet may be lost")
        self._tell_of_failure()
        self._courier = None

    def _note(self, model: Model, figure: str, value: float) -> None:
        if self._courier is not None and math.isfinite(value):
            self._courier.note(model.num_timesteps, {f"result/{figure}": value})

    def _name_of_run(self, model: Model) -> str:
        if self.run_folder is not None:
            try:
                return note_run(self.run_folder, self.name, model)
            except OSError as error:
                self._warn(f"will begin a new run when this one is resumed: reports.json cannot be written ({error})")
        if not self._run_name or not model.num_timesteps:
            self._run_name = new_name(model)
        return self._run_name

    def _tell_of_failure(self) -> None:
        if self._courier is not None and self._courier.error is not None:
            self._warn(f"has failed, and gets nothing more: {summary_of(self._courier.error)}")
            self._courier = None

    def _warn(self, message: str) -> None:
        warn_user(f"{self.name} {message}. The training is not affected")


def config_of(model: Model) -> dict[str, Any]:
    """Return the settings of a training, those that all have if recipes race, and what else tells two runs apart."""
    trials = model.selection.trials
    first, *others = (trial.training.settings.to_dict() for trial in trials)
    settings = {name: value for name, value in first.items() if all(other[name] == value for other in others)}
    recipes = [trial.recipe for trial in trials if trial.recipe]
    return {
        **settings,
        "env": model.source.name,
        "seed": model.seed,
        "preset": model.base_preset,
        **({"recipes": ", ".join(recipes)} if recipes else {"num_params": model.num_params}),
        "n_workers": model.n_workers,
        "fastes_version": versions().get("fastes", ""),
    }
