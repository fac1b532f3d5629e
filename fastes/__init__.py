"""FastES: Evolution Strategies for Gymnasium environments, with a C core."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from types import ModuleType

    from fastes.env_check.check import EnvCheck, check_env
    from fastes.envs.native.native_env import NativeEnv, get_include
    from fastes.envs.tasks.mujoco_task import MujocoTask as MujocoTask
    from fastes.errors import (
        CheckpointError,
        CheckpointMismatch,
        ClusterError,
        EnvironmentUnavailable,
        FastESError,
        WorkerCrashed,
        WorkerError,
        WorkerTimeout,
    )
    from fastes.es.strategy import EvolutionStrategy
    from fastes.model import FastES
    from fastes.policies.callable_policy import CallablePolicy
    from fastes.policies.torch_policy import TorchPolicy
    from fastes.porting import import_policy
    from fastes.reports.callbacks import Callback
    from fastes.runs.video import play
    from fastes.seeds import train_seeds
    from fastes.settings.settings import Settings
    from fastes.training.evaluation import Evaluation

_HOMES = {
    "FastES": "model",
    "Evaluation": "training.evaluation",
    "NativeEnv": "envs.native.native_env",
    "MujocoTask": "envs.tasks.mujoco_task",
    "get_include": "envs.native.native_env",
    "EnvCheck": "env_check.check",
    "check_env": "env_check.check",
    "CallablePolicy": "policies.callable_policy",
    "Callback": "reports.callbacks",
    "CheckpointError": "errors",
    "CheckpointMismatch": "errors",
    "ClusterError": "errors",
    "EnvironmentUnavailable": "errors",
    "FastESError": "errors",
    "WorkerCrashed": "errors",
    "WorkerError": "errors",
    "WorkerTimeout": "errors",
    "Settings": "settings.settings",
    "EvolutionStrategy": "es.strategy",
    "TorchPolicy": "policies.torch_policy",
    "import_policy": "porting",
    "play": "runs.video",
    "train_seeds": "seeds",
}

__all__ = [  # without MujocoTask: a star import has to work without MuJoCo
    "CallablePolicy",
    "Callback",
    "CheckpointError",
    "CheckpointMismatch",
    "ClusterError",
    "EnvCheck",
    "EnvironmentUnavailable",
    "Evaluation",
    "EvolutionStrategy",
    "FastES",
    "FastESError",
    "NativeEnv",
    "Settings",
    "TorchPolicy",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
    "check_env",
    "get_include",
    "import_policy",
    "play",
    "train_seeds",
]


def import_home(name: str) -> ModuleType:
    """Import a module of the package. If its C core is of another Python, the ImportError says what to do."""
    import sys
    from importlib import import_module
    from importlib.util import find_spec

    try:
        return import_module(f"fastes.{name}")
    except ImportError as error:
        if find_spec("fastes._core") is not None:
            raise
        raise ImportError(
            f"{__path__[0]} has a compiled core for another Python than {sys.version.split()[0]}: install it with pip install ."
        ) from error


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name at its first use, so that `import fastes` is quick."""
        if name not in _HOMES:
            raise AttributeError(f"module 'fastes' has no attribute {name!r}")
        return getattr(import_home(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _use_installed_core() -> None:
    """In a checkout without a core, import the modules from where pip has installed them, with a core."""
    if any(name.startswith("_core.") and name.endswith((".so", ".pyd")) for name in os.listdir(__path__[0])):
        return
    import sys

    from fastes.system.installed_core import installed_copy

    __path__[:] = [installed_copy(__path__[0])]
    for name in [name for name in sys.modules if name.startswith("fastes.")]:
        del sys.modules[name]


_use_installed_core()

from fastes.envs.import_hook import register_with_gymnasium  # noqa: E402  from where the core is

register_with_gymnasium()
