"""Registration of FastES's environments as soon as Gymnasium is imported, and of ale-py's when an id asks for them.

Gymnasium 1.0 no longer loads plugins by entry points: the import of a package registers its environments. FastES does not
import Gymnasium for that.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ATARI = "fastes/Atari-v0"  # any game, named by its argument `game`
_ENVS: dict[str, tuple[str, dict[str, Any]]] = {
    "fastes/TMaze-v0": ("tasks.t_maze:TMaze", {"reward_threshold": 1.0}),
    "fastes/Catch-v0": ("tasks.catch:Catch", {"reward_threshold": 1.0}),
    "fastes/CyclicMDP-v0": ("tasks.cyclic_mdp:CyclicMDP", {"reward_threshold": 132.0, "max_episode_steps": 99}),
    ATARI: ("atari.game:AtariGame", {}),
}
_REGISTRY = "gymnasium.envs"  # importing it fills the registry
_ATARI = re.compile(r"ALE/|\w+NoFrameskip-v|\w+Deterministic-v|\w+-ram-v|\w+-ram(NoFrameskip|Deterministic)-v")
_MAYBE_ATARI = re.compile(r"[A-Z][A-Za-z]+-v[04]$")  # such as Pong-v4: any package may have such names


def register_envs() -> None:
    """Register the environments of FastES that are not registered yet."""
    from gymnasium.envs.registration import register, registry

    for env_id, (entry_point, limits) in _ENVS.items():
        if env_id not in registry:
            register(env_id, entry_point=f"fastes.envs.{entry_point}", **limits)


def is_atari(env_id: str) -> bool:
    """Return whether an id can only be ale-py's."""
    return _ATARI.match(env_id) is not None


def register_atari(env_id: str) -> None:
    """Import ale_py, if it is installed, for an id of its environments: that registers them.

    For an id that other packages may have, too, such as Pong-v4, it is imported only if the id is not registered.
    """
    from gymnasium.envs.registration import registry

    if is_atari(env_id) or (env_id not in registry and _MAYBE_ATARI.match(env_id)):
        has_ale_py()


def has_ale_py() -> bool:
    """Import ale_py. Return whether it is installed."""
    try:
        import_module("ale_py")
    except ImportError:
        return False
    return True


def register_with_gymnasium() -> None:
    """Register now if Gymnasium is imported already, else as soon as it is."""
    after_import(_REGISTRY, register_envs)


def after_import(name: str, then: Callable[[], object]) -> None:
    """Call a function now if a module is imported already, else as soon as it is."""
    if name in sys.modules:
        then()
    elif not any(isinstance(finder, _AfterImport) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport:
    """A finder that passes on what the finders after it find, and calls a function once the module is executed.

    It stays in sys.meta_path: taking it out would make an import in another thread skip a finder.
    """

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                _call_after(spec.loader, self.then)
                return spec
        return None


def _call_after(loader: Loader, then: Callable[[], object]) -> None:
    """Call a function after the loader has executed a module. The loader stays the same object: the module refers to it."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        then()

    loader.exec_module = exec_module  # type: ignore[method-assign]
