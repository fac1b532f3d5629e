"""The memory of a recurrent policy, as `predict` takes and returns it: arrays of sb3-contrib's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.policies.layers.layer import Layer

Float32 = npt.NDArray[np.float32]
State = tuple[Float32, ...]  # of a policy's cells h, and c of an LSTM's: each (cells, rows, units)


def cells_of(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers that remember something; they are all alike (check_layers)."""
    return [layer for layer in layers if layer.state_size]


def state_of(cells: Sequence[Layer], remembered: Float32) -> State:
    """Arrays (cells, rows, units) of the values (rows, state_size) that actors have."""
    parts, units = _parts(cells[0])
    return tuple(remembered.reshape(len(remembered), len(cells), parts, units).transpose(2, 1, 0, 3).copy())


def remembered_in(cells: Sequence[Layer], state: Any, rows: int) -> Float32:
    """The values (rows, state_size) that actors have, a copy; zeros for None. ValueError for arrays of other shapes."""
    parts, units = _parts(cells[0])
    shape = (parts, len(cells), rows, units)
    if state is None:
        return np.zeros((rows, len(cells) * cells[0].state_size), dtype=np.float32)
    try:
        arrays = np.array([np.asarray(part, dtype=np.float32) for part in state])
    except (TypeError, ValueError):
        arrays = np.empty(0)
    if arrays.shape != shape:
        found = [np.shape(part) for part in state] if isinstance(state, (list, tuple)) else f"{state!r:.100}"
        raise ValueError(
            f"state has {found}: expected a tuple of {parts} arrays {shape[1:]} for {rows} observation{'s' * (rows > 1)}, as "
            "predict returned it, or None where all episodes begin"
        )
    return np.ascontiguousarray(arrays.transpose(2, 1, 0, 3)).reshape(rows, -1)


def _parts(cell: Layer) -> tuple[int, int]:
    """Arrays that a cell remembers, and their length."""
    return cell.state_size // cell.outputs, cell.outputs
