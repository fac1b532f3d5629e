"""The runs that a page shows: found in folders, and read when they have changed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastes.reports.population_file import MOST_BINS, POPULATION
from fastes.runs.folder_lock import holders, is_locked
from fastes.runs.found_runs import DEPTH, runs_in
from fastes.runs.overview import FINISHED, Overview, overview_and_config, read_overview
from fastes.runs.run_config import CONFIG, PROGRESS, as_number, as_table, last_evaluation_in, leader_in, number_in, sessions_in
from fastes.runs.rungs import recipes_in, rungs_in
from fastes.runs.setting_differences import seeds_share, told_settings
from fastes.system.near_paths import printable
from fastes.watch.followed_progress import FollowedProgress

SEARCH_SECONDS = 2.0  # from one search for new runs to the next
SPENT_SECONDS = 0.15  # reading, per request; the page asks again for the rest
MOST_FOLLOWED = 32  # curves in memory
_MOST_BYTES = 100_000  # of a population's file
_SHOWN = (
    "env",
    "seed",
    "status",
    "word",
    "ended",
    "reason",
    "generations",
    "timesteps",
    "budget",
    "best",
    "score",
    "solved",
    "seconds",
    "cpu_seconds",
    "updated",
    "recipe",
)


class WatchedRuns:
    """Runs by their names, which are their paths as text that can be printed; any thread may ask.

    Args:
        roots: Run folders, or folders of them. They may be empty, or missing, as yet.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots, self._lock = roots, threading.Lock()
        self._found: dict[str, Path] = {}
        self._searched = -math.inf
        self._waiting: deque[str] = deque()  # names that are to be looked at before those that were looked at
        self._rows: dict[str, dict[str, Any]] = {}
        self._stamps: dict[str, object] = {}
        self._changed: dict[str, int] = {}  # name -> the revision in which it changed, or went
        self._revision, self._server = 0, secrets.token_hex(8)
        self._followed: dict[str, FollowedProgress] = {}  # the one that was asked for last is the last

    def path_of(self, name: str) -> Path:
        """The folder of a run; KeyError for a name that is not one of the runs."""
        with self._lock:
            self._search()
            return self._found[name]

    def rows_since(self, revision: str) -> dict[str, Any]:
        """Return the news in the table of runs, as JSON values. `complete` is false if more is to be read.

        Args:
            revision: That of the last answer; everything is new for one of another server, or any other text.
        """
        with self._lock:
            self._search()
            complete = self._read_changed()
            server, _, number = revision.partition(".")
            known = int(number) if server == self._server and number.isdecimal() and len(number) < 16 else 0
            changed = [name for name, at in self._changed.items() if at > known]
            return {
                "revision": f"{self._server}.{self._revision}",
                "anew": known == 0,
                "changed": [self._rows[name] for name in changed if name in self._rows],
                "gone": [name for name in changed if name not in self._rows],
                "complete": complete,
            }

    def run_since(self, name: str, cursor: Mapping[str, Any]) -> dict[str, Any]:
        """Return the news in a run's curves since a cursor, and all else that the page shows of it, as JSON values.

        `complete` is false if more of the curves is to be read, and `silent` the seconds since the last row was written.

        Raises:
            KeyError: For a name that is not one of the runs.
        """
        path = self.path_of(name)
        overview, config = overview_and_config(path)
        noted = as_table(config.get("run"))
        leader = leader_in(noted)
        with self._lock:
            followed = self._followed.pop(name, None) or FollowedProgress(path / PROGRESS)
            self._followed[name] = followed
            while len(self._followed) > MOST_FOLLOWED:
                del self._followed[next(iter(self._followed))]
            complete = True
            with contextlib.suppress(OSError):  # deleted meanwhile, or not there yet
                complete = followed.update(SPENT_SECONDS)
            curves, last = followed.since(cursor), followed.place_of(last_evaluation_in(noted))
            before = self._rows.get(name)
        row = {**_row(name, overview, before), "settings": _settings_of(overview), **_group_of(overview)}
        silent = None if overview.updated is None else max(time.time() - overview.updated, 0.0)
        population = _population_of(path)
        rest = {
            "last": last,
            "leader": leader and leader.number,
            "population": population,
            "complete": complete,
            "silent": silent,
        }
        return {**curves, **row, **_trials_of(config), **rest}

    # --- reading ------------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Look for runs, unless that was just done."""
        if time.monotonic() - self._searched < SEARCH_SECONDS:
            return
        self._found = {printable(str(run)): run for root in self._roots for run in runs_in(root, DEPTH)}
        for name in [name for name in self._stamps if name not in self._found]:
            del self._stamps[name]
            self._followed.pop(name, None)
            if self._rows.pop(name, None) is not None:
                self._note(name)
        self._searched = time.monotonic()

    def _read_changed(self) -> bool:
        """Read the runs that have changed; False if the time for it was over before all were read."""
        ends, locked = time.monotonic() + SPENT_SECONDS, holders()
        self._waiting = self._waiting or deque(self._found)
        while self._waiting:
            name = self._waiting.popleft()
            path, before = self._found.get(name), self._rows.get(name)
            if path is None:
                continue
            stamp = _stamp(path, locked, may_run=before is not None and before["status"] != FINISHED)
            if before is not None and stamp == self._stamps[name]:
                continue
            self._stamps[name] = stamp
            row = _row(name, read_overview(path), before)
            if row != before:
                self._rows[name] = row
                self._note(name)
            if time.monotonic() > ends:
                break
        return not self._waiting

    def _note(self, name: str) -> None:
        self._revision += 1
        self._changed[name] = self._revision


def _stamp(path: Path, locked: Mapping[int, int], may_run: bool) -> object:
    """Differs if a run's files have changed, or if a training has begun or ended.

    Args:
        path: The run folder.
        locked: Inodes of folders that train, as far as the system lists them.
        may_run: Whether a training may be in it that the system does not list.
    """
    stats: list[object] = []
    with contextlib.suppress(OSError):
        stats.append((may_run or os.stat(path).st_ino in locked) and is_locked(path))
    for name in (CONFIG, PROGRESS):
        with contextlib.suppress(OSError):
            found = os.stat(f"{path}/{name}")  # quicker than a Path: this is done for every run at each request
            stats.append((name, found.st_mtime_ns, found.st_size, found.st_ino))
    return stats


# --- JSON values --------------------------------------------------------------------------------------------------------


def _row(name: str, overview: Overview, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a row of the table of runs.

    Args:
        name, overview: The run's.
        before: An earlier row, whose best evaluation counts, too: an overview of a long run reads its newest ones alone.
    """
    if before is not None and before["seed"] == overview.seed and before["timesteps"] <= overview.timesteps:
        known = [value for value in (before["best"], overview.best) if value is not None]
        overview = overview._replace(best=max(known, default=None))
    result = None if overview.result is None else _finite(overview.result._asdict())
    return {"name": name, **_finite({key: getattr(overview, key) for key in _SHOWN}), "result": result}


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with None for each number that JSON lacks, as the return of episodes some of which are NaN."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()}


def _settings_of(overview: Overview) -> dict[str, str]:
    """Return the settings as text, after the arguments of the environment, if there are any."""
    told = {**({"env_kwargs": overview.env_kwargs} if overview.env_kwargs else {}), **overview.settings}
    return {key: str(value) for key, value in told.items()}


def _group_of(overview: Overview) -> dict[str, Any]:
    """Return a text that runs share if they differ in their seeds alone, and the settings that tell them from other runs."""
    env, env_kwargs, settings, given = overview.env, overview.env_kwargs, overview.settings, overview.given
    group = json.dumps(seeds_share(env, env_kwargs, settings, given), default=str, sort_keys=True)
    told = {"env_kwargs": env_kwargs, **told_settings(settings, given)}
    return {"group": group, "told": {key: str(value) for key, value in told.items()}}


def _trials_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rungs that have ended, and the names of the trials' recipes."""
    rungs = rungs_in(sessions := sessions_in(config))
    known = [{**rung._asdict(), "scores": [score if math.isfinite(score) else None for score in rung.scores]} for rung in rungs]
    return {"rungs": known, "recipes": {str(trial): name for trial, name in recipes_in(sessions, rungs).items()}}


def _population_of(path: Path) -> Any:
    """The content of population.json; None if it cannot be had."""
    file = path / POPULATION
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return None
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    counts = found.get("counts") if isinstance(found, dict) else None
    if not isinstance(counts, list) or not 0 < len(counts) <= MOST_BINS:
        return None
    known = {name: number_in(found, name) for name in ("generation", "low", "high")}
    bins = list(map(as_number, counts))
    return None if None in (*known.values(), *bins) else {**known, "counts": bins}
