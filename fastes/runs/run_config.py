"""config.toml of a run folder, as somebody else may have left it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastes.settings.preset_loader import tomllib


def read_config(path: Path) -> dict[str, Any] | None:
    """The tables of a run's configuration; None where there is none, or what is there cannot be one.

    Raises OSError when it cannot be read.
    """
    if not path.is_file():  # a folder, or a pipe that would be waited for
        return None
    try:
        config: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):  # no TOML, no UTF-8, numbers without an end, tables without an end
        return None
    tables = all(isinstance(config.get(name, {}), dict) for name in ("run", "settings", "versions"))
    earlier = config.get("earlier", [])
    if not tables or not isinstance(earlier, list) or not all(isinstance(start, dict) for start in earlier):
        return None
    return config


def without_surrogates(value: Any) -> Any:
    """The same, with escapes for the bytes of a command line or path that are no text: TOML is UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {key: without_surrogates(inner) for key, inner in value.items()}
    return [without_surrogates(inner) for inner in value] if isinstance(value, list) else value
