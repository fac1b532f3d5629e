"""Finds the part of an environment's description that cannot be pickled for workers: pickle's own error does not name it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle

from fastes.envs.factories import parts_held_by
from fastes.envs.source import EnvSource

_DEPTH = 4


def cannot_be_sent(source: EnvSource, error: Exception) -> Exception:
    """Return a TypeError that names the part of a source that cannot be pickled; the error itself if another part failed."""
    for what, value in (
        (f"the environment factory {source.name!r}", source.factory),
        ("env_kwargs", dict(source.make_kwargs)),
        (f"the wrappers of {source.name!r}", source.wrappers),
        (f"the spec of {source.name!r}", source.spec),
    ):
        if _is_unsendable(value):
            return TypeError(
                f"{what} cannot be sent to workers: {_culprit(value)} ({type(error).__name__}: {error}). Make it inside of the "
                "function that builds the environment, so that each worker makes its own, or train with n_workers=0"
            )
    return error


def _is_unsendable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return True
    return False


def _culprit(value: Any) -> str:
    """Describe the innermost part that cannot be pickled, with its path from the value."""
    way: list[str] = []
    for _ in range(_DEPTH):
        found = next(((name, part) for name, part in _parts(value) if _is_unsendable(part)), None)
        if found is None:
            break
        way.append(found[0])
        value = found[1]
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"its {' of its '.join(reversed(way))} is a {kind}" if way else f"it is a {kind}"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the parts that pickle stores with a value."""
    yield from parts_held_by(value)
    if isinstance(value, dict):
        for name, part in value.items():
            yield f"item {name!r}", part
    elif isinstance(value, (list, tuple, set)):
        for index, part in enumerate(value):
            yield f"item {index}", part
    else:
        for name, part in {**getattr(value, "__dict__", {})}.items():
            yield f"attribute {name!r}", part
