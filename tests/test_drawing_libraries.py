"""Risk: a machine without libraries to draw with is told to install what it does not know, or what does not suffice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastes.system import drawing_libraries
from fastes.system.drawing_libraries import has_libraries, packages_command


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt-get install libosmesa6"),
        ('NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install libosmesa6"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install mesa-libOSMesa"),
        ("ID=alpine\n", "apk add mesa-osmesa"),
        (
            "ID=other\n",
            "apt-get install libosmesa6 (Debian, Ubuntu); dnf install mesa-libOSMesa (Fedora); apk add mesa-osmesa (Alpine)",
        ),
        (
            'ID="open\n',
            "apt-get install libosmesa6 (Debian, Ubuntu); dnf install mesa-libOSMesa (Fedora); apk add mesa-osmesa (Alpine)",
        ),
    ],
)
def test_the_command_is_that_of_the_distribution(release: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text(release)
    assert packages_command("osmesa", str(tmp_path / "os-release")) == command


def test_no_distribution_is_known(tmp_path: Path) -> None:
    command = packages_command("egl", str(tmp_path / "missing"))
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
    monkeypatch.setattr(drawing_libraries.ctypes.util, "find_library", lambda name: name if name in there else None)
    assert has_libraries(way) == has
