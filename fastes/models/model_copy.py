"""Copies of a model, for copy.deepcopy and pickle, and so for joblib, Ray and Optuna.

It is apart from checkpointing.py, which reads files and so must not know pickle.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from fastes.checkpoints.file_format import Checkpoint
from fastes.envs.source import EnvSource, MissingEnv
from fastes.models.checkpointing import source_from
from fastes.models.env_fit import Kind
from fastes.pools.pool import PoolChoice
from fastes.rollout.env_calls import EnvCall


class Copied(NamedTuple):
    """The description of a copy, without workers, logger and callbacks.

    Attributes:
        kind: The model's class, whose from_copied makes a model of this.
        checkpoint: The content that save writes.
        source, kinds: With functions and custom policies, which a checkpoint cannot hold.
        pool_choice, verbose, info_keywords: The constructor's arguments.
        env_calls: Calls of environments, with arguments that a checkpoint cannot hold.
        extras: Values of a derived class.
    """

    kind: Any
    checkpoint: Checkpoint
    source: EnvSource
    kinds: tuple[Kind, ...]
    pool_choice: PoolChoice
    verbose: int
    info_keywords: tuple[str, ...] = ()
    env_calls: tuple[EnvCall, ...] = ()
    extras: tuple[Any, ...] = ()


def pack(copied: Copied) -> bytes:
    """Return a pickle of a description.

    A vector environment that cannot be pickled, such as one with its own processes, is left out. The copy then builds single
    environments if the environment's id is known, or else asks for one once it needs it.
    """
    source = replace(copied.source, monitor_file=None)  # the rows of that file are the original's
    try:
        cloudpickle.dumps(source)
    except Exception:
        if source.vector_env is None:
            raise
        left = f"{source.vector_env} was left behind when the model was copied: give the copy an env with set_env()"
        source = source_from(copied.checkpoint)
        if isinstance(source.factory, MissingEnv):
            source = replace(source, factory=MissingEnv(left, normalized=source.normalizes_obs))
        copied = copied._replace(pool_choice=copied.pool_choice._replace(n_workers=None))
    return cloudpickle.dumps(copied._replace(source=source))  # type: ignore[no-any-return]


def unpack(content: bytes) -> Any:
    """Return the model that `pack` was given the description of."""
    copied: Copied = pickle.loads(content)
    return copied.kind.from_copied(copied)
