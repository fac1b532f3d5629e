"""Copies of a model, for copy.deepcopy and pickle, and so for what sends models to other processes (joblib, Ray, Optuna)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from fastes.checkpoint import Checkpoint
from fastes.envs import EnvSource, MissingEnv
from fastes.policies import AnySpec
from fastes.restore import source_from
from fastes.settings import Settings

if TYPE_CHECKING:
    from fastes.agent import FastES


class Copied(NamedTuple):
    """What a copy is made of: what a checkpoint holds, and what it cannot (functions, a custom policy, the constructor's)."""

    kind: type[FastES]
    checkpoint: Checkpoint
    source: EnvSource
    spec: AnySpec
    settings: Settings
    seed: int
    n_workers: int | None
    verbose: int
    interface: dict[str, Any]


def packed_model(model: FastES) -> bytes:
    """The model as save and load would copy it, with the environment's function and schedules that are functions.

    Workers, logger and callbacks stay behind. A vector environment that cannot be pickled, as one with processes of its own,
    stays behind, too: the copy builds single environments where its id is known, and else asks for one when it needs it.
    """
    checkpoint = model.snapshot()
    source = replace(model.source, monitor_file=None)  # its rows are the original's
    try:
        cloudpickle.dumps(source)
    except Exception:
        if model.source.lanes is None:
            raise
        source = source_from(checkpoint)
        if isinstance(source.factory, MissingEnv):
            left = f"{model.source.lanes.env} was left behind when the model was copied: give the copy an env with set_env()"
            source = replace(source, factory=MissingEnv(left))
    interface = {"tensorboard_log": model.tensorboard_log, "stats_window_size": model.stats_window_size}
    copied = Copied(
        type(model),
        checkpoint,
        source,
        model.policy_spec,
        model.settings,
        model.seed,
        model.given_workers if source.lanes is model.source.lanes else None,
        model.verbose,
        interface,
    )
    return cloudpickle.dumps(copied)  # type: ignore[no-any-return]


def unpacked_model(content: bytes) -> FastES:
    """The model that `packed_model` described."""
    copied: Copied = pickle.loads(content)
    return copied.kind.from_copied(copied)
