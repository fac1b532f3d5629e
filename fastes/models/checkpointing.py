"""A model as a checkpoint: the content that is written, and everything that is made of it again."""

from __future__ import annotations

import math
import os
import platform
import reprlib
import warnings
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes import _core
from fastes.checkpoints.env_description import CannotRebuild, from_json, reason_for_none, source_of_id, to_json
from fastes.checkpoints.field_checks import Kinds, check_record, damaged, require
from fastes.checkpoints.file_format import Arrays, Checkpoint
from fastes.checkpoints.policy_description import check_same_layers, describe_policy, spec_from
from fastes.checkpoints.reader import read_checkpoint
from fastes.envs.closing import close_env
from fastes.envs.given.rebuild import check_for_workers
from fastes.envs.source import EnvArgument, EnvSource, MissingEnv, make_env_source
from fastes.errors import CheckpointError, CheckpointMismatch, check_seed, level_outside, shorten, shown
from fastes.policies.action_head import actions_in_words
from fastes.policies.choose_policy import check_model_memory, check_noise
from fastes.policies.custom_policy import AnySpec, CustomPolicy, CustomSpec
from fastes.policies.layers import ImageConvolution
from fastes.policies.named_policies import BYTES, make_policy_spec, values_in_words
from fastes.policies.obs_columns import checked_columns
from fastes.policies.policy_keywords import head_from, plain_policy_kwargs
from fastes.policies.policy_spec import PolicySpec, obs_shape_of
from fastes.rollout.env_calls import EnvCall, EnvCalls, calls_from_json, calls_to_json
from fastes.settings.settings import FIXED, FUNCTIONS, Settings, setting_names
from fastes.system.limits import check_memory
from fastes.training.selection import Selection
from fastes.training.training import Training

_PACKAGES = ("fastes", "numpy", "gymnasium", "mujoco", "ale-py", "opencv-python", "opencv-python-headless")
TRAININGS = "trainings"  # group of arrays whose names begin with the number of a training
_NO_ENV = "env_not_kept"  # key of the reason if the environment is not described
_KINDS_OF_AN_ENV: Kinds = {
    "id": lambda value: isinstance(value, str),
    "kwargs": lambda value: isinstance(value, dict),
    "lost": lambda value: isinstance(value, dict) and all(isinstance(words, str) for words in value.values()),
}


def versions(torch: bool = False) -> dict[str, str]:
    """Return the versions that results depend on, with torch's if they depend on it."""
    found = {"python": platform.python_version(), "noise_stream": str(_core.STREAM_VERSION)}
    wanted = (*_PACKAGES, "torch") if torch else _PACKAGES
    return {**found, **{package: version for package in wanted if (version := _version(package)) is not None}}


@cache
def _version(package: str) -> str | None:
    """Return the version of an installed package; None for one that is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def checkpoint_of(selection: Selection, source: EnvSource) -> Checkpoint:
    """Return a checkpoint of a model's trainings, and of how its environments are built."""
    training = selection.training
    settings = training.settings.to_dict()
    if not isinstance(settings["target_return"], str) and math.isinf(settings["target_return"]):
        settings["target_return"] = "none" if settings["target_return"] > 0 else -1e308
    if not isinstance(settings["step_timeout"], str) and math.isinf(settings["step_timeout"]):
        settings["step_timeout"] = 1e308
    fields, arrays = zip(*(trial.training.to_fields() for trial in selection.trials), strict=True)
    data: dict[str, Any] = {
        "seed": selection.seed,
        "env_name": source.name,
        "env": to_json(source),
        **({_NO_ENV: reason} if (reason := reason_for_none(source)) else {}),
        "settings": settings,
        "policy": describe_policy(training.spec),
        "selection": selection.to_fields(),
        "trainings": list(fields),
        "versions": versions(torch=isinstance(training.spec, CustomSpec) and training.spec.kind == "TorchPolicy"),
    }
    named = {f"{number}.{name}": array for number, own in enumerate(arrays) for name, array in own.items()}
    groups = {TRAININGS: named}
    if training.reference is not None:
        groups["reference"] = {"observations": training.reference}
    if len(training.env_calls):
        data["env_calls"] = calls_to_json(training.env_calls)
    return Checkpoint(data, groups)


class Parts(NamedTuple):
    """A checkpoint, and the source, spec and settings with which a model is set up before the trainings are read."""

    checkpoint: Checkpoint
    source: EnvSource
    spec: AnySpec
    settings: Settings


def read_parts(
    path: str | os.PathLike[str] | IO[bytes],
    env: EnvArgument | None,
    n_workers: int | None,
    env_kwargs: Mapping[str, Any] | None,
    policy: str | CustomPolicy | None,
    changes: dict[str, Any],
) -> Parts:
    """Read a checkpoint up to its trainings.

    Args:
        path, env, n_workers, env_kwargs, policy: As FastES.load takes them.
        changes: Settings that replace the file's; policy is added.
    """
    checkpoint = read_checkpoint(path)
    if env is None and env_kwargs:
        raise ValueError(f"env_kwargs = {dict(env_kwargs)!r} was given without env: pass env= as well")
    custom = policy if isinstance(policy, CustomPolicy) else None
    if policy is not None:
        changes["policy"] = custom.kind if custom else policy
    spec = spec_from(checkpoint, custom)
    if isinstance(spec, PolicySpec):
        check_same_layers(checkpoint, spec, changes)
    settings = settings_from(checkpoint, changes)
    source = source_from(checkpoint, env, env_kwargs)
    if env is not None:
        try:
            check_env_fits(source, spec, settings, n_workers)
        except TypeError as error:
            its_kwargs = (checkpoint.data["env"] or {}).get("kwargs")
            if isinstance(env, str) and env_kwargs is None and its_kwargs:
                raise CheckpointError(
                    f"the checkpoint's 'env.kwargs' is {reprlib.repr(its_kwargs)}, which {env!r} does not take ({error}): the "
                    "file was edited, or the environment has changed; pass env_kwargs="
                ) from error
            raise
    check_noise(spec, changes.get("action_noise", 0.0), changes.get("sample_actions", False))
    return Parts(checkpoint, source, spec, settings)


def print_versions(title: str, found: object) -> None:
    """Print versions under a title, one per line, as SB3 does."""
    print(f"== {title} ==")
    for name, version in (found if isinstance(found, dict) else {}).items():
        print(f"- {name}: {version}")
    print()


def source_from(
    checkpoint: Checkpoint, env: EnvArgument | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> EnvSource:
    """Return the source of environments.

    Args:
        checkpoint: Describes the environment that it was saved with.
        env: The environment to use; None for the file's. The file's own id keeps the file's arguments.
        env_kwargs: Arguments for `env`.

    Returns:
        The source. Without `env`, and if the file does not say enough, one that raises once it is used.
    """
    data = checkpoint.data.get("env")
    if data is not None:
        data = check_record("env", {"lost": {}, **data} if isinstance(data, dict) else data, _KINDS_OF_AN_ENV)
    name = require(checkpoint.data, "env_name", str)
    if env is not None:
        return source_of_id(env, data, env_kwargs) if isinstance(env, str) else make_env_source(env, env_kwargs)
    reason = checkpoint.data.get(_NO_ENV, "")
    if not isinstance(reason, str):
        raise damaged(_NO_ENV, reason)
    try:
        return from_json(data, reason)
    except ValueError as error:
        bare = error.reason if isinstance(error, CannotRebuild) else ""
        return EnvSource(name, None, MissingEnv(str(error), bare), {})


def seed_from(checkpoint: Checkpoint) -> int:
    """Return the run's seed."""
    try:
        return check_seed(checkpoint.data.get("seed"))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's seed is damaged: {error}") from error


def settings_from(checkpoint: Checkpoint, changes: dict[str, Any]) -> Settings:
    """Return the file's settings with changes on top; to train, these must have each schedule that was a function."""
    stored = require(checkpoint.data, "settings", dict)
    if odd := sorted(
        set(stored) - set(setting_names())
    ):  # one that is missing is newer than the file: its default changes nothing
        raise CheckpointError(f"the checkpoint's settings are damaged, or of a newer FastES: {reprlib.repr(odd)} are unknown")
    missing = {name: missing(name) for name, missing in FUNCTIONS.items() if stored.get(name) == "function"}
    try:
        settings = Settings().changed(**{**stored, **missing})
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"the checkpoint's settings are damaged: {shorten(error)}") from error
    if "obs_columns" in changes:
        changes = {**changes, "obs_columns": checked_columns(changes["obs_columns"])}
    if "policy_kwargs" in changes:
        changes = {**changes, "policy_kwargs": plain_policy_kwargs(changes["policy_kwargs"])}
    for name in FIXED:
        kept, given = getattr(settings, name), changes.get(name)
        if name not in changes or given == kept or (callable(given) and callable(kept)):
            continue
        has, advice = ("a class or function", "pass that") if callable(kept) else (repr(kept), "start a new run")
        raise CheckpointMismatch(f"{name} = {shown(given)} cannot change on loading, the checkpoint has {has}: {advice}")
    _refuse_trials(checkpoint, settings, changes)
    settings = settings.changed(**changes)
    theta = checkpoint.arrays.get(TRAININGS, {}).get("0.theta")
    size = settings.noise_table_size
    if theta is not None and 0 < size < theta.size and "noise_table_size" not in changes:
        raise CheckpointError(f"the checkpoint's settings are damaged: noise_table_size {size} for {theta.size} parameters")
    return settings


def _refuse_trials(checkpoint: Checkpoint, settings: Settings, changes: dict[str, Any]) -> None:
    """Raise CheckpointMismatch for other trials while several that have begun are left."""
    for name in ("trials", "rungs", "trials_fraction"):
        if (
            name in changes
            and changes[name] != (kept := getattr(settings, name))
            and len(require(checkpoint.data, "trainings", list)) > 1
        ):
            raise CheckpointMismatch(
                f"{name} = {changes[name]!r} cannot change on loading while several trials are left: the checkpoint has "
                f"{kept!r}. Start a new run"
            )


def warn_of_functions(settings: Settings, path: str) -> None:
    """Warn that a file holds none of the settings that are functions or classes, and say how to pass them to `load`.

    Args:
        settings: The training's.
        path: The file that is written.
    """
    functions = {name: value for name in FUNCTIONS if callable(value := getattr(settings, name))}
    if functions:
        again = ", ".join(f"{name}={getattr(value, '__name__', 'function')}" for name, value in functions.items())
        warnings.warn(
            f"the checkpoint holds no function or class, and {' and '.join(functions)} is one: to train on, pass it again, "
            f"as in FastES.load({path!r}, {again})",
            UserWarning,
            stacklevel=level_outside(),
        )


def check_env_fits(source: EnvSource, spec: AnySpec, settings: Settings, n_workers: int | None) -> None:
    """Raise CheckpointMismatch if a policy does not fit the environment that was passed for it; call `check_for_workers`."""
    env: Any = source() if source.vector_env is None else source.vector_env
    try:
        if source.vector_env is None:
            check_for_workers(env, n_workers)
        kwargs, observations, actions = settings.policy_kwargs, env.observation_space, env.action_space
        shape, flattened = obs_shape_of(observations)
        head = spec.head and head_from(actions, kwargs)
        if shape == spec.obs_shape and isinstance(spec, PolicySpec) and spec.image is not None:
            own = make_policy_spec(settings.policy, observations, actions, kwargs).image
            if own is not None and own != spec.image:
                shown = values_in_words(observations, settings.policy)
                raise CheckpointMismatch(
                    f"env = {source.name!r} does not fit the policy: {_misfit_of_images(own, shown, spec.image)}"
                )
    finally:
        if source.vector_env is None:
            close_env(env, source.name)
    if (shape, flattened, head) != (spec.obs_shape, spec.flattened, spec.head):
        offered, wanted = (
            f"observations {each}{' that are flattened' if is_flattened else ''} and {actions_in_words(its_head)}"
            for each, is_flattened, its_head in ((shape, flattened, head), (spec.obs_shape, spec.flattened, spec.head))
        )
        raise CheckpointMismatch(
            f"env = {source.name!r} does not fit the policy: it has {offered}, the policy was made for {wanted}"
        )


def _misfit_of_images(own: ImageConvolution, shown: str, stored: ImageConvolution) -> str:
    """Return how an environment's image differs from the policy's, in words. `shown` is the range of its values."""
    if own.divisor == stored.divisor:
        place, expected = (
            f"{image.height} x {image.width} with {image.channels} channels in {image.planes} planes, from value {image.first} "
            "of an observation on"
            for image in (own, stored)
        )
        return f"its image is {place}, the policy was made for {expected}"
    divided = stored.divisor == BYTES
    expected = f"bytes from 0 to 255, which it divides by {BYTES}" if divided else "values that it takes as they are"
    return f"its image is {shown}, the policy was made for {expected}"


def _reference_in(arrays: Arrays, spec: AnySpec) -> npt.NDArray[Any] | None:
    """Return the reference batch of a policy that needs one, None for another; CheckpointError if it does not fit."""
    if not spec.needs_reference and not arrays:
        return None
    batch = arrays.get("observations")
    if batch is None or set(arrays) != {"observations"} or not spec.needs_reference:
        needs = "one" if spec.needs_reference else "none"
        raise CheckpointError(f"the checkpoint's reference batch has the arrays {sorted(arrays)}, its policy needs {needs}")
    # values need not be finite: a lidar that sees nothing may report infinity
    if batch.dtype.name not in _core.OBS_DTYPES or batch.shape[1:] != spec.obs_shape or not len(batch):
        raise CheckpointError(
            f"the checkpoint's reference batch has shape {batch.shape} and dtype {batch.dtype}: expected "
            f"(n, *{spec.obs_shape}) of one of {tuple(_core.OBS_DTYPES)}"
        )
    kept = spec.values_kept if isinstance(spec, PolicySpec) else 0
    check_memory({f"activations of {len(batch):,} observations": 4 * len(batch) * kept}, "use a smaller reference batch")
    batch = np.ascontiguousarray(batch)
    batch.flags.writeable = False
    return batch


def selection_from(checkpoint: Checkpoint, settings: Settings, spec: AnySpec, episode_limit: int | None) -> Selection:
    """Return the trainings of a checkpoint.

    Args:
        checkpoint: The file's content.
        settings: The file's settings, with what is changed on loading.
        spec: The file's policy.
        episode_limit: The environment's, None if unknown.

    Raises:
        CheckpointError: If a field or an array does not fit, or the settings ask for more than a checkpoint holds.
        OSError: If the trainings need more memory than there is.
    """
    saved_with = require(checkpoint.data, "versions", dict)
    for package, version in saved_with.items():
        if not isinstance(version, str):
            raise damaged(f"versions.{package}", version)
    stream = saved_with.get("noise_stream")
    if stream != versions()["noise_stream"]:
        warnings.warn(
            f"the checkpoint was trained with version {stream!r} of the random streams, this FastES draws version "
            f"{versions()['noise_stream']}: it acts as before, but training goes on with other noise",
            RuntimeWarning,
            stacklevel=level_outside(),
        )
    records = require(checkpoint.data, "trainings", list)
    selection = require(checkpoint.data, "selection", dict)
    check_model_memory(spec, settings.archive_size, len(records))
    arrays: dict[str, Arrays] = {str(number): {} for number in range(len(records))}
    for name, array in require(checkpoint.arrays, TRAININGS, dict).items():
        number, _, own_name = name.partition(".")
        if number not in arrays:
            raise CheckpointError(
                f"the checkpoint's 'trainings' are {len(arrays)}, and it has the array {name!r:.99} of none of them: the file "
                "is damaged or was edited"
            )
        arrays[number][own_name] = array
    reference = _reference_in(checkpoint.arrays.get("reference", {}), spec)
    calls, factor = EnvCalls(_env_calls_in(checkpoint)), 1.0  # a sigma that adapts is a number, before and now
    if settings.sigma_adaptation != "none":
        saved = require(checkpoint.data, "settings", dict)
        factor = float(settings.sigma) / saved.get("sigma", Settings().sigma)  # type: ignore[arg-type]
    trainings = []
    for number, (fields, own) in enumerate(zip(records, arrays.values(), strict=True)):
        try:
            new = Training.start(settings, spec, 0, episode_limit, reference, calls)
        except ValueError as error:  # a file that was edited, or settings that are given, ask for more than a checkpoint holds
            raise CheckpointMismatch(f"the checkpoint does not fit its settings: {shorten(error)}") from error
        trainings.append(new.from_fields(f"trainings.{number}", fields, own, factor))
    return Selection.from_fields("selection", selection, seed_from(checkpoint), trainings)


def _env_calls_in(checkpoint: Checkpoint) -> tuple[EnvCall, ...]:
    """Return the calls that environments were given; CheckpointError if they are damaged."""
    try:
        return calls_from_json(checkpoint.data.get("env_calls", []))
    except ValueError as error:
        raise CheckpointError(f"the checkpoint's 'env_calls' are damaged or were edited: {error}") from error
