"""The folder of one training: checkpoint, best, progress, configuration, learning curve."""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fastes.callbacks import Callback
from fastes.checkpoint import Checkpoint, write_checkpoint
from fastes.errors import CheckpointError
from fastes.logger import CsvLog, Record, write_text
from fastes.plots import plot_learning_curve
from fastes.presets import tomllib
from fastes.restore import versions
from fastes.sb3.files import EVALUATIONS, MONITOR, EvaluationsFile, MonitorFile

if TYPE_CHECKING:
    from fastes.agent import FastES

CHECKPOINT, BEST, PROGRESS, CONFIG, CURVE = "checkpoint.zip", "best.zip", "progress.csv", "config.toml", "learning_curve.png"


def _file_name(text: str) -> str:
    """text with what may not be in a file's name replaced."""
    return re.sub(r"[^\w.+-]+", "-", text)


def new_run_folder(root: Path, env_name: str) -> Path:
    """root/<env>/<n>/ with the next free number. Raises OSError when it cannot be made."""
    parent = root / _file_name(env_name)
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(p.name) for p in parent.iterdir() if p.name.isdigit()), default=0)
    while True:
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:  # another training took it meanwhile
            number += 1


def find_checkpoint(path: Path, which: str = "best") -> Path:
    """The checkpoint file that a run folder, or a path to a file, means. which: 'best' or 'last'."""
    if not path.is_dir():
        return path
    names = (BEST, CHECKPOINT) if which == "best" else (CHECKPOINT,)
    for name in names:
        if (path / name).is_file():
            return path / name
    raise CheckpointError(f"{path} holds no {' or '.join(names)}: expected a run folder such as runs/CartPole-v1/1")


def _earlier(config: Path) -> list[dict[str, Any]]:
    """What a run folder's configuration was at each start before, oldest first; a damaged file is forgotten."""
    try:
        before = tomllib.loads(config.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return []
    return [*before.pop("earlier", []), before]


class RunFolder(Callback):
    """Writes a run folder while training goes on: figures at once, checkpoints every checkpoint_seconds and at the end.

    on_save_error: what a full disk or a folder that became read-only does to the training: 'continue' warns, keeps the old
    files and the figures to be written, and tries again; 'stop' raises the OSError. shown: path as messages name it.
    monitor_csv, evaluations_npz: write these files of SB3's; they go on being written where they are there already.
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
        self._failing: set[str] = set()  # what could not be written at the last try
        self._best: Checkpoint | None = None
        self._saved_at = time.monotonic()
        self._log: CsvLog | None = None
        self.files: list[MonitorFile | EvaluationsFile] = []
        if monitor_csv or (path / MONITOR).exists():
            self.files.append(MonitorFile(path / MONITOR))
        if evaluations_npz or (path / EVALUATIONS).exists():
            self.files.append(EvaluationsFile(path / EVALUATIONS))

    def write_config(self, model: FastES, run: Mapping[str, Any]) -> None:
        """config.toml: how the run was started (`run`: command, preset, ...), all settings, and versions."""
        settings = {name: value for name, value in model.settings.to_dict().items() if value is not None}
        config: dict[str, Any] = {
            "run": {
                "env": model.source.name,
                "seed": model.seed,
                "n_workers": model.n_workers,
                **run,
                "env_kwargs": str(dict(model.source.make_kwargs)),
            },
            "settings": settings,
            "versions": versions(),
        }
        previous = self.path / CONFIG
        if previous.exists():
            config["earlier"] = _earlier(previous)
        write_text(previous, tomli_w.dumps(config))

    def on_start(self, model: FastES, total_timesteps: int) -> None:
        for left in self.path.glob(".*.zip.*-*.*"):  # by a save that was killed between naming and renaming
            left.unlink(missing_ok=True)
        self._log = CsvLog(self.path / PROGRESS)
        self._log.truncate(model.generation)
        for file in self.files:
            file.on_start(model, total_timesteps)
        self.save(model)  # whatever happens next, there is something to go on with

    def on_new_best(self, model: FastES, eval_return: float) -> None:  # noqa: ARG002
        self._best = model.snapshot()

    def on_generation(self, model: FastES, record: Record) -> None:
        assert self._log is not None
        with self._surviving(PROGRESS):
            self._log.write(record)
        for file in self.files:
            with self._surviving(file.path.name):
                file.on_generation(model, record)
        if time.monotonic() - self._saved_at >= self.checkpoint_seconds:
            with self._surviving(CHECKPOINT):
                self.save(model)

    def on_end(self, model: FastES) -> None:
        """A generation that was booked before an interrupt, of which nobody was told, has its figures all the same."""
        if model.untold is not None and self._log is not None:
            with self._surviving(PROGRESS):
                self._log.write(model.untold)
        for file in self.files:
            with self._surviving(file.path.name):
                file.on_end(model)

    @contextlib.contextmanager
    def _surviving(self, name: str) -> Iterator[None]:
        try:
            yield
            self._failing.discard(name)
        except OSError as error:
            if self.on_save_error == "stop":
                raise
            if name not in self._failing:
                self._failing.add(name)
                warnings.warn(
                    f"{self.path / name} cannot be written ({error}): training goes on, what was there stays, and writing is "
                    "tried again",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def save(self, model: FastES) -> None:
        """Write the figures that are owed, best.zip when there is a new best, and the checkpoint, which knows of both.

        Raises OSError.
        """
        self._saved_at = time.monotonic()
        if self._log is not None:
            self._log.flush()
        for file in self.files:
            file.flush()
        if self._best is not None:
            write_checkpoint(self.path / BEST, self._best)
            self._best = None
        model.save(self.path / CHECKPOINT)

    def save_somewhere(self, model: FastES) -> Path:
        """`save` at the end; where the folder cannot take it, the checkpoint goes to the first other place that can."""
        try:
            self.save(model)
            return self.path / CHECKPOINT
        except OSError as error:
            name = _file_name(f"fastes-{model.source.name}-{self.path.name}-{CHECKPOINT}")
            for place in (Path.cwd(), Path.home(), Path(tempfile.gettempdir())):
                with contextlib.suppress(OSError):
                    model.save(place / name)
                    warnings.warn(
                        f"{self.path} cannot be written ({error}): the checkpoint is in {place / name}; copy it there as "
                        f"{CHECKPOINT} to go on",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                    return place / name
            raise

    def keep_as_best(self, model: FastES) -> None:
        """Make the model as it is now the best one."""
        self._best = None
        model.save(self.path / BEST)

    def draw(self, model: FastES) -> bool:
        """Draw the learning curve; False when matplotlib is missing."""
        target = model.target_return
        title = f"{model.source.name}, seed {model.seed}"
        try:
            plot_learning_curve(self.path / PROGRESS, self.path / CURVE, title, target if target < math.inf else math.inf)
        except ImportError:
            return False
        return True
