"""The reporters that have a name. Their modules are imported when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastes.errors import suggest
from fastes.reports.callbacks import Callback

# name -> module of this folder, class
REPORTERS = {"tensorboard": ("tensorboard", "TensorBoard"), "wandb": ("wandb", "WandB"), "trackio": ("trackio", "Trackio")}


def reporter_named(name: object) -> Callback | None:
    """Make the reporter of a name; None for anything but a string.

    Raises:
        ValueError: For an unknown name.
        ImportError: If its package is not installed, with the command that installs it.
    """
    if not isinstance(name, str):
        return None
    if name not in REPORTERS:
        raise ValueError(
            f"callback = {name!r:.100} names no reporter: there are {', '.join(REPORTERS)}{suggest(name, REPORTERS)}"
        )
    made: Callback = reporter_class(name)()
    return made


def reporter_class(name: str) -> Any:
    """Return a subclass of Reporter. name: a key of REPORTERS."""
    module, kind = REPORTERS[name]
    return getattr(import_module(f"fastes.reports.trackers.{module}"), kind)
