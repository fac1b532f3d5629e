"""The setting starts_alternatives: values of other settings in which several starts differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastes.errors import shown, suggest

# settings that change no shape of an array, no place in a pool, and not how long a generation is
ALTERNATIVES = (
    "sigma", "sigma_learning_rate", "learning_rate", "momentum", "beta2", "max_speed", "weight_decay", "shaping",
    "top_fraction", "alive_bonus", "obs_freeze_after", "obs_clip", "obs_std_floor",
)  # fmt: skip
_MOST = 100  # values of a row
_EXAMPLE = "{'alive_bonus': [0, 1], 'sigma': [0.02, 0.05, 0.1]}"


def plain_alternatives(value: object) -> dict[str, list[Any]]:
    """Return a copy as JSON knows it; TypeError or ValueError for anything but a table of alternatives."""
    if not isinstance(value, Mapping):
        raise TypeError(f"starts_alternatives = {shown(value)}: expected a dict of lists such as {_EXAMPLE}")
    for name in value:
        if name not in ALTERNATIVES:
            raise ValueError(
                f"starts_alternatives has {name!r}, in which starts cannot differ: expected some of {ALTERNATIVES}"
                f"{suggest(name, ALTERNATIVES)}"
            )
    return {name: _plain_row(name, row) for name, row in value.items()}


def _plain_row(name: str, row: object) -> list[Any]:
    if not isinstance(row, (list, tuple, np.ndarray)) or not len(row):
        raise TypeError(
            f"starts_alternatives has {name!r}: {shown(row)}: expected a list of at least one value, as in {_EXAMPLE}"
        )
    if len(row) > _MOST:
        raise ValueError(f"starts_alternatives has {len(row):,} values for {name!r}: expected at most {_MOST}")
    if any(callable(value) for value in row):
        raise TypeError(
            f"starts_alternatives has a function for {name!r}, which no file can hold: expected numbers and schedules such as "
            "'lin_0.1_0.02'"
        )
    return [value.item() if isinstance(value, np.generic) else value for value in row]
