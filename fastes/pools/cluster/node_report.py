"""The versions of packages on which results depend: a node has to have the driver's."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from fastes import _core
from fastes.envs.source import EnvSource

_CORE = "fastes._core"
_ALWAYS = ("python", "machine", "ray", "fastes", _CORE, "numpy", "gymnasium")
_MISSING = "not installed"


def wanted_versions(source: EnvSource) -> dict[str, str]:
    """Return name -> version of the packages on which results depend, with the environment's own."""
    torch = "torch" if "torch" in sys.modules else None  # a policy's, or an environment's
    names = [*_ALWAYS, *(name for name in ("mujoco", torch, _package_of(source)) if name)]
    return versions_of(dict.fromkeys(name for name in names if version_of(name) != _MISSING))


def versions_of(names: Mapping[str, object]) -> dict[str, str]:
    """Return the versions of these packages on this machine."""
    return {name: version_of(name) for name in names}


@cache
def version_of(name: str) -> str:
    """Return the version of a package, of Python, or of the machine."""
    if name == "python":
        return platform.python_version()
    if name == "machine":
        return f"{platform.system()} {platform.machine()}"
    if name == _CORE:  # compiled on each machine, perhaps before the sources were changed
        return getattr(_core, "SOURCE_HASH", "an earlier build")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return _MISSING
    return f"{found} ({_digest()})" if name == "fastes" else found


def _digest() -> str:
    """Hash FastES's own files: two checkouts of one version may differ."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _package_of(source: EnvSource) -> str | None:
    """Return the installed package of the environment's class or factory; None if there is none."""
    place = source.spec.entry_point if source.spec is not None else source.factory
    module = place.partition(":")[0] if isinstance(place, str) else getattr(place, "__module__", None)
    top = (module or "__main__").partition(".")[0]
    return next(iter(metadata.packages_distributions().get(top, ())), None)


def differences(wanted: Mapping[str, str], found: Mapping[str, str], node: str) -> str:
    """Return a table of the packages whose versions differ between driver and node; '' if none do."""
    odd = [(name, version, found.get(name, _MISSING)) for name, version in wanted.items() if found.get(name) != version]
    if not odd:
        return ""
    rows = [("", "here", node), *odd]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows]
    return "it has other versions, and results depend on these:\n" + "\n".join(line.rstrip() for line in lines)
