"""What MuJoCo draws with where there is no screen: libraries of the system, and the command that installs them."""

from __future__ import annotations

import ctypes.util
import platform
from collections.abc import Mapping

WAYS = ("egl", "osmesa", "glfw")  # what MUJOCO_GL may be on Linux; without a screen only the first two work

# way -> libraries, any of each group
_LIBRARIES = {"egl": (("EGL",), ("OpenGL", "GL", "GLESv2")), "osmesa": (("OSMesa",),), "glfw": (("GL",),)}

# distribution -> what installs a package there, and way -> packages. EGL's are the library, OpenGL, and a driver that draws
# with the processor: in a slim container none of the three brings another.
_PACKAGES = {
    "debian": ("apt-get install", {"egl": "libegl1 libopengl0 libgl1-mesa-dri", "osmesa": "libosmesa6", "glfw": "libgl1"}),
    "fedora": (
        "dnf install",
        {"egl": "mesa-libEGL libglvnd-opengl mesa-dri-drivers", "osmesa": "mesa-libOSMesa", "glfw": "mesa-libGL"},
    ),
    "alpine": ("apk add", {"egl": "mesa-egl mesa-gl mesa-dri-gallium", "osmesa": "mesa-osmesa", "glfw": "mesa-gl"}),
}
_NAMES = {"debian": "Debian, Ubuntu", "fedora": "Fedora", "alpine": "Alpine"}


def has_libraries(way: str) -> bool:
    """Whether the libraries of a way of drawing are there. EGL may have no driver all the same: only drawing shows that."""
    return all(any(ctypes.util.find_library(name) for name in group) for group in _LIBRARIES.get(way, ()))


def packages_command(way: str, release: Mapping[str, str] | None = None) -> str:
    """What to type to install what a way of drawing needs: on this distribution, or on each that is known.

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
