"""Commands that install what is missing: an extra of FastES, in the way in which FastES came, and libraries for drawing."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping

CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
# values of MUJOCO_GL on Linux; without a screen only the first two work
WAYS = ("egl", "osmesa", "glfw")
# way -> libraries, any of each group
_LIBRARIES = {"egl": (("EGL",), ("OpenGL", "GL", "GLESv2")), "osmesa": (("OSMesa",),), "glfw": (("GL",),)}
# distribution -> its command that installs a package, and way -> packages. EGL's are the library, OpenGL, and a driver that
# draws with the processor: in a slim container none of the three brings another.
_PACKAGES = {
    "debian": ("apt-get install", {"egl": "libegl1 libopengl0 libgl1-mesa-dri", "osmesa": "libosmesa6", "glfw": "libgl1"}),
    "fedora": (
        "dnf install",
        {"egl": "mesa-libEGL libglvnd-opengl mesa-dri-drivers", "osmesa": "mesa-libOSMesa", "glfw": "mesa-libGL"},
    ),
    "alpine": ("apk add", {"egl": "mesa-egl mesa-gl mesa-dri-gallium", "osmesa": "mesa-osmesa", "glfw": "mesa-gl"}),
}
_NAMES = {"debian": "Debian, Ubuntu", "fedora": "Fedora", "alpine": "Alpine"}


def package_root() -> str:
    """Return the folder that has the package: a checkout, or site-packages."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra, in the way in which FastES was installed: a checkout, a file or an index."""
    root = package_root()
    if os.path.isfile(os.path.join(root, "pyproject.toml")):  # the checkout itself is imported
        return f"pip install -e {_requirement(root, extra)}"
    from importlib.metadata import distributions
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    notes = [found.read_text("direct_url.json") for found in distributions(name="fastes", path=[root])]  # of pip's
    origin = _origin(next(iter(notes), None))
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    folder = url2pathname(urlsplit(url).path)
    if "dir_info" in origin and os.path.isdir(folder):
        return f"pip install {_requirement(folder, extra)}"
    if isinstance(vcs, dict):
        url = f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    return f"pip install {shlex.quote(f'fastes[{extra}] @ {url}' if url and 'dir_info' not in origin else f'fastes[{extra}]')}"


def _origin(text: str | None) -> dict[str, object]:
    """Return pip's note on the origin of a package, an empty one if it came from an index."""
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


def has_libraries(way: str) -> bool:
    """Return whether the libraries are installed with which MuJoCo draws in a way. EGL may still lack a driver."""
    from ctypes.util import find_library

    try:
        return all(any(find_library(name) for name in group) for group in _LIBRARIES.get(way, ()))
    except OSError:  # the search may need a temporary file where none can be written
        return False


def packages_command(way: str, release: Mapping[str, str] | None = None) -> str:
    """Return the command that installs the libraries for a way of drawing, on this distribution or on each known one.

    Args:
        way: One of WAYS.
        release: os-release of a distribution; None for this machine's.

    >>> packages_command("osmesa", {"ID": "ubuntu", "ID_LIKE": "debian"})
    'apt-get install libosmesa6'
    >>> packages_command("osmesa", {})
    'apt-get install libosmesa6 (Debian, Ubuntu); dnf install mesa-libOSMesa (Fedora); apk add mesa-osmesa (Alpine)'
    """
    known = _this_release() if release is None else release
    commands = {name: f"{install} {packages[way]}" for name, (install, packages) in _PACKAGES.items()}
    for name in f"{known.get('ID', '')} {known.get('ID_LIKE', '')}".split():
        if name in commands:
            return commands[name]
    return "; ".join(f"{command} ({_NAMES[name]})" for name, command in commands.items())


def _this_release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
