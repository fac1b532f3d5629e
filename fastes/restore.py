"""What of a model goes into a checkpoint, and how it comes back."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from fastes import _core
from fastes.checkpoint import Checkpoint, require
from fastes.envs import EnvSource, from_json, to_json
from fastes.errors import CheckpointError
from fastes.policies import ActionHead, PolicySpec
from fastes.settings import Settings, setting_names

if TYPE_CHECKING:
    from fastes.agent import FastES

_PACKAGES = ("fastes", "numpy", "gymnasium", "mujoco", "ale-py")
_COUNTERS = ("generation", "num_timesteps", "eval_timesteps", "num_episodes", "episode_cap", "confirm_after")


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    found = {"python": platform.python_version(), "noise_stream": str(_core.STREAM_VERSION)}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def model_state(model: FastES) -> Checkpoint:
    """A checkpoint of the model as it is."""
    policy = asdict(model.policy_spec)
    for bound in ("low", "high"):  # JSON has no infinity
        policy["head"][bound] = [x if math.isfinite(x) else str(x) for x in policy["head"][bound]]
    target = model.settings.to_dict()
    if target["target_return"] == math.inf:
        target["target_return"] = "none"
    data = {
        "seed": model.seed,
        "env_name": model.source.name,
        "env": to_json(model.source),
        "settings": target,
        "policy": policy,
        "counters": {
            "generation": model.generation,
            "num_timesteps": model.num_timesteps,
            "eval_timesteps": model.eval_timesteps,
            "num_episodes": model.num_episodes,
            "episode_cap": model.cap.steps,
            "confirm_after": model.confirm_after,
        },
        "best_eval_return": model.best_eval_return if math.isfinite(model.best_eval_return) else None,
        "versions": versions(),
    }
    strategy = model.strategy.state()
    arrays = {"theta": {"theta": strategy.pop("theta")}, "optimizer": strategy, "normalizer": model.normalizer.state()}
    return Checkpoint(data, arrays)  # type: ignore[arg-type]


def source_from(checkpoint: Checkpoint) -> EnvSource:
    """The environment's source; one that can only raise when it is needed, where the file does not say enough."""
    data = checkpoint.data.get("env")
    try:
        return from_json(data)
    except ValueError as error:
        return EnvSource(str(checkpoint.data.get("env_name", "unknown")), None, _Missing(str(error)), {})


class _Missing:
    """An environment factory that says why there is none."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __call__(self) -> Any:
        raise ValueError(self.reason)


def settings_from(checkpoint: Checkpoint, changes: dict[str, Any]) -> Settings:
    """The file's settings with changes on top; a schedule that was a function must be among them to go on training."""
    stored = require(checkpoint.data, "settings", dict)
    values = {name: value for name, value in stored.items() if name in setting_names()}
    values.update(changes)
    for name in ("sigma", "learning_rate"):
        if values.get(name) == "function":
            values[name] = _missing_schedule(name)
    try:
        return Settings().changed(**values)
    except (TypeError, ValueError) as error:
        if changes:
            raise
        raise CheckpointError(f"the checkpoint's settings are damaged: {error}") from error


def _missing_schedule(name: str) -> Any:
    def schedule(_: float) -> float:
        raise ValueError(f"{name} was a function, which a checkpoint does not hold: pass it, as in load(path, {name}=function)")

    return schedule


def spec_from(checkpoint: Checkpoint) -> PolicySpec:
    """The policy, from the file alone: acting needs no environment."""
    stored = require(checkpoint.data, "policy", dict)
    try:
        head: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored["head"].items()
        }
        for bound in ("low", "high"):
            head[bound] = tuple(float(x) for x in head[bound])
        rest: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in stored.items() if key != "head"
        }
        spec = PolicySpec(head=ActionHead(**head), **rest)
        sizes = (*spec.layer_sizes, spec.head.size)
        if len(spec.layer_sizes) < 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise ValueError(f"layer sizes {spec.layer_sizes}")
        if spec.layer_sizes[-1] != _outputs(spec.head):
            raise ValueError(f"{spec.layer_sizes[-1]} outputs for {spec.head}")
        if spec.head.kind not in _core.ACTION_KINDS or spec.activation not in _core.ACTIVATIONS:
            raise ValueError(f"head {spec.head.kind!r}, activation {spec.activation!r}")
        return spec
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the checkpoint's policy is damaged: {error}") from error


def _outputs(head: ActionHead) -> int:
    """The width of the last layer that the C core will read."""
    if head.kind == "categorical":
        if not len(head.nvec) == len(head.start) == head.size or min(head.nvec) < 1:
            raise ValueError(f"choices {head.nvec}")
        if head.cast and np.dtype(head.cast).kind not in "iu":
            raise ValueError(f"dtype {head.cast}")
        return sum(head.nvec)
    if head.kind == "binary":
        return head.size
    if not len(head.low) == len(head.high) == head.size:
        raise ValueError(f"bounds {head.low}, {head.high}")
    return head.size * (head.num_bins if head.kind == "bins" else 1)


def restore_model(model: FastES, checkpoint: Checkpoint) -> None:
    """Put the file's arrays and counters into a model that was set up with its settings."""
    counters = require(checkpoint.data, "counters", dict)
    for name in _COUNTERS:
        if require(counters, name, int) < 0:
            raise CheckpointError(f"the checkpoint's counter {name!r} is {counters[name]}: the file is damaged")
    groups = checkpoint.arrays
    for group in ("theta", "optimizer", "normalizer"):
        require(groups, group, dict)
    expected = {**model.strategy.state(), **{f"normalizer.{k}": v for k, v in model.normalizer.state().items()}}
    given = {**groups["theta"], **groups["optimizer"], **{f"normalizer.{k}": v for k, v in groups["normalizer"].items()}}
    for name, array in expected.items():
        got = given.get(name)
        if got is None or got.shape != array.shape or got.dtype != array.dtype or not np.isfinite(got).all():
            shape = "is missing" if got is None else f"has shape {got.shape} and dtype {got.dtype}"
            raise CheckpointError(
                f"the checkpoint's array {name!r} {shape}, the policy and optimizer need finite {array.dtype} {array.shape}"
            )
    model.strategy.load_state({**groups["theta"], **groups["optimizer"]}, counters["generation"])
    model.normalizer.load_state(groups["normalizer"])
    model.num_timesteps, model.eval_timesteps = counters["num_timesteps"], counters["eval_timesteps"]
    model.num_episodes, model.cap.steps = counters["num_episodes"], counters["episode_cap"]
    model.confirm_after = counters["confirm_after"]
    best = checkpoint.data.get("best_eval_return")
    model.best_eval_return = float(best) if isinstance(best, (int, float)) else -math.inf
