"""The keywords of FastES and FastES.load that follow their own arguments, for editors and type checkers."""

from __future__ import annotations

from typing import TypedDict

from fastes.es.keywords import Unpack, keywords_of
from fastes.settings import population_scale
from fastes.settings.settings import Settings

__all__ = ["ChangedSettings", "SettingsDict", "Unpack"]

# type checkers read keywords.pyi, which docs/scripts/make_keywords.py makes from the same fields
SettingsDict = TypedDict(
    "SettingsDict",  # type: ignore[arg-type]
    keywords_of(Settings, without=("policy", "learning_rate"), more={population_scale.NAME: int}),
    total=False,
)
ChangedSettings = TypedDict(
    "ChangedSettings",  # type: ignore[arg-type]
    keywords_of(Settings, without=("policy",)),
    total=False,
)
