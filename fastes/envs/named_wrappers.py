"""Wrappers that a command line or a run's configuration names as 'module:Class'."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from fastes.envs.given.rebuild import Wrapping
from fastes.envs.source import EnvSource, make_env_source
from fastes.errors import EnvironmentUnavailable, suggest, summary_of

_EXAMPLE = "minigrid.wrappers:ImgObsWrapper"
_REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class NamedWrapping(Wrapping):
    """A wrapping whose errors name the wrapper and the environment."""

    def around(self, env: Any) -> Any:
        """Return the environment in this wrapper. Raises ValueError if the wrapper raises."""
        try:
            return super().around(env)
        except Exception as error:
            raise ValueError(f"wrapper {self.entry_point!r} cannot go around {env}: it raises {summary_of(error)}") from error


def make_wrapped_source(env: str, kwargs: Mapping[str, Any], names: Sequence[str]) -> EnvSource:
    """Return the source of an id's environments in wrappers.

    The wrappers' modules are imported before the id is looked up: they may register it. Raises as `make_env_source` and
    `wrapper_named` do.

    Args:
        env: The id.
        kwargs: Arguments for gymnasium.make.
        names: Wrappers, innermost first.
    """
    around = tuple(NamedWrapping(wrapper_named(name), {}) for name in names)
    source = make_env_source(env, kwargs)
    return replace(source, wrappers=(*source.wrappers, *around))


def wrapper_named(name: object) -> type[Any]:
    """Import the module that a name gives, and return the class.

    Raises:
        ValueError: The name has another form, or its class is not a wrapper or needs arguments.
        EnvironmentUnavailable: The class cannot be imported.
    """
    if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", name):
        raise ValueError(f"wrapper {name!r}: expected module:Class, such as {_EXAMPLE}")
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = f"module {module_name!r} is not importable" if _is_above(error.name, module_name) else f"{error}"
        raise EnvironmentUnavailable(
            f"wrapper {name!r}: {missing}; check the spelling, install it, or run where it lies"
        ) from error
    except Exception as error:
        raise EnvironmentUnavailable(f"wrapper {name!r}: importing {module_name!r} raises {summary_of(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [each for each, value in vars(found).items() if _is_wrapper(value)]
            raise ValueError(f"wrapper {name!r}: {module_name} has no {path!r}{suggest(part, known)}")
        found = getattr(found, part)
    _check(name, found)
    return found  # type: ignore[no-any-return]


def _is_above(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _is_wrapper(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, gymnasium.Wrapper)


def _check(name: str, found: Any) -> None:
    if not _is_wrapper(found):
        of_vectors = isinstance(found, type) and issubclass(found, gymnasium.vector.VectorWrapper)
        another = "for vector environments" if of_vectors else "another class"
        what = another if isinstance(found, type) else f"a {type(found).__name__}"
        raise ValueError(f"wrapper {name!r} is {what}: expected a class that derives from gymnasium.Wrapper")
    others = list(inspect.signature(found).parameters.values())[1:]  # without env
    needed = [each.name for each in others if each.kind in _REQUIRED and each.default is inspect.Parameter.empty]
    if needed:
        given = ", ".join(f"{each}=..." for each in needed)
        raise ValueError(
            f"wrapper {name!r} needs {', '.join(needed)}: name a class that needs nothing, in a file my_wrappers.py that lies "
            f"here, as 'class Mine({found.__name__})' whose __init__(self, env) calls super().__init__(env, {given}), and "
            "my_wrappers:Mine"
        )
