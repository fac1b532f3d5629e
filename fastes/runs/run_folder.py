"""The folder of one training: checkpoint, best parameters, progress, configuration, learning curve."""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fastes.checkpoints.file_format import Checkpoint
from fastes.checkpoints.locate import BEST, CHECKPOINT, MIDWAY
from fastes.checkpoints.reader import read_checkpoint
from fastes.checkpoints.writer import write_checkpoint
from fastes.envs.likeness import described
from fastes.errors import CheckpointError, summary_of, warn_user
from fastes.models.checkpointing import versions
from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.csv_log import CsvLog, write_final_selection
from fastes.reports.monitor_files import EVALUATIONS, MONITOR, EvaluationsFile, MonitorFile
from fastes.reports.population_file import POPULATION, PopulationFile
from fastes.runs.curve_picture import plot_curves
from fastes.runs.curves import read_curve
from fastes.runs.folder_lock import FolderLock
from fastes.runs.midway import Midway
from fastes.runs.run_config import CONFIG, CURVE, FINAL_SELECTION, NOTES, PROGRESS, as_table, read_config, without_surrogates
from fastes.settings import population_scale
from fastes.system.atomic_files import append_whole, keep_aside, remove_leftovers, write_text
from fastes.system.console import losses
from fastes.system.interrupts import interrupts_deferred
from fastes.training.evaluation import Evaluation
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record
from fastes.training.selection import Rung


def file_name_of(text: str) -> str:
    """Return a text without the characters that a file name may not have, and not hidden: of a path its end."""
    return re.sub(r"[^\w.+-]+", "-", text).lstrip(".-")[-100:].lstrip(".-")


def _settings_in(model: Model, **changes: Any) -> dict[str, Any]:
    """Return a model's settings, with changes on top, as TOML holds them, which has no null."""
    return {name: value for name, value in {**model.settings.to_dict(), **changes}.items() if value is not None}


def _given_settings(model: Model) -> dict[str, Any]:
    """Return the user's settings as TOML holds them, population_scale among them, of policy_kwargs the user's keys alone."""
    scale = {name: value for name, value in model.given_settings.items() if name == population_scale.NAME}
    settings = {**_settings_in(model), **scale}
    given = {name: settings[name] for name in model.given_settings if name in settings}
    if isinstance(own := given.get("policy_kwargs"), dict):
        names = model.given_settings["policy_kwargs"] or {}
        given["policy_kwargs"] = {key: value for key, value in own.items() if key in names}
    return given


def new_run_folder(root: Path, env_name: str) -> Path:
    """Create root/<env>/<n>/ with the next free number. Raises OSError if that fails."""
    parent = root / file_name_of(env_name)
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.name) for p in parent.iterdir() if p.name.isdigit()), default=0)
    while True:
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:  # another training took it meanwhile
            number += 1


_REPORTED = "and the report continues without it"


class RunFolder(Callback):
    """Writes a run folder during training: statistics of each generation, checkpoints every checkpoint_seconds.

    It serves one training at a time. A second one gets FolderInUse, in a `with folder:` block or while a training runs.

    Args:
        path: The run folder.
        checkpoint_seconds: Seconds from one checkpoint to the next.
        on_save_error: Effect of a full disk, or of a folder that became read-only: 'continue' warns, keeps the old files and
            the statistics to be written, and tries again; 'stop' raises the OSError.
        shown: The path in messages; None for path.
        monitor_csv: Write SB3's monitor.csv even if it does not exist yet.
        evaluations_npz: Write SB3's evaluations.npz even if it does not exist yet.
    """

    def __init__(
        self,
        path: Path,
        checkpoint_seconds: float = 30.0,
        on_save_error: str = "continue",
        shown: Path | None = None,
        monitor_csv: bool = False,
        evaluations_npz: bool = False,
    ) -> None:
        self.path, self.checkpoint_seconds, self.on_save_error = path, checkpoint_seconds, on_save_error
        self.shown = shown or path
        self._lock, self._locked_by_training = FolderLock(path), False
        self._config: dict[str, Any] = {}
        self._noted: set[str] = set()
        self._failing: set[str] = set()  # files that could not be written at the last try
        self._best: Checkpoint | None = None
        self._midway = Midway()
        self._saved_at = time.monotonic()
        self.saved_timesteps = 0  # of the checkpoint
        self._log: CsvLog | None = None
        self._population = PopulationFile(path / POPULATION)
        self.files: list[MonitorFile | EvaluationsFile] = []
        if monitor_csv or (path / MONITOR).exists():
            self.files.append(MonitorFile(path / MONITOR))
        if evaluations_npz or (path / EVALUATIONS).exists():
            self.files.append(EvaluationsFile(path / EVALUATIONS))
        for file in self.files:
            file.check_folder = self._lock.check

    def __enter__(self) -> RunFolder:
        self._lock.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def finished(self) -> bool:
        """Whether config.toml says that the run has ended with its report."""
        config = read_config(self.path / CONFIG)
        return config is not None and config.get("run", {}).get("finished") is True

    def write_config(self, model: Model, run: Mapping[str, Any]) -> None:
        """Write config.toml: how the run was started, all settings, and versions. A damaged file is kept under another name.

        Args:
            model: The model.
            run: Entries of the table [run], such as the command.
        """
        settings = _settings_in(model)
        target = {"target_return": model.target_return} if math.isfinite(model.target_return) else {}
        preset = {"preset": model.base_preset} if model.base_preset else {}  # a resumed model began with the file
        given = {"given": _given_settings(model)} if model.selection.is_race else {}
        config: dict[str, Any] = {
            "run": {
                **target,
                **given,
                "env": model.source.name,
                "seed": model.seed,
                "n_workers": model.n_workers,
                **preset,
                **run,
                "finished": False,
                "env_kwargs": described(dict(model.source.make_kwargs)),
            },
            "settings": settings,
            "versions": versions(),
        }
        path = self.path / CONFIG
        if os.path.lexists(path):
            before = read_config(path)
            if before is None:
                self._warn(f"{path} cannot be understood: the file as it was is {keep_aside(path)}")
            else:
                config["earlier"] = [*before.pop("earlier", []), before]
                if "last_evaluation" in (run_before := as_table(before.get("run"))):  # the last one until another is known
                    config["run"]["last_evaluation"] = run_before["last_evaluation"]
        self._config = without_surrogates(config)
        write_text(path, tomli_w.dumps(self._config))

    def finish(self) -> None:
        """Write to config.toml that the run has ended."""
        if self._config:
            self._note(finished=True)

    def note_end(self, how: str) -> None:
        """Write to config.toml how the run ended, if neither its budget nor its target ended it. It is for display alone."""
        if self._config and not self._config["run"]["finished"]:
            self._config["run"]["ended"] = without_surrogates(how)
            with contextlib.suppress(OSError):
                self._write_config()

    def note_result(self, evaluation: Evaluation) -> None:
        """Write to config.toml the evaluation of the parameters in best.zip."""
        if self._config:
            shown = {"mean": evaluation.mean, "std": evaluation.std, "worst": evaluation.worst}
            self._note(result={**shown, "episodes": len(evaluation.returns)})

    def _note(self, **values: Any) -> None:
        """Add entries to the table [run] of config.toml."""
        self._config["run"].update(values)
        with self._surviving(CONFIG):
            self._write_config()

    def _write_config(self) -> None:
        self._lock.check()
        write_text(self.path / CONFIG, tomli_w.dumps(self._config))

    def on_start(self, model: Model, total_timesteps: int) -> None:
        self._locked_by_training = not self._lock.held
        self._lock.take()
        try:
            remove_leftovers(self.path)
            progress = self.path / PROGRESS
            if os.path.lexists(progress) and not progress.is_file():
                self._warn(f"{progress} is not a regular file: it is kept as {keep_aside(progress)}")
            self._log = CsvLog(progress, self._lock.check)
            self._log.truncate({trial.number + 1: trial.training.generation for trial in model.selection.trials})
            for file in self.files:
                file.on_start(model, total_timesteps)
            model.cpu_seconds = float(np.maximum(self._log.cpu_seconds, model.cpu_seconds))  # NaN stays
            if self._config:
                self._note(at_seconds=self._log.seconds)
            self._midway.on_start(model)
            self.save(model)  # from now on there is something to resume
        except BaseException:
            self._unlock()
            raise

    def on_new_best(self, model: Model, eval_return: float) -> None:  # noqa: ARG002
        self._best = model.snapshot()

    def on_final_selection(self, model: Model, result: FinalSelection) -> None:
        self._best = model.snapshot()
        with self._surviving(FINAL_SELECTION):
            self._lock.check()
            write_final_selection(self.path / FINAL_SELECTION, result)

    def on_phase(self, model: Model, name: str, episodes: int) -> None:  # noqa: ARG002
        """Write the statistics that wait: these episodes may take long."""
        if self._log is not None:
            with self._surviving(PROGRESS):
                self._log.flush()

    def on_rung(self, model: Model, rung: Rung) -> None:
        """Write the scores of a rung to config.toml."""
        if self._config:
            scores = {str(trial): score if math.isfinite(score) else "not finite" for trial, score in rung.scores}
            noted = {"at_timesteps": model.num_timesteps, "kept": rung.kept, "scores": scores}
            if rung.recipes:
                noted["recipes"] = dict(zip(scores, rung.recipes, strict=True))
            self._note(rungs=[*self._config["run"].get("rungs", []), noted])
            self._note_race(model)

    def _note_race(self, model: Model) -> None:
        """Write to config.toml, once, which recipes race, and once one has won its name and its settings."""
        if not self._config or not model.selection.is_race:
            return
        run, trials = self._config["run"], model.selection.trials
        if model.selection.is_open:
            if "racing" not in run:
                self._note(racing={str(trial.number + 1): trial.recipe for trial in trials})
        elif "recipe" not in run:  # its settings as those of a training without a race
            self._config["settings"] = without_surrogates(_settings_in(model, trials=1, rungs=1))
            self._note(recipe=model.selection.present.recipe)

    def on_generation(self, model: Model, record: Record) -> None:
        assert self._log is not None
        is_due = time.monotonic() - self._saved_at >= self.checkpoint_seconds
        with self._surviving(PROGRESS):
            self._log.write(record)
            if is_due:
                self._log.flush()
        for file in self.files:
            with self._surviving(file.path.name):
                file.on_generation(model, record)
        with contextlib.suppress(OSError):  # it is for display alone
            self._lock.check()
            self._population.on_generation(model, record)
        self._midway.on_generation(model)
        self._note_race(model)
        self.note_losses()
        if is_due:
            with self._surviving(CHECKPOINT):
                self.save(model)

    def on_end(self, model: Model) -> None:
        """Write the statistics that wait, and those of a generation that was committed before an interrupt and not reported."""
        if self._log is not None:
            with self._surviving(PROGRESS):
                if model.unreported_record is not None:
                    self._log.write(model.unreported_record)
                self._log.flush()
        for file in self.files:
            with self._surviving(file.path.name):
                file.on_end(model)
        with contextlib.suppress(OSError):
            self._lock.check()
            self._population.on_end(model)
        self._note_race(model)
        if self._config:
            seconds = {} if self._log is None else {"seconds": self._log.seconds}
            best = model.selection.showing_best().present
            leader = {"trial": best.number + 1, "generation": best.training.generation}
            self._note(solved=model.solved, leader=leader, **seconds, **self._last_evaluation(model))
        self.note_losses()
        self._unlock()

    @staticmethod
    def _last_evaluation(model: Model) -> dict[str, Any]:
        """Return, for config.toml, the evaluation that was reported when training ended: no row of progress.csv has it."""
        trial = model.selection.last
        latest = trial.training.latest_evaluations
        if not latest or not math.isfinite(latest[-1].evaluation.mean):
            return {}
        of, evaluation = latest[-1]
        at = of.timesteps + model.selection.steps_beside(trial)
        noted = {"generation": of.generation + 1, "at_timesteps": at, "mean": evaluation.mean}
        return {"last_evaluation": {**noted, "trial": trial.number + 1}}

    def _unlock(self) -> None:
        if self._locked_by_training:
            self._lock.release()

    def note_losses(self) -> None:
        """Write to notes.txt, once, that the console's output is lost."""
        for loss in losses():
            if loss not in self._noted:
                self._noted.add(loss)
                line = f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {loss}: what it should show is lost\n"
                with self._surviving(NOTES):
                    self._lock.check()
                    append_whole(self.path / NOTES, line.encode(errors="backslashreplace"))
                self._warn(f"{loss}: training continues")

    def _warn(self, message: str) -> None:
        warn_user(message)

    @property
    def unwritten(self) -> list[str]:
        """Names of files that could not be written when that was tried last."""
        return sorted(self._failing)

    @contextlib.contextmanager
    def _surviving(self, name: str, then: str = "training continues, and writing is tried again") -> Iterator[None]:
        """Turn a file that cannot be written into a warning, which says what happens then, unless on_save_error is 'stop'."""
        try:
            yield
            self._failing.discard(name)
        except OSError as error:
            if self.on_save_error == "stop":
                raise
            if name not in self._failing:
                self._failing.add(name)
                warn_user(f"{self.path / name} cannot be written ({error}): what was there stays, {then}")

    def save(self, model: Model) -> None:
        """Write the statistics that are still to be written, new best parameters, the checkpoint, and new ones for midway.zip.

        Raises:
            OSError: If a file cannot be written.
        """
        self._saved_at = time.monotonic()
        self._lock.check()
        if self._log is not None:
            self._log.flush()
        for file in self.files:
            file.flush()
        with interrupts_deferred():  # one in the midst would leave an open file, or the number of an older one
            if self._best is not None:
                write_checkpoint(self.path / BEST, self._best)
                self._best = None
            model.save(self.path / CHECKPOINT)
            self._failing -= {PROGRESS, CHECKPOINT, *(file.path.name for file in self.files)}
            self.saved_timesteps = model.num_timesteps
            if self._midway.due is not None:
                with self._surviving(MIDWAY):
                    write_checkpoint(self.path / MIDWAY, self._midway.due)
                    self._midway.due = None

    def save_somewhere(self, model: Model) -> Path:
        """`save` at the end. If that fails, the checkpoint goes to the first other folder that takes it.

        Returns:
            Path of the checkpoint.
        """
        try:
            self.save(model)
            return self.path / CHECKPOINT
        except OSError as error:
            name = file_name_of(f"fastes-{model.source.name}-{self.path.name}-{CHECKPOINT}")
            for find_place in (Path.cwd, Path.home, tempfile.gettempdir):
                with contextlib.suppress(OSError, RuntimeError):  # the folder may not exist either
                    place = Path(find_place())
                    model.save(place / name)
                    warn_user(
                        f"{self.path} cannot be written ({error}): the checkpoint is in {place / name}; copy it there as "
                        f"{CHECKPOINT} to continue"
                    )
                    return place / name
            raise

    def keep_as_best(self, model: Model) -> None:
        """Write the present model to best.zip."""
        self._best = None
        with self._surviving(BEST, _REPORTED):
            self._lock.check()
            model.save(self.path / BEST)

    def has_best(self) -> bool:
        """Return whether there is a best.zip that can be read. A damaged one is kept under another name, with a warning."""
        best = self.path / BEST
        try:
            self._lock.check()
        except OSError:  # it is another training's
            return False
        try:
            if os.path.lexists(best):
                read_checkpoint(best)
                return True
        except CheckpointError as error:
            self._warn(f"{summary_of(error)}; it is kept as {keep_aside(best)}, and the last parameters take its place")
        return False

    def draw(self, model: Model) -> bool:
        """Draw the learning curve. Returns False without matplotlib."""
        curve = read_curve(self.path, self.shown)._replace(target=model.target_return)
        try:
            with self._surviving(CURVE, _REPORTED):
                self._lock.check()
                plot_curves([curve], self.path / CURVE, f"{model.source.name}, seed {model.seed}")
        except ImportError:
            return False
        return True
