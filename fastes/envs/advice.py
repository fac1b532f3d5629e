"""Errors in words about an environment: its id or package is unknown, it has no spaces, it is one of the old gym."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, registry

from fastes.envs.atari.options import bare_name
from fastes.envs.import_hook import has_ale_py, is_atari
from fastes.errors import EnvironmentUnavailable, shown, suggest
from fastes.system.installation import install_command

_BARE = re.compile(r"[A-Za-z]\w*")  # a name without a version
_MAYBE_GAME = re.compile(r"[A-Za-z]\w*(-v[045])?")  # Pong-v5, pong: any package may have such names
_NEAR = 0.8  # likeness from which an id is a mistyped one
_MOST_FILES, _MOST_TEXT = 200, 1 << 20  # of those that are searched for an id; characters of each

# module in an ImportError -> the extra that has it
EXTRAS = {
    "mujoco": "mujoco",
    "imageio": "mujoco",
    "Box2D": "box2d",
    "box2d": "box2d",
    "ale_py": "atari",
    "pygame": "video",
}

_GYMNASIUM = os.path.dirname(os.path.abspath(gymnasium.__file__))
_CALLERS = (  # files and folders of the code that calls environments
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "rollout", "episode.py"),
    os.path.join(_GYMNASIUM, "core.py"),
    os.path.join(_GYMNASIUM, "wrappers", ""),
)
_STEP = "(observation, reward, terminated, truncated, info)"
_RESET = "(observation, info)"
_WRAP = (
    "An environment of the old gym can be wrapped: pip install shimmy, then shimmy.GymV21CompatibilityV0(env=env) where step "
    "returns four values, shimmy.GymV26CompatibilityV0(env=env) else"
)

_SPACES = {
    "observation_space": "gymnasium.spaces.Box(-1.0, 1.0, (3,))",
    "action_space": "gymnasium.spaces.Discrete(2)",
}


# --- ids and packages -----------------------------------------------------------------------------------------------


def unknown_id_advice(env_id: str, registered: Collection[str]) -> str:
    """Return what to write instead of an id that is not registered, or what to install.

    Args:
        env_id: The id, with its module if it has one.
        registered: Ids that were registered before ale_py was looked for.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        choices = [f"{module}:{each}" for each in registered]
        return suggest(env_id, choices, lambda each: each.rpartition(":")[2]) or f"; {module} does not register it"
    certain = is_atari(name)
    may_be_game = certain or _MAYBE_GAME.fullmatch(name) is not None
    if certain and not has_ale_py():
        return f"; it may need: {install_command('atari')}"
    games = _games() if may_be_game and has_ale_py() else {}
    if game := games.get(bare_name(name)):
        return f"; did you mean {game!r}?"
    if here := _module_here(name):
        return f": an environment of your own is named with its file, {f'{here}:{name}'!r}"
    hint = suggest(name, registry if certain else registered)  # names of games resemble anything
    if not hint and _BARE.fullmatch(name):
        hint = suggest(name, games.values(), bare_name)
    if hint and suggest(name, registered, bare_name, _NEAR):
        return hint
    own = f" An environment of your own is named with its module: {f'module:{name}'!r}"
    hint = hint + own if hint else "; import the package that registers it, or write 'module:Env-v0'"
    if not may_be_game or has_ale_py() or bare_name(name) in map(bare_name, registered):
        return hint
    return f"{hint}; a game of Atari needs: {install_command('atari')}"


def _module_here(name: str) -> str:
    """Return the module of a file in the working directory that registers an id, as far as its text tells; '' for none."""
    registers = re.compile(rf"register\([^)]*?['\"]{re.escape(name)}['\"]")
    with contextlib.suppress(OSError):  # the working directory was deleted
        for path in sorted(Path.cwd().glob("*.py"))[:_MOST_FILES]:
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                if path.stem.isidentifier() and registers.search(file.read(_MOST_TEXT)):
                    return path.stem
    return ""


def _games() -> dict[str, str]:
    """Return the games that ale_py has registered: bare name -> id."""
    ids = [name for name in registry if name.startswith("ALE/") and name.endswith("-v5") and "-ram-" not in name]
    return {bare_name(name): name for name in ids}


def entry_point_advice(spec: EnvSpec) -> str:
    """Return what is wrong with the name of a spec's class, or the empty string."""
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
    """Return the error for a package that an environment imports, with the command that installs it, if that is known."""
    if newer := _newer_version(spec, error):
        return EnvironmentUnavailable(f"environment {spec.id!r} is no longer in Gymnasium; did you mean {newer!r}?")
    text = f"{error} {getattr(error, 'name', '')} {error.__cause__}"
    extra = next((extra for module, extra in EXTRAS.items() if module in text), None)
    hint = f". To install it: {install_command(extra)}" if extra else ""
    return EnvironmentUnavailable(f"environment {spec.id!r} needs a package that is not installed ({error}){hint}")


def _newer_version(spec: EnvSpec, error: Exception) -> str | None:
    """Return the newest version of an environment that Gymnasium has moved out, such as MuJoCo's -v2 and -v3."""
    if "have been moved" not in str(error):
        return None
    versions = [
        other.version or 0 for other in registry.values() if (other.namespace, other.name) == (spec.namespace, spec.name)
    ]
    newest = max(versions, default=0)
    return f"{spec.id.rpartition('-v')[0]}-v{newest}" if newest > (spec.version or 0) else None


# --- Gymnasium's interface ------------------------------------------------------------------------------------------


def check_declared(env: Any) -> None:
    """Raise TypeError if an environment lacks one of its two spaces, or has something else in its place."""
    kind = type(getattr(env, "unwrapped", env)).__name__
    for name, example in _SPACES.items():
        expected = f"expected self.{name} = {example}, or another space, in its __init__"
        try:
            space = getattr(env, name)
        except AttributeError as error:
            raise TypeError(f"the environment {kind} has no {name} ({error}): {expected}") from error
        if isinstance(space, spaces.Space):
            continue
        if isinstance(space, type):
            raise TypeError(f"{name} of the environment {kind} is the class {space.__name__} itself: {expected}")
        old = (
            ". It is a space of the old gym: import spaces from gymnasium" if type(space).__module__.startswith("gym.") else ""
        )
        raise TypeError(f"{name} of the environment {kind} is {shown(space, 100)}, a {type(space).__name__}: {expected}{old}")


def advice_on_object(thing: object) -> str:
    """Return what to do with an object that has reset and step without being a gymnasium.Env; '' for anything else."""
    if isinstance(thing, gymnasium.Env) or not all(callable(getattr(thing, name, None)) for name in ("reset", "step")):
        return ""
    if hasattr(thing, "num_envs"):
        return (
            ". It is a vector environment: pass it itself as env, FastES(make()) and not FastES(make), to have it driven as it "
            "is; or, to have it played by workers, a function that returns one of its environments"
        )
    if hasattr(thing, "possible_agents") or hasattr(thing, "agents"):
        return (
            ". It has several agents, as PettingZoo's environments do, and FastES trains one: write a gymnasium.Env that gives "
            "all agents one policy's actions and returns one reward, such as the sum"
        )
    return (
        ". It has reset and step: derive its class from gymnasium.Env, with reset(seed=..., options=...) that returns "
        f"{_RESET} and step(action) that returns {_STEP}. {_WRAP}"
    )


def advice_on_episode(error: Exception, first: Any) -> str:
    """Return an episode's exception with what to do about it, if the environment has the old gym's reset or step; else ''.

    Args:
        error: The exception.
        first: The value that reset returned; None if it raised.
    """
    said = str(error)
    if first is not None and not (isinstance(first, (tuple, list)) and len(first) == 2):
        return f"{said}. {_WRAP}"
    if not _between_environments(error.__traceback__):
        return ""
    if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in said:
        return f"{said}: env.reset takes no seed: expected reset(seed=..., options=...), which returns {_RESET}. {_WRAP}"
    if "unpack" not in said:
        return ""
    if first is None or "expected 2" in said:
        return f"{said}: env.reset did not return two values: expected {_RESET}, as Gymnasium has it. {_WRAP}"
    return f"{said}: env.step did not return five values: expected {_STEP}, as Gymnasium has it. {_WRAP}"


def _between_environments(trace: TracebackType | None) -> bool:
    """Return whether the caller of an environment raised: FastES or a wrapper of Gymnasium's, not the environment itself."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_CALLERS)
