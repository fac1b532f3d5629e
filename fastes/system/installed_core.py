"""The compiled core of a source that has none: it is in the package that pip has installed."""

from __future__ import annotations

import os
import sys

_SOURCES = (".py", ".pyi", ".toml")
_CORE = (".pyx", ".pxi", ".pxd", ".c", ".h", ".inc")


def has_core(package: str) -> bool:
    """Return whether a folder of the package has the compiled core."""
    return any(name.startswith("_core.") and name.endswith((".so", ".pyd")) for name in os.listdir(package))


def installed_copy(source: str) -> str:
    """Return the folder of the installed package for a source without a core.

    Raises:
        ImportError: None is installed, its Python files differ, or a file under src/ is newer than its core.
    """
    for entry in sys.path:
        package = os.path.join(os.path.abspath(entry), "fastes")
        if os.path.isdir(package) and not os.path.samefile(package, source) and has_core(package):
            if other := _difference(source, package):
                raise ImportError(
                    f"{other} is not as pip has installed it in {package}, and {source} has no compiled core: install it again "
                    "(pip install .), or install the source itself (pip install -e .)"
                )
            return package
    raise ImportError(
        f"{source} is FastES's source, without its compiled core: install it (pip install . or, to change it, pip install -e .)"
    )


def _difference(source: str, package: str) -> str | None:
    """Return a file of the source that differs from the installed package or is newer than its core; None if none does."""
    ours, theirs = _contents(source), _contents(package)
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            return os.path.join(source, name)
    core = max(os.path.getmtime(os.path.join(package, name)) for name in os.listdir(package) if name.startswith("_core."))
    folder = os.path.join(os.path.dirname(source), "src")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(_CORE) and os.path.getmtime(os.path.join(folder, name)) > core:
            return os.path.join(folder, name)
    return None


def _contents(package: str) -> dict[str, bytes]:
    """Return the files of a package's source: name within the package -> content."""
    found = {}
    for folder, _, names in os.walk(package):
        for name in names:
            if name.endswith(_SOURCES):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, package)] = file.read()
    return found
