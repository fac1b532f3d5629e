"""Risk: a machine without libraries to draw with is told to install what it does not know, or what does not suffice."""

from __future__ import annotations

import pytest

from fastes.system.installation import has_libraries, packages_command


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ({"ID": "debian"}, "apt-get install libosmesa6"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install libosmesa6"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install mesa-libOSMesa"),
        ({"ID": "alpine"}, "apk add mesa-osmesa"),
    ],
)
def test_the_command_is_that_of_the_distribution(release: dict[str, str], command: str) -> None:
    assert packages_command("osmesa", release) == command


def test_no_distribution_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file() -> dict[str, str]:
        raise OSError("there is no os-release")

    monkeypatch.setattr("platform.freedesktop_os_release", no_file)
    command = packages_command("egl")
    assert "apt-get install libegl1 libopengl0 libgl1-mesa-dri (Debian, Ubuntu)" in command
    assert command.count(";") == 2


@pytest.mark.parametrize(
    ("way", "there", "has"),
    [
        ("egl", {"EGL"}, False),
        ("egl", {"OpenGL", "GL"}, False),
        ("egl", {"EGL", "OpenGL"}, True),
        ("egl", {"EGL", "GLESv2"}, True),
        ("osmesa", {"EGL", "GL"}, False),
        ("osmesa", {"OSMesa"}, True),
    ],
)
def test_egl_needs_opengl_besides(way: str, there: set[str], has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name if name in there else None)
    assert has_libraries(way) == has
