"""How FastES came to this machine: what adds an extra to it, and where its compiled core is when the source hides it."""

from __future__ import annotations

import os
import shlex
import sys

_SOURCES = (".py", ".pyi", ".toml")
_CORE = (".pyx", ".pxi", ".pxd", ".c", ".h", ".inc")


def package_root() -> str:
    """The folder that has the package: a checkout, or site-packages."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def install_command(extra: str) -> str:
    """The pip command that adds an extra, in the way in which FastES was installed: from a checkout, a file or an index."""
    root = package_root()
    if os.path.isfile(os.path.join(root, "pyproject.toml")):  # the checkout itself is imported
        return f"pip install -e {_requirement(root, extra)}"
    from importlib.metadata import distributions
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    notes = [found.read_text("direct_url.json") for found in distributions(name="fastes", path=[root])]  # beside the package
    origin = _origin(next(iter(notes), None))
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    folder = url2pathname(urlsplit(url).path)
    if "dir_info" in origin and os.path.isdir(folder):
        return f"pip install {_requirement(folder, extra)}"
    if isinstance(vcs, dict):
        url = f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    return f"pip install {shlex.quote(f'fastes[{extra}] @ {url}' if url and 'dir_info' not in origin else f'fastes[{extra}]')}"


def _origin(text: str | None) -> dict[str, object]:
    """What pip has noted of where a package came from; nothing for one from an index."""
    import json

    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _requirement(folder: str, extra: str) -> str:
    try:
        here = os.path.samefile(folder, os.curdir)
    except OSError:
        here = False
    return shlex.quote(f"{'.' if here else folder}[{extra}]")


def has_core(package: str) -> bool:
    """Whether a folder of the package has the compiled core."""
    return any(name.startswith("_core.") and name.endswith((".so", ".pyd")) for name in os.listdir(package))


def installed_copy(source: str) -> str:
    """The folder of the package that pip has installed, for source without a core; ImportError where none is the same.

    The installed one is the same when its Python files are, and nothing under src/ is newer than its core.
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
    """A file of the source that is newer than the installed package, or another; None where all are the same."""
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
    """Name within the package -> content of each file of its source."""
    found = {}
    for folder, _, names in os.walk(package):
        for name in names:
            if name.endswith(_SOURCES):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, package)] = file.read()
    return found
