"""Copies of a model, for copy.deepcopy and pickle, and so for what sends models to other processes (joblib, Ray, Optuna)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from fastes.checkpoints.file_format import Checkpoint
from fastes.envs.source import EnvSource, MissingEnv
from fastes.models.checkpointing import source_from
from fastes.policies.custom_policy import AnySpec
from fastes.pools.make_pool import PoolChoice
from fastes.rollout.env_calls import EnvCall
from fastes.settings.settings import Settings


class Copied(NamedTuple):
    """The description of a copy: a checkpoint's content, functions, a custom policy, and the constructor's arguments.

    kind: the model's class, whose from_copied makes a model of this.
    checkpoint: what save writes.
    source, spec, settings: with what a checkpoint cannot hold.
    pool_choice, verbose, info_keywords: as they were given.
    extras: of an outer class.
    env_calls: that environments were given, those with arguments that a checkpoint cannot hold too.

    Workers, logger and callbacks stay behind.
    """

    kind: Any
    checkpoint: Checkpoint
    source: EnvSource
    spec: AnySpec
    settings: Settings
    pool_choice: PoolChoice
    verbose: int
    info_keywords: tuple[str, ...] = ()
    env_calls: tuple[EnvCall, ...] = ()
    extras: tuple[Any, ...] = ()


def pack(copied: Copied) -> bytes:
    """A vector environment that cannot be pickled, as one with processes of its own, stays behind.

    The copy builds single environments where its id is known, and else asks for one when it needs it.
    """
    source = replace(copied.source, monitor_file=None)  # its rows are the original's
    try:
        cloudpickle.dumps(source)
    except Exception:
        if source.vector_env is None:
            raise
        left = f"{source.vector_env} was left behind when the model was copied: give the copy an env with set_env()"
        source = source_from(copied.checkpoint)
        if isinstance(source.factory, MissingEnv):
            source = replace(source, factory=MissingEnv(left))
        copied = copied._replace(pool_choice=copied.pool_choice._replace(n_workers=None))
    return cloudpickle.dumps(copied._replace(source=source))  # type: ignore[no-any-return]


def unpack(content: bytes) -> Any:
    """The model that `pack` was given a description of."""
    copied: Copied = pickle.loads(content)
    return copied.kind.from_copied(copied)
