"""Risk: what is missing is not what pip would install, or a list of it is older than the package's metadata."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fastes.cli import extras
from fastes.cli.extras import NOT_OF_USERS, Package, Part, applies, needed, optional_parts, parsed, satisfies
from fastes.settings.preset_loader import tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], requires: dict[str, list[str]] | None = None) -> None:
    """Only these distributions are there, with what they require; FastES's own metadata stays unless it is given."""
    original = metadata.requires

    def version(name: str) -> str:
        if name.lower() not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name.lower()]

    def requires_of(name: str) -> list[str] | None:
        if requires is not None and name in requires:
            return requires[name]
        if name == "fastes":
            return original(name)
        version(name)
        return None

    monkeypatch.setattr(extras.metadata, "version", version)
    monkeypatch.setattr(extras.metadata, "requires", requires_of)


def part_of(extra: str) -> Part:
    """What is reported of an extra."""
    (part,) = [part for part in optional_parts() if part.extra == extra]
    return part


def test_every_extra_is_for_users_or_not() -> None:
    """One that is renamed, or is not there any more, leaves the list."""
    assert set(NOT_OF_USERS) <= set(EXTRAS)
    reported = [part.extra for part in optional_parts()]
    assert reported == [
        name for name in metadata.metadata("fastes").get_all("Provides-Extra") or [] if name not in NOT_OF_USERS
    ]
    assert {"mujoco", "video", "atari"} <= set(reported)
    assert all(part.packages for part in optional_parts()), "an extra whose packages nobody can tell"


def test_what_is_needed_is_there() -> None:
    """Of all environments in which the tests run."""
    packages = {package.name: package for package in needed()}
    assert {"numpy", "gymnasium", "cloudpickle"} <= set(packages)
    assert all(package.suffices for package in packages.values())
    assert packages["numpy"].there == metadata.version("numpy")


def test_conditions_are_those_of_pip() -> None:
    """Of each requirement of FastES, without an extra and with each that it has."""
    requirements = pytest.importorskip("packaging.requirements")
    lines = metadata.requires("fastes") or []
    assert len(lines) > 20
    for line in lines:
        ours, theirs = parsed(line), requirements.Requirement(line)
        assert (ours.name, set(ours.extras)) == (theirs.name, theirs.extras)
        assert set(ours.version.split(",")) == set(str(theirs.specifier).split(","))
        for extra in ("", *EXTRAS):
            meant = theirs.marker is None or theirs.marker.evaluate({"extra": extra})
            assert applies(ours.marker, extra) == meant, f"{line} with {extra!r}"


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("", True),
        ("python_version >= '3.10'", True),
        ("python_version < '3.9'", False),
        ("sys_platform == 'os9'", False),
        ("platform_release == 'unknown to us'", True),
        ("extra == 'a'", False),
        ("sys_platform == 'os9' or python_version >= '3.10'", True),
        ("(sys_platform == 'os9' or python_version >= '3.10') and extra == 'a'", False),
        ("python_version ~= '3.1'", True),
    ],
)
def test_conditions(marker: str, holds: bool) -> None:
    assert applies(marker) == holds
    assert applies("extra == 'Classic_Control'", "classic-control"), "spellings of a name are the same"


@pytest.mark.parametrize(
    ("version", "wanted", "does"),
    [
        ("2.4.6", "", True),
        ("2.4.6", ">=2.0", True),
        ("1.26.4", ">=2.0", False),
        ("2.0", ">=2.0.0", True),
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.1", "==2.13.0", False),
        ("2.10", ">=2.9", True),
        ("3.0", ">=2.0,<3", False),
        ("4.2", "==4.*", True),
        ("4.2", "!=4.*", False),
        ("5.0", "==4.*", False),
        ("2.5", "~=2.4", True),
        ("nightly", ">=1", False),
        ("2.5", "==2.0.*", False),
        ("2.0.3", "==2.0.*", True),
        ("2.5", "!=2.0.*", True),
    ],
)
def test_versions(version: str, wanted: str, does: bool) -> None:
    assert satisfies(version, wanted) == does


def test_a_part_that_is_missing_and_one_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra of another package brings what that says; names that differ only in their spelling are one."""
    installed(
        monkeypatch,
        {"gymnasium": "1.2", "mujoco": "2.3"},
        {
            "fastes": ["gymnasium>=1.0", 'gymnasium[mujoco]; extra == "mujoco"', 'MuJoCo>=3.1; extra == "mujoco"'],
            "gymnasium": [
                'imageio>=2.1; extra == "mujoco"',
                'mujoco>=2.1; extra == "mujoco"',
                'pygame; extra == "box2d"',
                "numpy",
            ],
        },
    )
    part = part_of("mujoco")
    assert part.packages == (Package("imageio", ">=2.1", ""), Package("MuJoCo", ">=3.1", "2.3"))
    assert part.missing == list(part.packages)
    installed(monkeypatch, {"gymnasium": "1.2", "mujoco": "2.3"}, {"fastes": ['mujoco>=3.1; extra == "mujoco"']})
    assert part_of("mujoco").missing == [Package("mujoco", ">=3.1", "2.3")]


def test_any_distribution_of_a_module_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = {"fastes": ['pygame-ce>=2.1; extra == "video"']}
    installed(monkeypatch, {"pygame": "2.6"}, requires)
    assert part_of("video") == Part("video", (Package("pygame-ce", ">=2.1", "2.6"),))
    installed(monkeypatch, {}, requires)
    assert part_of("video").missing == [Package("pygame-ce", ">=2.1", "")]


def test_a_package_without_metadata_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras.metadata, "requires", none)
    with pytest.raises(metadata.PackageNotFoundError, match="fastes"):
        needed()
