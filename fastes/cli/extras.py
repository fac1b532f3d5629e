"""The packages that FastES and its extras need, by its metadata, and which of them are installed."""

from __future__ import annotations

import ast
import operator
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, NamedTuple

PACKAGE = "fastes"
NOT_OF_USERS = ("test", "docs", "bench", "own-tasks", "dev", "all")  # for work on FastES, and the one that repeats others

_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*?)\)?\s*(?:;(.*))?$")
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([\w.*+!-]+)")
_CONDITION = re.compile(r"(\w+) (>=|<=|==|!=|>|<) '([^']*)'")  # as ast writes it
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "~=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
# distributions that bring the same module: any of them will do
_SAME_MODULE = (
    {"pygame", "pygame-ce"},
    {"box2d", "box2d-py"},
    {"opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"},
)


class Requirement(NamedTuple):
    """A line of Requires-Dist: a distribution, its extras, its versions, as '>=2.0,<3', and the marker when it counts."""

    name: str
    extras: tuple[str, ...]
    version: str
    marker: str


class Package(NamedTuple):
    """A distribution that is needed, in versions such as '>=2.0'. there: the installed version, '' if there is none."""

    name: str
    wanted: str
    there: str

    @property
    def suffices(self) -> bool:
        return bool(self.there) and satisfies(self.there, self.wanted)


class Part(NamedTuple):
    """An extra, and the packages that only it needs."""

    extra: str
    packages: tuple[Package, ...]

    @property
    def missing(self) -> list[Package]:
        return [package for package in self.packages if not package.suffices]


def needed() -> list[Package]:
    """Return the packages that FastES needs without any extra. Raises PackageNotFoundError if it has no metadata."""
    return [_package(each) for each in _requirements(PACKAGE) if applies(each.marker)]


def optional_parts() -> list[Part]:
    """Return each extra for users, in the order of the metadata. Raises PackageNotFoundError if there is no metadata."""
    extras = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    return [_part(extra) for extra in extras if extra not in NOT_OF_USERS]


def _part(extra: str) -> Part:
    known = {PACKAGE, *(_plain(package.name) for package in needed())}  # our extras ask for extras of these
    found: dict[str, Package] = {}
    for each in _of_extra(PACKAGE, extra):
        package = _package(each)
        if _plain(each.name) not in known and (_plain(each.name) not in found or not package.suffices):
            found[_plain(each.name)] = package
    return Part(extra, tuple(found.values()))


def _package(requirement: Requirement) -> Package:
    return Package(requirement.name, requirement.version, _installed(requirement.name))


def _of_extra(package: str, extra: str) -> Iterator[Requirement]:
    """Yield the requirements that an extra adds to a package, with those of the extras that it names."""
    for each in _requirements(package):
        if applies(each.marker, extra) and not applies(each.marker):
            yield each
            for inner in each.extras:
                yield from _of_extra(each.name, inner)


def _requirements(package: str) -> list[Requirement]:
    """Return the requirements of a package, none if it is not installed."""
    try:
        return [parsed(line) for line in metadata.requires(package) or ()]
    except metadata.PackageNotFoundError:
        if package == PACKAGE:
            raise
        return []


def parsed(line: str) -> Requirement:
    """Return a line of a distribution's Requires-Dist in parts."""
    match = _REQUIREMENT.match(line)
    if match is None:
        raise ValueError(f"{line!r} is not a requirement: expected a name, [extras], versions and a marker behind ';'")
    name, extras, version, marker = match.groups(default="")
    return Requirement(name, tuple(each.strip() for each in extras.split(",") if each.strip()), version.strip(), marker.strip())


def applies(marker: str, extra: str = "") -> bool:
    """Return whether a marker holds here, with an extra or without. Unknown conditions count as fulfilled."""
    values = {
        "extra": _plain(extra),
        "python_version": "{}.{}".format(*sys.version_info),
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
    }
    try:
        return not marker or _holds(ast.parse(marker, mode="eval").body, values)
    except SyntaxError:  # a marker that is no Python, such as one with ~=
        return True


def _holds(node: ast.expr, values: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = [_holds(part, values) for part in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    condition = _CONDITION.fullmatch(ast.unparse(node))
    if condition is None or condition[1] not in values:
        return True
    name, order, value = condition.groups()
    if name == "python_version":
        return _ORDER[order](_numbers(values[name]), _numbers(value))
    return _ORDER[order](values[name], _plain(value) if name == "extra" else value)


def satisfies(version: str, wanted: str) -> bool:
    """Return whether the numbers of a version are wanted: 2.0rc1 and 2.0+cpu count as 2.0, `~=` as a lower bound."""
    for order, bound in _BOUND.findall(wanted):
        if bound.endswith(".*"):
            holds = f"{version}.".startswith(bound[:-1]) == (order == "==")
        else:
            holds = _ORDER[order](_numbers(version), _numbers(bound))
        if not holds:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """Return (2, 13) for '2.13.0+cpu': zeros at the end change nothing."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _installed(name: str) -> str:
    """Return the version of a distribution, or of another one with the same module; '' if neither is installed."""
    same = next((group for group in _SAME_MODULE if _plain(name) in group), set())
    for each in (name, *sorted(same)):
        try:
            return metadata.version(each)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _plain(name: str) -> str:
    """Return a name in the form in which all its spellings are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()
