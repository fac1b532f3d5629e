"""What follows the import of a module: the environments of FastES in Gymnasium's registry, without importing it for that.

Gymnasium 1.0 loads no plugins any more (it knows no entry points): who imports a package registers its environments.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ATARI = "fastes/Atari-v0"  # any game, named by its argument `game`
_REGISTRY = "gymnasium.envs"  # importing it fills the registry
_ATARI = re.compile(r"ALE/|\w+NoFrameskip-v|\w+Deterministic-v|\w+-ram-v|\w+-ram(NoFrameskip|Deterministic)-v")
_MAYBE_ATARI = re.compile(r"[A-Z][A-Za-z]+-v[04]$")  # Pong-v4 and its like: any package may have such names


def register_envs() -> None:
    """Register the environments of FastES, those that are not registered yet."""
    from gymnasium.envs.registration import register, registry

    if "fastes/TMaze-v0" not in registry:
        register("fastes/TMaze-v0", entry_point="fastes.envs.tasks.t_maze:TMaze", reward_threshold=1.0)
    if "fastes/Catch-v0" not in registry:
        register("fastes/Catch-v0", entry_point="fastes.envs.tasks.catch:Catch", reward_threshold=1.0)
    if "fastes/CyclicMDP-v0" not in registry:
        register(
            "fastes/CyclicMDP-v0",
            entry_point="fastes.envs.tasks.cyclic_mdp:CyclicMDP",
            reward_threshold=132.0,
            max_episode_steps=99,
        )
    if ATARI not in registry:
        register(ATARI, entry_point="fastes.envs.atari.game:AtariGame")


def is_atari(env_id: str) -> bool:
    """Whether an id can be no other package's."""
    return _ATARI.match(env_id) is not None


def register_atari(env_id: str) -> None:
    """Import ale_py, where it is installed, for an id of its environments: that registers them.

    An id that others may have, such as Pong-v4, is looked for there where nobody has registered it.
    """
    from gymnasium.envs.registration import registry

    if is_atari(env_id) or (env_id not in registry and _MAYBE_ATARI.match(env_id)):
        has_ale_py()


def has_ale_py() -> bool:
    """Import ale_py; False where it is not installed."""
    try:
        import_module("ale_py")
    except ImportError:
        return False
    return True


def register_with_gymnasium() -> None:
    """Register now where Gymnasium is imported already, and else as soon as it is."""
    after_import(_REGISTRY, register_envs)


def after_import(name: str, then: Callable[[], object]) -> None:
    """Call a function now where a module is imported already, and else as soon as it is."""
    if name in sys.modules:
        then()
    elif not any(isinstance(finder, _AfterImport) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport:
    """A finder that finds what the finders after it find, and calls a function once that is executed.

    It stays: taking it out would make an import that runs in another thread skip a finder.
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
    """A function follows the loader's work; the loader stays the object that it is, for who looks at the module."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        then()

    loader.exec_module = exec_module  # type: ignore[method-assign]
