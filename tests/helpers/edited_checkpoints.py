"""Checkpoints whose JSON was changed by hand."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def edited(path: Path, to: Path, edit: Callable[[Any], object]) -> Path:
    """Write a copy of a checkpoint whose JSON is as `edit`, which changes it in place, leaves it."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    edit(data)
    with zipfile.ZipFile(to, "w") as archive:
        for name, content in {**members, "data": json.dumps(data)}.items():
            archive.writestr(name, content)
    return to
