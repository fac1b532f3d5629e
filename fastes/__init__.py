"""FastES: Evolution Strategies for Gymnasium environments, with a C core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastes.plugin import register_with_gymnasium

__version__ = "0.1.0"

if TYPE_CHECKING:
    from types import ModuleType

    from fastes.agent import FastES
    from fastes.callbacks import Callback
    from fastes.errors import (
        CheckpointError,
        CheckpointMismatch,
        EnvironmentUnavailable,
        FastESError,
        WorkerCrashed,
        WorkerError,
        WorkerTimeout,
    )
    from fastes.evaluation import Evaluation
    from fastes.policies.custom import CallablePolicy
    from fastes.policies.torch_module import TorchPolicy
    from fastes.settings import Settings
    from fastes.strategy import EvolutionStrategy

_HOMES = {
    "FastES": "agent",
    "Evaluation": "evaluation",
    "CallablePolicy": "policies.custom",
    "Callback": "callbacks",
    "CheckpointError": "errors",
    "CheckpointMismatch": "errors",
    "EnvironmentUnavailable": "errors",
    "FastESError": "errors",
    "WorkerCrashed": "errors",
    "WorkerError": "errors",
    "WorkerTimeout": "errors",
    "Settings": "settings",
    "EvolutionStrategy": "strategy",
    "TorchPolicy": "policies.torch_module",
}

__all__ = [
    "CallablePolicy",
    "Callback",
    "CheckpointError",
    "CheckpointMismatch",
    "EnvironmentUnavailable",
    "Evaluation",
    "EvolutionStrategy",
    "FastES",
    "FastESError",
    "Settings",
    "TorchPolicy",
    "WorkerCrashed",
    "WorkerError",
    "WorkerTimeout",
]


def import_home(name: str) -> ModuleType:
    """A module of the package; an error that says what to do where it has no C core."""
    from importlib import import_module
    from importlib.util import find_spec

    try:
        return import_module(f"fastes.{name}")
    except ImportError as error:
        if find_spec("fastes._core") is not None:
            raise
        raise ImportError(
            f"{__path__[0]} is FastES's source, without its compiled core, and hides the package that pip has installed: work "
            "in another folder, or install the source itself with pip install -e ."
        ) from error


def __getattr__(name: str) -> object:
    """Names are imported at first use: `import fastes` alone stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fastes' has no attribute {name!r}")
    return getattr(import_home(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_with_gymnasium()
