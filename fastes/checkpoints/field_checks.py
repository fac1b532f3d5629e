"""Checks of a checkpoint's fields and arrays; each raises CheckpointError."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.errors import CheckpointError

MAX_COUNTER = 2**53  # of all counters; draws use the low 32 bits of the generation

_NOTHING: Mapping[str, Any] = {}
Kinds = Mapping[str, Callable[[Any], bool]]  # key of a JSON object -> whether its value is of the right kind


def damaged(place: str, value: object) -> CheckpointError:
    """Return the error for a value that no training writes at this place of the JSON member, such as 'policy.head.size'."""
    return CheckpointError(f"the checkpoint's {place!r} is {reprlib.repr(value)}: the file is damaged or was edited")


def check_arrays(place: str, given: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that arrays have the names, shapes and dtypes of the expected ones, and finite values.

    Args:
        place: The arrays' place in the checkpoint, such as 'trainings.0'.
        given: The checkpoint's.
        expected: Those of the same name in a new training.
    """
    for name, array in expected.items():
        got = given.get(name)
        if got is None or got.shape != array.shape or got.dtype != array.dtype:
            found = "is missing" if got is None else f"has shape {got.shape} and dtype {got.dtype}"
        elif not np.isfinite(got).all():
            found = "has values that are not finite"
        else:
            continue
        raise CheckpointError(f"the checkpoint's array '{place}.{name}' {found}: expected finite {array.dtype} {array.shape}")
    if unknown := sorted(set(given) - set(expected)):
        raise CheckpointError(
            f"the checkpoint's {place!r} has the arrays {unknown}, which are not part of policy and optimizer: it was edited"
        )
    if "sigma" in given and not (given["sigma"] > 0.0).all():
        raise CheckpointError(f"the checkpoint's array '{place}.sigma' has values that are not positive: the file is damaged")
    for name in ("normalizer.squares", "normalizer.counts"):
        if name in given and (given[name] < 0).any():
            raise CheckpointError(f"the checkpoint's array '{place}.{name}' has negative values: the file is damaged")
    if "normalizer.counts" in given and (given["normalizer.counts"] > MAX_COUNTER).any():
        raise CheckpointError(
            f"the checkpoint's array '{place}.normalizer.counts' has more observations than a run can make: the file is damaged"
        )


def check_record(name: str, record: object, kinds: Kinds, added: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
    """Return the record if it is an object with exactly these keys, each value of its kind.

    Args:
        name: Its place in the JSON member, such as 'policy.head'.
        record: The value at that place.
        kinds: The keys, and checks of their values.
        added: Keys that older files lack, with what stands for them there.
    """
    if not isinstance(record, dict):
        raise damaged(name, record)
    record = {**added, **record}
    if odd := sorted(set(record) ^ set(kinds)):
        what = "misses" if set(record) < set(kinds) else "has, or misses,"
        raise CheckpointError(f"the checkpoint's {name!r} {what} {reprlib.repr(odd)}: the file is damaged or was edited")
    for key, fits in kinds.items():
        if not fits(record[key]):
            raise damaged(f"{name}.{key}", record[key])
    return record


def is_count(value: object, low: int = 0) -> bool:
    """Whether a JSON value is an int from low to MAX_COUNTER."""
    return type(value) is int and low <= value <= MAX_COUNTER


def is_generation(value: object) -> bool:
    """Whether a JSON value is a generation, as the strategy counts: draws use its 32 bits."""
    return type(value) is int and 0 <= value < 2**32


def is_number_or_none(value: object) -> bool:
    """Whether a JSON value is a finite float, or null, which stands for none."""
    return value is None or (type(value) is float and math.isfinite(value))


def require(mapping: Mapping[str, Any], key: str, kind: type | tuple[type, ...], within: str = "") -> Any:
    """Return mapping[key] if it is of a kind.

    Args:
        mapping: An object of the JSON member.
        key: The key to look up.
        kind: The type, or types, of its value.
        within: The mapping's place in the JSON member, such as 'settings.'.
    """
    value = mapping.get(key)
    if not isinstance(value, kind):
        raise damaged(f"{within}{key}", value)
    return value
