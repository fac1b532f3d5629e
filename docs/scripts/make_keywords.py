"""Write the stubs fastes/es/keywords.pyi and fastes/settings/keywords.pyi. Run by `make docs`; a test compares them.

Editors and type checkers read these files; the keywords and their types come from the fields of the settings.

python docs/scripts/make_keywords.py
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import is_typeddict

import fastes.es.keywords
import fastes.settings.keywords
from fastes.settings.settings import Settings

MODULES = (fastes.es.keywords, fastes.settings.keywords)
HEAD = '''"""Made by docs/scripts/make_keywords.py from the fields of the settings: do not edit."""

from collections.abc import Sequence
from typing import Any, TypedDict

from typing_extensions import Unpack as Unpack

from fastes.es.fitness_shaping import ShapingFunction
from fastes.es.optimizers import OptimizerFactory
from fastes.es.schedules import ScheduleSetting
'''


def stub_path(module: ModuleType) -> Path:
    """Return the path of a module's stub."""
    return Path(str(module.__file__)).with_suffix(".pyi")


def stub_of(module: ModuleType) -> str:
    """Return the text of a module's stub: its typed dictionaries, key by key."""
    of_fields = {item.name: str(item.type) for item in fields(Settings)}
    classes = []
    for name, value in vars(module).items():
        if is_typeddict(value):
            others = {key: kind.__name__ for key, kind in value.__annotations__.items() if key not in of_fields}
            types = {**of_fields, **others}
            lines = [f"    {key}: {types[key]}\n" for key in value.__annotations__]
            classes.append(f"class {name}(TypedDict, total=False):\n{''.join(lines)}")
    return "\n".join([_head_for("".join(classes)), *classes])


def _head_for(text: str) -> str:
    """Return the imports that a text needs."""
    lines = []
    for line in HEAD.splitlines():
        start, names = line.split(" import ") if " import " in line else (line, "")
        used = [name for name in names.split(", ") if name and (" as " in name or re.search(rf"\b{name}\b", text))]
        lines += [f"{start} import {', '.join(used)}"] if used else [] if names else [line]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    for each in MODULES:
        stub_path(each).write_text(stub_of(each), encoding="utf-8")
