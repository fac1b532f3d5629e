"""A run at a glance: its environment, how far it is, its scores. Fast for long runs and for many."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from fastes.checkpoints.locate import BEST, CHECKPOINT
from fastes.checkpoints.reader import counters_in, read_description, timesteps_in
from fastes.errors import CheckpointError
from fastes.reports.progress_rows import Clock, LastRows, read_last_rows
from fastes.runs.folder_lock import holder_of, is_locked
from fastes.runs.run_config import (
    CONFIG,
    PROGRESS,
    Result,
    as_table,
    ended_in,
    ending_word,
    last_evaluation_in,
    leader_in,
    number_in,
    preset_in,
    read_config,
    result_in,
    text_in,
)
from fastes.settings.config_file import given_in

RUNNING, FINISHED, STOPPED, UNREADABLE = STATUSES = "running", "finished", "stopped", "unreadable"
_READ = (*Clock.COLUMNS, "eval_return")
_BYTES_OF_ROWS = 16 << 10  # about sixty generations
_MOST_BYTES = 1 << 20  # of rows, since the last checkpoint


class Overview(NamedTuple):
    """A run at a glance.

    Attributes:
        path: The run folder, as it was given.
        env: Name of the environment; '' if no file tells it.
        seed: None if no file tells it.
        status: One of STATUSES. 'running': a process trains in the folder now; 'finished': its report is whole; 'stopped':
            neither; 'unreadable': no file tells anything.
        reason: Why it is unreadable, or which file is left out of the rest; '' if all are whole.
        generations: Updates so far; of the trial of the last row, among several.
        timesteps: Environment steps of candidates so far, of all trials.
        budget: Environment steps after which it ends; None if no file tells it.
        best: Highest mean return of a noise-free evaluation so far; None before the first. A long run's is
            from its last checkpoint and the rows since, but at most 1 MiB of these, about 4,000 generations.
        result: Noise-free return of the parameters that were kept; None before the end.
        solved: Whether the target return has ended it.
        seconds: Wall time of the training so far, of all its sessions; None if no file tells it.
        cpu_seconds: CPU time of the training so far, of all its processes; None if no file tells it.
        updated: When progress.csv was last written, in seconds since 1970; None without one.
        env_kwargs: Arguments of the environment, as Python writes a dict; '' if no file tells them.
        settings: All settings, as config.toml has them; their values are not checked.
        recipe: Name of the settings that won a race of recipes; '' without one.
        given: The user's settings of a run whose recipes race, or have raced; None for another run.
        preset: Name of the preset that it began with, or of its first recipe; '' if no file tells it.
        ended: How it ended, if its budget did not end it: that it is solved, its error, Ctrl-C; '' if that is not known.
        word: How it is in a word or three: 'solved', 'failed' or 'out of time' where status tells less.
    """

    path: Path
    env: str
    seed: int | None
    status: str
    reason: str
    generations: int
    timesteps: int
    budget: int | None
    best: float | None
    result: Result | None
    solved: bool
    seconds: float | None
    cpu_seconds: float | None
    updated: float | None
    env_kwargs: str
    settings: dict[str, Any]
    recipe: str
    given: dict[str, Any] | None
    preset: str
    ended: str
    word: str

    @property
    def score(self) -> float | None:
        """The mean of the result, or else the best evaluation so far."""
        return self.best if self.result is None else self.result.mean

    def to_json(self) -> dict[str, Any]:
        """Return plain values. A number that JSON lacks, such as inf, is a string."""
        values: dict[str, Any] = plain({**self._asdict(), "result": None if self.result is None else self.result._asdict()})
        return values


def plain(value: Any) -> Any:
    """Return a value of a file, or of a path, as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    is_plain = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)


def read_overview(run: Path) -> Overview:
    """Read the overview of a run from config.toml, the ends of progress.csv and the description in its last checkpoint.

    Files may be missing, damaged, or written at the same time: what they do not tell is left empty, and nothing is raised.

    Args:
        run: The run folder.
    """
    return overview_and_config(run)[0]


def overview_and_config(run: Path) -> tuple[Overview, dict[str, Any]]:
    """Return what `read_overview` does, and the tables of config.toml, none if they cannot be had."""
    problems: list[str] = []
    config, rows = _config_of(run, problems), _rows_of(run, problems)
    updated = _written_at(run / PROGRESS)
    saved = {} if config is not None and rows.are_all and updated is not None else _saved_in(run, problems)
    rows = _rows_since(run, saved, rows)
    noted = {"env": saved.get("env_name"), "seed": saved.get("seed")} if config is None else config.get("run", {})
    settings = as_table((saved if config is None else config).get("settings"))
    is_known = config is not None or bool(saved) or updated is not None
    status = _status(run, noted, is_known)
    overview = Overview(
        path=run,
        env=text_in(noted, "env"),
        seed=_count_in(noted, "seed"),
        status=status,
        reason="; ".join(problems) if is_known or problems else f"it has neither {CONFIG} nor {PROGRESS} nor a checkpoint",
        generations=_generations_of(rows, noted),
        timesteps=_last_of(rows, "timesteps"),
        budget=_count_in(settings, "total_timesteps"),
        best=_best_of(rows, saved, noted),
        result=result_in(noted),
        solved=noted.get("solved") is True,
        seconds=_seconds_of(rows, noted, updated),
        cpu_seconds=_cpu_seconds_of(rows),
        updated=updated,
        env_kwargs=env_kwargs_in(saved) if config is None else text_in(noted, "env_kwargs"),
        settings=settings,
        recipe=text_in(noted, "recipe"),
        given=None if config is None else given_in(config),
        preset=preset_in(config or {}),
        ended="" if status == RUNNING else ended_in(noted),
        word=_word(status, noted),
    )
    return overview, config or {}


# --- files ------------------------------------------------------------------------------------------------------------


def _config_of(run: Path, problems: list[str]) -> dict[str, Any] | None:
    """Return the tables of config.toml; None, and a problem, if they cannot be had."""
    try:
        config = read_config(run / CONFIG)
    except (OSError, ValueError) as error:
        problems.append(_why(CONFIG, error))
        return None
    if not config and os.path.lexists(run / CONFIG):
        problems.append(f"{CONFIG} is damaged")
    return config or None  # an empty file is TOML, too


def _rows_of(run: Path, problems: list[str]) -> LastRows:
    """Return the last rows of progress.csv; none, and a problem, if they cannot be had."""
    try:
        return read_last_rows(run / PROGRESS, _READ, _BYTES_OF_ROWS)
    except (OSError, ValueError) as error:
        problems.append(_why(PROGRESS, error))
        return LastRows({}, are_all=False)


def _rows_since(run: Path, saved: Mapping[str, Any], rows: LastRows) -> LastRows:
    """Return more of the last rows, if they do not reach back to a checkpoint, which knows the best evaluation before it."""
    timesteps, most_bytes = timesteps_in(saved), _BYTES_OF_ROWS if saved else _MOST_BYTES
    with contextlib.suppress(OSError):  # it is gone meanwhile
        while (
            not rows.are_all
            and rows.columns
            and most_bytes < _MOST_BYTES
            and not (rows.columns["timesteps"] <= timesteps).any()
        ):
            most_bytes *= 4
            rows = read_last_rows(run / PROGRESS, _READ, most_bytes)
    return rows


def _saved_in(run: Path, problems: list[str]) -> dict[str, Any]:
    """Return the description in the last checkpoint; empty, and a problem, if it cannot be had."""
    for name in (CHECKPOINT, BEST):
        if os.path.lexists(run / name):
            try:
                return read_description(run / name)
            except (OSError, CheckpointError) as error:
                problems.append(_why(name, error))
    return {}


def _why(name: str, error: Exception) -> str:
    return f"{name} cannot be read ({getattr(error, 'strerror', None) or error})"


def _written_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return None


# --- what they tell ---------------------------------------------------------------------------------------------------


def _status(run: Path, noted: Mapping[str, Any], is_known: bool) -> str:
    if holder_of(run) and is_locked(run):  # the system lists inodes, and another file system may have the same one
        return RUNNING
    if not is_known:
        return UNREADABLE
    if noted.get("finished") is True:
        return FINISHED
    return RUNNING if is_locked(run) else STOPPED


def _word(status: str, noted: Mapping[str, Any]) -> str:
    """Return a status, or how the run ended, if that tells more."""
    if status == FINISHED or (status == STOPPED and "ended" not in noted):
        return "solved" if noted.get("solved") is True else status
    return ending_word(noted) or status if status == STOPPED else status


def _last_of(rows: LastRows, name: str) -> int:
    """Return the last finite value of a column; 0 if there is none."""
    return int(next((value for value in reversed(rows.columns.get(name, ())) if math.isfinite(value)), 0))


def _generations_of(rows: LastRows, noted: Mapping[str, Any]) -> int:
    """Return the generations that count: the last rows of a solved training may be of some whose updates were dropped."""
    leader = leader_in(noted)
    return leader.generation if leader is not None and noted.get("solved") is True else _last_of(rows, "generation")


def _best_of(rows: LastRows, saved: Mapping[str, Any], noted: Mapping[str, Any]) -> float | None:
    """Return the highest evaluation that rows, checkpoint and config know."""
    last = last_evaluation_in(noted)
    known = [None if last is None else last.mean, best_in(saved)]
    known += [float(value) for value in rows.columns.get("eval_return", ()) if math.isfinite(value)]
    return max((value for value in known if value is not None), default=None)


def env_kwargs_in(saved: Mapping[str, Any]) -> str:
    """Return the environment's arguments that a checkpoint knows, as Python writes a dict; '' if it tells none."""
    env = as_table(saved.get("env"))
    return repr({**as_table(env.get("kwargs")), **as_table(env.get("lost"))}) if env else ""


def best_in(saved: Mapping[str, Any]) -> float | None:
    """Return the highest evaluation that a checkpoint knows; None before the first."""
    known = [number_in(counters, "best_eval_return") for counters in counters_in(saved)]
    return max((value for value in known if value is not None), default=None)


def _seconds_of(rows: LastRows, noted: Mapping[str, Any], updated: float | None) -> float | None:
    """Return the wall time of the training: as it was noted at its end, of all rows, or since this session began."""
    if (seconds := number_in(noted, "seconds")) is not None:
        return seconds
    if rows.are_all and len(rows.columns["seconds"]):
        return Clock.of(rows.columns).seconds
    before, began = number_in(noted, "at_seconds"), _time_of(text_in(noted, "started"))
    return None if before is None or began is None or updated is None else before + max(updated - began, 0.0)


def _cpu_seconds_of(rows: LastRows) -> float | None:
    last = [float(value) for value in rows.columns.get("cpu_seconds", ())[-1:]]
    return last[0] if last and math.isfinite(last[0]) else None


def _time_of(text: str) -> float | None:
    """Return the seconds since 1970 of a time in config.toml; None if it is none."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def _count_in(table: Mapping[str, Any], name: str) -> int | None:
    value = number_in(table, name)
    return None if value is None else int(value)
