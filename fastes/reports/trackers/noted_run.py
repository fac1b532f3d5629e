"""reports.json of a run folder: the name under which trackers know the run, which a resumed training continues."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from fastes.models.model import Model
from fastes.system.atomic_files import write_text

REPORTS = "reports.json"
_NAME = re.compile(r"[\w.+-]{1,120}", re.ASCII)
_MOST_BYTES = 10_000


class NotedRun(NamedTuple):
    """The name of a run, '' if it has none yet, and the names of its reporters."""

    name: str
    reporters: tuple[str, ...]


def read_noted_run(folder: Path) -> NotedRun:
    """Return what reports.json of a run folder says; nothing if there is no such file or it was damaged."""
    path = folder / REPORTS
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and path.stat().st_size < _MOST_BYTES else {}
        name, reporters = found["name"], found["reporters"]
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return NotedRun("", ())
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(reporters, list):
        return NotedRun("", ())
    return NotedRun(name, tuple(each for each in reporters if isinstance(each, str)))


def note_run(folder: Path, reporter: str, model: Model) -> str:
    """Add a reporter to reports.json and return the run's name. OSError if it cannot be written."""
    before = read_noted_run(folder)
    name = before.name or new_name(model)
    if reporter not in before.reporters:
        write_text(folder / REPORTS, json.dumps({"name": name, "reporters": [*before.reporters, reporter]}) + "\n")
    return name


def new_name(model: Model) -> str:
    """Return a name that no other run has, such as CartPole-v1-seed0-1f3a9c42."""
    env = re.sub(r"[^\w.+-]+", "-", model.source.name, flags=re.ASCII)[:80]
    return f"{env}-seed{model.seed}-{secrets.token_hex(4)}"
