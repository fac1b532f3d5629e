"""Refuses trainings that would start workers without end: in a worker, and in a module that a worker imports."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import NamedTuple

from fastes.errors import NestedTraining, frame_outside
from fastes.pools.processes.worker_messages import MARK, is_worker, report_and_end, standard_name

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_BOOTSTRAP = "<frozen importlib"


class _Importing(NamedTuple):
    """A module that is being imported: its name, its file, and its importer in words."""

    name: str
    file: str
    importer: str


def refuse_training() -> None:
    """Raise NestedTraining if a module that a worker imports starts a training, with or without workers."""
    if MARK in os.environ and (found := _being_imported()) is not None:
        _refuse_import(found)


def refuse_workers() -> None:
    """Raise NestedTraining in a worker, and in processes that its environment has started."""
    if MARK not in os.environ:
        return
    if (found := _being_imported()) is not None:
        _refuse_import(found)
    frame = frame_outside()
    at = f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame else ""
    raise NestedTraining(
        f"an environment in a worker starts workers of its own{at}: each of these could do the same, without end. Train there "
        "with n_workers=0, or train before and give the environment what was learned"
    )


def _refuse_import(found: _Importing) -> None:
    error = NestedTraining(
        f"a worker imported {found.file} (module {found.name!r}, imported by {found.importer}), which starts a training while "
        "it is imported: the worker would start workers, these would import it again, and so on without end. "
        f"{standard_name(found.name, found.file) or _GUARD}"
    )
    if is_worker():
        report_and_end(error)  # a script that catches exceptions around `learn` would continue, and save an untrained model
    raise error


_GUARD = (
    "Put the training into a function, or under `if __name__ == '__main__':`, or keep what builds the environment in a file of "
    "its own"
)


def _being_imported() -> _Importing | None:
    """Return the innermost module whose import this call is part of; None if it is part of none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and (importer := _importer_of(frame)) is not None:
            where = f"{importer.f_code.co_filename}, line {importer.f_lineno}"
            if importer.f_code.co_filename.startswith(_PACKAGE):
                where = "FastES, to build the environment"
            name = str(frame.f_globals.get("__name__", "?"))
            return _Importing(name, frame.f_code.co_filename, where)
        frame = frame.f_back
    return None


def _importer_of(module: FrameType) -> FrameType | None:
    """Return the frame that imports a module's frame; None if the module is run and not imported."""
    frame = module.f_back
    if frame is not None and not _of_importlib(frame):  # a loader's
        frame = frame.f_back
    if frame is None or not _of_importlib(frame):
        return None
    while frame is not None and _of_importlib(frame):
        frame = frame.f_back
    return frame


def _of_importlib(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "importlib" or frame.f_code.co_filename.startswith(
        _BOOTSTRAP
    )
