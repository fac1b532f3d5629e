"""What MuJoCo draws with where there is no screen: libraries of the system, and the command that installs them."""

from __future__ import annotations

import ctypes.util
import shlex
from pathlib import Path

from fastes.system.cgroups import read_text

OS_RELEASE = "/etc/os-release"
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


def packages_command(way: str, os_release: str = OS_RELEASE) -> str:
    """What to type to install what a way of drawing needs: on this distribution, or on each that is known.

    >>> packages_command("osmesa", "/no such file")
    'apt-get install libosmesa6 (Debian, Ubuntu); dnf install mesa-libOSMesa (Fedora); apk add mesa-osmesa (Alpine)'
    """
    commands = {name: f"{install} {packages[way]}" for name, (install, packages) in _PACKAGES.items()}
    for name in _distributions(os_release):
        if name in commands:
            return commands[name]
    return "; ".join(f"{command} ({_NAMES[name]})" for name, command in commands.items())


def _distributions(os_release: str) -> list[str]:
    """This machine's, and those that it says it is like, the nearest first."""
    found: dict[str, str] = {}
    for line in read_text(Path(os_release)).splitlines():
        name, _, value = line.partition("=")
        found[name] = value
    try:
        return [word for name in ("ID", "ID_LIKE") for word in " ".join(shlex.split(found.get(name, ""))).split()]
    except ValueError:  # a quote without its end
        return []
