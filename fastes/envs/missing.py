"""What is missing where an environment's class cannot be found or imported, and what to do about it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection

from gymnasium.envs.registration import EnvSpec, registry

from fastes.envs.atari.options import bare_name
from fastes.envs.import_hook import has_ale_py, is_atari
from fastes.errors import EnvironmentUnavailable, suggest
from fastes.system.installation import install_command

_BARE = re.compile(r"[A-Za-z]\w*")  # a name without a version
_MAYBE_GAME = re.compile(r"[A-Za-z]\w*(-v[045])?")  # Pong-v5, pong: any package may have such names

# module in an ImportError -> the extra that has it
EXTRAS = {
    "mujoco": "mujoco",
    "imageio": "mujoco",
    "Box2D": "box2d",
    "box2d": "box2d",
    "ale_py": "atari",
    "pygame": "video",
}


def unknown_id_advice(name: str, registered: Collection[str]) -> str:
    """What to write in place of an id that nobody has registered, or to install.

    registered: ids that were there before ale_py was looked for.
    """
    certain = is_atari(name)
    may_be_game = certain or _MAYBE_GAME.fullmatch(name) is not None
    if certain and not has_ale_py():
        return f"; it may need: {install_command('atari')}"
    games = _games() if may_be_game and has_ale_py() else {}
    if game := games.get(bare_name(name)):
        return f"; did you mean {game!r}?"
    hint = suggest(name, registry if certain else registered)  # names of games resemble anything
    if not hint and _BARE.fullmatch(name):
        hint = suggest(name, games.values(), bare_name)
    hint = hint or "; import the package that registers it, or write 'module:Env-v0'"
    if not may_be_game or has_ale_py() or bare_name(name) in map(bare_name, registered):
        return hint
    return f"{hint}{' A' if hint.endswith('?') else '; a'} game of Atari needs: {install_command('atari')}"


def _games() -> dict[str, str]:
    """Bare name -> id of the games that ale_py has registered."""
    ids = [name for name in registry if name.startswith("ALE/") and name.endswith("-v5") and "-ram-" not in name]
    return {bare_name(name): name for name in ids}


def entry_point_advice(spec: EnvSpec) -> str:
    """What is wrong with the name of a spec's class; '' where nothing is."""
    if not isinstance(spec.entry_point, str):
        return ""
    said = f"environment {spec.id!r} is registered with entry_point={spec.entry_point!r}"
    module, colon, name = spec.entry_point.partition(":")
    if not colon:
        return f"{said}: expected 'module:Class'"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{module}.".startswith(f"{missing}.") and missing not in EXTRAS:
            return f"{said}, but there is no module {missing!r}: check its spelling, install it, or run where it lies"
        return ""
    except Exception:
        return ""  # the module's own error says more
    choices = [other for other, thing in vars(found).items() if callable(thing)]
    return "" if hasattr(found, name) else f"{said}, but that module has no {name!r}{suggest(name, choices)}"


def package_missing(spec: EnvSpec, error: Exception) -> EnvironmentUnavailable:
    """The error of a package that an environment imports; with the command that installs it, where that is known."""
    if newer := _newer_version(spec, error):
        return EnvironmentUnavailable(f"environment {spec.id!r} is no longer in Gymnasium; did you mean {newer!r}?")
    text = f"{error} {getattr(error, 'name', '')} {error.__cause__}"
    extra = next((extra for module, extra in EXTRAS.items() if module in text), None)
    hint = f". To install it: {install_command(extra)}" if extra else ""
    return EnvironmentUnavailable(f"environment {spec.id!r} needs a package that is not installed ({error}){hint}")


def _newer_version(spec: EnvSpec, error: Exception) -> str | None:
    """The last version of an environment of which Gymnasium has given this one away, as MuJoCo's -v2 and -v3."""
    if "have been moved" not in str(error):
        return None
    versions = [
        other.version or 0 for other in registry.values() if (other.namespace, other.name) == (spec.namespace, spec.name)
    ]
    newest = max(versions, default=0)
    return f"{spec.id.rpartition('-v')[0]}-v{newest}" if newest > (spec.version or 0) else None
