"""How a thread computes with floats: a library or an environment may change that, and all bits of what follows with it."""

from __future__ import annotations

from fastes import _core

_ROUNDINGS = ("", "rounds down", "rounds up", "rounds to zero")
_FLAGS = {"flushes to zero": "flushes denormals to zero", "denormals are zero": "reads denormals as zero", "traps": "traps"}


def what_changed_floats(who: str, mode: int) -> str:
    """What is said where something has changed it. mode: as _core.float_mode has it, not 0."""
    found = [_ROUNDINGS[mode & 3], *(said for name, said in _FLAGS.items() if mode & _core.FLOAT_FLAGS[name])]
    return (
        f"{who} has changed how its process computes with floats (it {', '.join(filter(None, found))}): FastES sets that back "
        "before each reset, action and update, since results would depend on which process played what. A library that was "
        "compiled with -ffast-math does it when it is loaded"
    )
