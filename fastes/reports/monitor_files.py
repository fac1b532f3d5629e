"""Files that SB3's plots and scripts read, written without SB3: Monitor's CSV and EvalCallback's evaluations.npz."""

from __future__ import annotations

import csv
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.file_format import undated
from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.system.atomic_files import append_whole, write_bytes
from fastes.system.interrupts import interrupts_deferred
from fastes.training.record import Record

MONITOR, EVALUATIONS = "monitor.csv", "evaluations.npz"
_TICK = 1e-6  # seconds, the last digit of t: no two rows have the same t, so that sorting by t keeps their order


def checked_keywords(given: Iterable[str]) -> tuple[str, ...]:
    """Return `info_keywords` as a tuple; TypeError for anything but an iterable of strings."""
    names = () if isinstance(given, (str, bytes)) or not isinstance(given, Iterable) else tuple(given)
    if (not names and given not in ((), [])) or any(not isinstance(name, str) for name in names):
        raise TypeError(f"info_keywords = {given!r}: expected names of infos, as in info_keywords=('distance',)")
    return names


def keywords_in(info: dict[str, Any], keywords: Sequence[str]) -> dict[str, Any]:
    """Return the keywords that an episode's last info has, itself or from a Monitor inside the environment."""
    episode = info.get("episode", {})
    known = {**(episode if isinstance(episode, dict) else {}), **info}
    return {name: known[name] for name in keywords if name in known and name != "episode"}


class _GenerationFile(Callback):
    """Writes each generation once, including one that was committed before an exception and not reported."""

    path: Path
    check_folder: Callable[[], None] = staticmethod(lambda: None)  # raises OSError if nothing may be written there
    _reported: Record | None = None

    def check(self, model: Model) -> None:
        """Raise ValueError or OSError if a training of this model could not continue the file."""
        self._read(model)

    def _read(self, model: Model) -> Any:
        """Read the content that is to be continued."""
        raise NotImplementedError

    def on_generation(self, model: Model, record: Record) -> None:
        with interrupts_deferred():
            if record is not self._reported:
                self._note(model, record)
                self._reported = record
            self._write()

    def on_end(self, model: Model) -> None:
        with interrupts_deferred():
            if model.unreported_record is not None and model.unreported_record is not self._reported:
                self._note(model, model.unreported_record)
                self._reported = model.unreported_record
            self.flush()

    def _note(self, model: Model, record: Record) -> None:
        raise NotImplementedError

    def _write(self) -> None:
        """Write a generation, now or later."""
        self.flush()

    def flush(self) -> None:
        """Write all generations so far. After an OSError the file is unchanged, and the next call writes them."""
        raise NotImplementedError


class MonitorFile(_GenerationFile):
    """The CSV file of SB3's Monitor, with a row of r, l, t and the model's info_keywords per candidate, in job order.

    r is the return rounded to 6 digits (the mean of the candidate's episodes if episodes_per_candidate is above 1), l the
    steps, t the seconds from t_start to the end of the generation. An info without a keyword leaves its cell empty.
    stable_baselines3.common.monitor.load_results and results_plotter read the file.

    A training that starts at num_timesteps 0 replaces the file. A training that continues keeps it, without the rows since the
    last checkpoint. The steps of all rows add up to num_timesteps, except for those that only began statistics (obs_warmup);
    if a file begins later, its first line has the steps before that as num_timesteps. A generation that proves the parameters
    solved counts no timesteps and has no rows.

    Args:
        path: File, to which '.monitor.csv' is appended unless it ends in monitor.csv, or a folder for monitor.csv.

    Raises:
        ValueError: If a training continues and the file is not such a CSV.
        OSError: If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        if not name.endswith(MONITOR):
            name = os.path.join(name, MONITOR) if os.path.isdir(name) else f"{name}.{MONITOR}"
        self.path = Path(name).absolute()  # an environment may leave the working directory
        self._start = self._owed = b""
        self._t_start = 0.0
        self._keywords: tuple[str, ...] = ()

    def _read(self, model: Model) -> tuple[dict[str, Any], bytes, int] | None:
        """Read the content that is to be continued, as `_read_monitor` returns it; None if there is none."""
        _check_file(self.path)
        if not model.num_timesteps or not self.path.exists() or not self.path.stat().st_size:
            return None
        return _read_monitor(self.path, _with_rows(model), model.info_keywords)

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        self._reported, self._owed = None, b""
        source = model.source
        header: dict[str, Any] = {"t_start": time.time(), "env_id": source.spec.id if source.spec else source.name}
        rows, before = b"", _with_rows(model)
        if found := self._read(model):
            header, rows, before = found
        if before:
            header["num_timesteps"] = before
        self._t_start = header["t_start"]
        self._keywords = model.info_keywords
        self._start = f"#{json.dumps(header)}\n".encode() + _columns(self._keywords)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path, self._start + rows)

    def _note(self, model: Model, record: Record) -> None:  # noqa: ARG002
        if model.solved:
            return
        text, episodes = io.StringIO(), model.last_episodes
        first = round(time.time() - self._t_start - _TICK * len(episodes), 6)  # otherwise two rows may be rounded to one t
        infos = model.last_infos or [{}] * len(episodes)
        for n, ((r, length), info) in enumerate(zip(episodes, infos, strict=True), 1):
            found = keywords_in(info, self._keywords)
            cells = [" ".join(v.split()) if isinstance(v := found.get(name, ""), str) else v for name in self._keywords]
            csv.writer(text).writerow([round(r, 6), length, round(first + _TICK * n, 6), *cells])
        self._owed += text.getvalue().encode()

    def flush(self) -> None:
        if self._owed:
            self.check_folder()
            append_whole(self.path, self._owed, self._start)
            self._owed = b""


def _with_rows(model: Model) -> int:
    """Return the timesteps that a complete file has rows of."""
    selection = model.selection
    return model.num_timesteps - selection.counters.warm_up_timesteps - selection.scoring_timesteps


def _check_file(path: Path) -> None:
    """Raise ValueError for a folder, or for a pipe, on which reading would wait."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file: move it away or choose another path")


def _columns(keywords: Sequence[str]) -> bytes:
    """Return the line of column names, with the line end of Python's csv module, as SB3 writes it."""
    text = io.StringIO()
    csv.writer(text).writerow(["r", "l", "t", *keywords])
    return text.getvalue().encode()


def _read_monitor(path: Path, num_timesteps: int, keywords: Sequence[str]) -> tuple[dict[str, Any], bytes, int]:
    """Return a file's first line, its rows of the first num_timesteps, and how many timesteps have no rows."""
    first, columns, *lines = [*path.read_bytes().splitlines(keepends=True), b"", b""]
    try:
        header = json.loads(first.removeprefix(b"#"))
        steps = int(header.pop("num_timesteps", 0))
        if not (first.startswith(b"#") and columns == _columns(keywords) and isinstance(header["t_start"], (int, float))):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} starts with {(first + columns)[:100]!r}: expected the CSV file of a Monitor with the columns "
            f"{_columns(keywords).decode().strip()} to continue; move it away or choose another path"
        ) from error
    rows = []
    for line in lines:
        cells = line.split(b",", 3)
        is_whole = len(cells) == 3 + bool(keywords) and line.endswith(b"\n") and cells[1].isdigit()
        if not is_whole or steps + int(cells[1]) > num_timesteps:
            break
        steps += int(cells[1])
        rows.append(line)
    return header, b"".join(rows), max(0, num_timesteps - sum(int(row.split(b",")[1]) for row in rows))


class EvaluationsFile(_GenerationFile):
    """The evaluations.npz of SB3's EvalCallback, from the noise-free episodes that training plays.

    Arrays: timesteps int64 (n,), with which the evaluated parameters had been trained; results float64 (n, eval_episodes), the
    returns; ep_lengths int64 (n, eval_episodes). The file is replaced as a whole: a reader sees the old one or the new one.

    A training that starts at num_timesteps 0 replaces the file. A training that continues keeps the rows before its
    num_timesteps.

    Args:
        path: File, to which '.npz' is appended if it is missing, or a folder for evaluations.npz.
        seconds: Time between two writes; the last one is at the end.

    Raises:
        ValueError: If a training continues and the file is damaged or has another number of episodes.
        OSError: If the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float = 10.0) -> None:
        name = os.fspath(path)
        if os.path.isdir(name):
            name = os.path.join(name, EVALUATIONS)
        self.path = Path(name if name.endswith(".npz") else f"{name}.npz").absolute()
        self.seconds = seconds
        self._rows: list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._known = set[tuple[int, bytes]]()  # timesteps and returns of the rows
        self._written = 0  # rows in the file
        self._first = 0  # first generation of this training, as the strategy counts
        self._tried_at = -float("inf")

    def on_start(self, model: Model, total_timesteps: int) -> None:  # noqa: ARG002
        self._reported, self._rows, self._tried_at = None, [], -float("inf")
        self._first = 0 if model.num_timesteps else model.generation
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._rows = self._read(model)
        self._known = {(at, np.asarray(returns, np.float64).tobytes()) for at, returns, _ in self._rows}
        self._written = len(self._rows)

    def _read(self, model: Model) -> list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Read the rows that are to be continued."""
        _check_file(self.path)
        if not model.num_timesteps or not self.path.exists():
            return []
        return _read_evaluations(self.path, model.num_timesteps, model.settings.eval_episodes)

    def _note(self, model: Model, record: Record) -> None:  # noqa: ARG002
        self._note_evaluations(model)

    def _note_evaluations(self, model: Model) -> None:
        """Add the last evaluations, except those that have a row, or that are of parameters from before this training."""
        trial = model.selection.last
        others = model.selection.steps_beside(trial)
        for of, evaluation in trial.training.latest_evaluations:
            at = of.timesteps + others
            known = at, evaluation.returns.tobytes()
            if of.generation >= self._first and known not in self._known:
                self._known.add(known)
                self._rows.append((at, evaluation.returns, evaluation.lengths))

    def on_end(self, model: Model) -> None:
        """Add the evaluations that still played when the last generation ended."""
        with interrupts_deferred():
            self._note_evaluations(model)
        super().on_end(model)

    def _write(self) -> None:
        if time.monotonic() - self._tried_at >= self.seconds:
            self.flush()

    def flush(self) -> None:
        if self._written == len(self._rows):
            return
        self._tried_at = time.monotonic()
        timesteps, results, lengths = zip(
            *sorted(self._rows, key=lambda row: row[0]), strict=True
        )  # trials report out of order
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:  # np.savez fails if the clock shows a time that zip files cannot hold
            for name, values, dtype in (
                ("timesteps", timesteps, np.int64),
                ("results", results, np.float64),
                ("ep_lengths", lengths, np.int64),
            ):
                with archive.open(undated(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.array(values, dtype=dtype), allow_pickle=False)
        self.check_folder()
        write_bytes(self.path, content.getvalue())
        self._written = len(self._rows)


def _read_evaluations(path: Path, num_timesteps: int, episodes: int) -> list[tuple[int, npt.NDArray[Any], npt.NDArray[Any]]]:
    """Read the rows of a file before num_timesteps."""
    try:
        with np.load(path, allow_pickle=False) as file:
            timesteps, results, lengths = (file[name] for name in ("timesteps", "results", "ep_lengths"))
        if not timesteps.shape == results.shape[:1] == lengths.shape[:1] or results.shape != lengths.shape:
            raise ValueError(f"shapes {timesteps.shape}, {results.shape}, {lengths.shape}")
    except (ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged or no evaluations.npz to continue ({error}): move it away or choose another path"
        ) from error
    if results.shape[1:] != (episodes,):
        raise ValueError(
            f"{path} has results of shape {results.shape}, this training has eval_episodes = {episodes}: move the file away or "
            "choose another path"
        )
    kept = timesteps < num_timesteps
    return list(zip(timesteps[kept].tolist(), results[kept], lengths[kept], strict=True))
