"""The keywords of EvolutionStrategy that follow its own arguments, for editors and type checkers, derived from the fields."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypedDict, get_type_hints

from fastes.es.hyperparameters import Hyperparameters

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

__all__ = ["MoreHyperparameters", "Unpack", "keywords_of"]


def keywords_of(kind: type, without: Collection[str], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return name and type of the fields of a dataclass, for a TypedDict.

    Args:
        kind: The dataclass.
        without: Fields that are arguments of their own.
        more: Further keywords.
    """
    types = get_type_hints(kind)
    return {item.name: types[item.name] for item in fields(kind) if item.name not in without} | dict(more or {})


# type checkers read keywords.pyi, which docs/scripts/make_keywords.py makes from the same fields
MoreHyperparameters = TypedDict(
    "MoreHyperparameters",  # type: ignore[arg-type]
    keywords_of(Hyperparameters, without=("population_size", "sigma", "learning_rate")),
    total=False,
)
