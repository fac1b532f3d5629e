"""FastES: Evolution Strategies for Gymnasium environments, with a C core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastes.envs.import_hook import register_with_gymnasium

__version__ = "0.1.0"

if TYPE_CHECKING:
    from types import ModuleType

    from fastes.agent import FastES
    from fastes.errors import (
        CheckpointError,
        CheckpointMismatch,
        EnvironmentUnavailable,
        FastESError,
        WorkerCrashed,
        WorkerError,
        WorkerTimeout,
    )
    from fastes.es.strategy import EvolutionStrategy
    from fastes.policies.callable_policy import CallablePolicy
    from fastes.policies.torch_policy import TorchPolicy
    from fastes.reports.callbacks import Callback
    from fastes.settings.settings import Settings
    from fastes.training.evaluation import Evaluation

_HOMES = {
    "FastES": "agent",
    "Evaluation": "training.evaluation",
    "CallablePolicy": "policies.callable_policy",
    "Callback": "reports.callbacks",
    "CheckpointError": "errors",
    "CheckpointMismatch": "errors",
    "EnvironmentUnavailable": "errors",
    "FastESError": "errors",
    "WorkerCrashed": "errors",
    "WorkerError": "errors",
    "WorkerTimeout": "errors",
    "Settings": "settings.settings",
    "EvolutionStrategy": "es.strategy",
    "TorchPolicy": "policies.torch_policy",
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
