"""What policy_kwargs say of recurrent cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastes.errors import check_int, suggest
from fastes.policies.layers.recurrent import CELLS, Cell

POLICIES = ("MlpLstmPolicy", "CnnLstmPolicy")
KWARGS = ("cell", "lstm_hidden_size", "n_lstm_layers")
HIDDEN_SIZE = 32  # about the parameters of MlpPolicy's 64-64; sb3-contrib's 256 are 60 times as many
_MOST_CELLS, _MOST_UNITS = 1_000, 10**6

_NO_CRITIC = "there is no critic in ES: leave it out"
ANSWERS = {  # keys of sb3-contrib's recurrent policies
    "shared_lstm": _NO_CRITIC,
    "enable_critic_lstm": _NO_CRITIC,
    "lstm_kwargs": "leave it out: cell, lstm_hidden_size and n_lstm_layers are all that a cell can be told",
    "recurrent_layer_type": "it is cell='lstm' or cell='gru' here",
    **dict.fromkeys(KWARGS, f"it is of policies that remember: use one of {POLICIES}"),
}


def cells(inputs: int, policy_kwargs: Mapping[str, Any]) -> tuple[Cell, ...]:
    """The cells of a recurrent policy, one behind the other; the first reads inputs values."""
    name = policy_kwargs.get("cell", "lstm")
    if not isinstance(name, str) or name.lower() not in CELLS:
        hint = suggest(name, CELLS) if isinstance(name, str) else ""
        raise ValueError(f"unknown cell {name!r:.100}: expected one of {tuple(CELLS)}{hint}")
    size = check_int("lstm_hidden_size", policy_kwargs.get("lstm_hidden_size", HIDDEN_SIZE), 1, _MOST_UNITS)
    count = check_int("n_lstm_layers", policy_kwargs.get("n_lstm_layers", 1), 1, _MOST_CELLS)
    kind = CELLS[name.lower()]
    return tuple(kind(inputs if i == 0 else size, size) for i in range(count))
