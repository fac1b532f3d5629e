"""Copies of objects that share what the original holds."""

from __future__ import annotations

from typing import TypeVar

_Thing = TypeVar("_Thing")


def shallow(thing: _Thing, **changes: object) -> _Thing:
    """Return a copy with other values of some attributes. `copy.copy` and `dataclasses.replace` take several times as long."""
    new = object.__new__(type(thing))
    vars(new).update(vars(thing))
    vars(new).update(changes)
    return new
