"""A model as a checkpoint: the content that is written, and everything that is made of it again."""

from __future__ import annotations

import math
import os
import platform
import reprlib
from collections.abc import Iterator, Mapping, Sequence
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
from fastes.checkpoints.reader import counters_in, read_checkpoint
from fastes.envs.source import EnvArgument, EnvSource, MissingEnv, make_env_source
from fastes.errors import CheckpointError, CheckpointMismatch, check_seed, shorten, shown, warn_user
from fastes.models.env_fit import Kind, check_env_fits
from fastes.policies.choose_policy import check_model_memory, check_noise
from fastes.policies.custom_policy import AnySpec, CustomPolicy, CustomSpec
from fastes.policies.obs_columns import checked_columns
from fastes.policies.policy_keywords import plain_policy_kwargs
from fastes.policies.policy_spec import PolicySpec
from fastes.rollout.env_calls import EnvCall, EnvCalls, calls_from_json, calls_to_json, without_forgotten
from fastes.settings.settings import FIXED, FUNCTIONS, Settings, setting_names
from fastes.system.limits import check_memory
from fastes.training.selection import Selection
from fastes.training.training import Training

_PACKAGES = ("fastes", "numpy", "gymnasium", "mujoco", "ale-py", "opencv-python", "opencv-python-headless")
TRAININGS = "trainings"  # group of arrays whose names begin with the number of a training
_OF_A_KIND = ("settings", "policy")  # keys of a training that differs in these from the one that is shown
_NO_ENV = "env_not_kept"  # key of the reason if the environment is not described
_NORMALIZED = "env_normalizes_obs"  # key of whether a wrapper normalised observations; absent if not
_KINDS_OF_AN_ENV: Kinds = {
    "id": lambda value: isinstance(value, str),
    "kwargs": lambda value: isinstance(value, dict),
    "lost": lambda value: isinstance(value, dict) and all(isinstance(words, str) for words in value.values()),
    "tuples": lambda value: isinstance(value, list) and all(isinstance(way, list) for way in value),
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
    """Return a checkpoint of a model's trainings, and of how its environments are built.

    Settings and policy are those of the training that the model shows; the fields of another have what differs from these.
    """
    training = selection.training
    settings = _json_settings(training.settings)
    fields, arrays = list[dict[str, Any]](), list[Arrays]()
    calls, fewer = calls_to_keep(selection)
    for each in (trial.training for trial in selection.trials):
        own, its_arrays = each.with_fewer_calls(fewer).to_fields()
        if each.settings is not training.settings:
            others = {name: value for name, value in _json_settings(each.settings).items() if value != settings[name]}
            own |= {"settings": others} if others else {}
        if each.spec is not training.spec and each.spec != training.spec:
            own["policy"] = describe_policy(each.spec)
        fields.append(own)
        arrays.append(its_arrays)
    data: dict[str, Any] = {
        "seed": selection.seed,
        "env_name": source.name,
        "env": to_json(source),
        **({_NO_ENV: reason} if (reason := reason_for_none(source)) else {}),
        **({_NORMALIZED: True} if source.normalizes_obs else {}),
        "settings": settings,
        "policy": describe_policy(training.spec),
        "selection": selection.to_fields(),
        "trainings": fields,
        "versions": versions(torch=isinstance(training.spec, CustomSpec) and training.spec.kind == "TorchPolicy"),
    }
    named = {f"{number}.{name}": array for number, own in enumerate(arrays) for name, array in own.items()}
    groups = {TRAININGS: named}
    references = [each.training.reference for each in selection.trials if each.training.reference is not None]
    if references:  # it depends on the model's seed and observations alone
        groups["reference"] = {"observations": references[0]}
    if calls:
        data["env_calls"] = calls_to_json(calls)
    return Checkpoint(data, groups)


def calls_to_keep(selection: Selection) -> tuple[tuple[EnvCall, ...], int]:
    """Return the calls of environments that a checkpoint or a copy needs, and by how many they are fewer than all."""
    needed = {pending.calls for trial in selection.trials for pending in trial.training.pending}
    return without_forgotten(selection.training.env_calls.made, needed)


def _json_settings(settings: Settings) -> dict[str, Any]:
    """Return settings as JSON holds them, which has no infinity."""
    values = settings.to_dict()
    if not isinstance(values["target_return"], str) and math.isinf(values["target_return"]):
        values["target_return"] = "none" if values["target_return"] > 0 else -1e308
    if not isinstance(values["step_timeout"], str) and math.isinf(values["step_timeout"]):
        values["step_timeout"] = 1e308
    return values


class Parts(NamedTuple):
    """A checkpoint, and what a model is set up with before its trainings are read.

    Attributes:
        checkpoint: The file's content.
        source: Builds the environments.
        kinds: Policy and settings of each training.
    """

    checkpoint: Checkpoint
    source: EnvSource
    kinds: tuple[Kind, ...]


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
    kinds = _kinds_from(checkpoint, custom, changes)
    source = source_from(checkpoint, env, env_kwargs)
    if env is not None:
        try:
            check_env_fits(source, kinds, n_workers)
        except TypeError as error:
            its_kwargs = (checkpoint.data["env"] or {}).get("kwargs")
            if isinstance(env, str) and env_kwargs is None and its_kwargs:
                raise CheckpointError(
                    f"the checkpoint's 'env.kwargs' is {reprlib.repr(its_kwargs)}, which {env!r} does not take ({error}): the "
                    "file was edited, or the environment has changed; pass env_kwargs="
                ) from error
            raise
    for kind in kinds:
        check_noise(kind.spec, changes.get("action_noise", 0.0), changes.get("sample_actions", False))
    return Parts(checkpoint, source, kinds)


def _kinds_from(checkpoint: Checkpoint, policy: CustomPolicy | None, changes: dict[str, Any]) -> tuple[Kind, ...]:
    """Return policy and settings of each training, with changes on top."""
    kinds, common = list[Kind](), None
    records = require(checkpoint.data, "trainings", list)
    for view, record in zip(one_by_one(checkpoint), records, strict=True):
        is_common = not any(key in record for key in _OF_A_KIND)
        if is_common and common is not None:
            kinds.append(common)
            continue
        spec = spec_from(view, policy)
        if isinstance(spec, PolicySpec):
            check_same_layers(view, spec, changes)
        kinds.append(Kind(spec, settings_from(view, changes)))
        common = kinds[-1] if is_common else common
    return tuple(kinds)


def one_by_one(checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """Yield, for each training, the checkpoint as if it was its only one, with settings and policy of its own."""
    data = checkpoint.data
    records, common = require(data, "trainings", list), require(data, "settings", dict)
    arrays = _arrays_by_training(checkpoint, len(records))
    if not records:
        raise damaged("trainings", records)
    for number, record in enumerate(records):
        if not isinstance(record, dict):
            raise damaged(f"trainings.{number}", record)
        own = record.get("settings", {})
        if not isinstance(own, dict):
            raise damaged(f"trainings.{number}.settings", own)
        view = {**data, "settings": {**common, **own}, "policy": record.get("policy", data.get("policy"))}
        named = {f"0.{name}": array for name, array in arrays[number].items()}
        yield Checkpoint(view, {**checkpoint.arrays, TRAININGS: named})


def _arrays_by_training(checkpoint: Checkpoint, trainings: int) -> list[Arrays]:
    """Return the arrays of each training under their own names."""
    arrays: dict[str, Arrays] = {str(number): {} for number in range(trainings)}
    for name, array in require(checkpoint.arrays, TRAININGS, dict).items():
        number, _, own_name = name.partition(".")
        if number not in arrays:
            raise CheckpointError(
                f"the checkpoint's 'trainings' are {trainings}, and it has the array {name!r:.99} of none of them: the file "
                "is damaged or was edited"
            )
        arrays[number][own_name] = array
    return list(arrays.values())


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
        data = check_record("env", data, _KINDS_OF_AN_ENV, added={"lost": {}, "tuples": []})
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
        return EnvSource(name, None, MissingEnv(str(error), bare, was_normalized(checkpoint)), {})


def was_normalized(checkpoint: Checkpoint) -> bool:
    """Return whether a wrapper around the environments of a training normalised observations."""
    found = checkpoint.data.get(_NORMALIZED, False)
    if not isinstance(found, bool):
        raise damaged(_NORMALIZED, found)
    return found


def seed_from(checkpoint: Checkpoint) -> int:
    """Return the run's seed."""
    try:
        return check_seed(checkpoint.data.get("seed"))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's seed is damaged: {error}") from error


def settings_from(checkpoint: Checkpoint, changes: dict[str, Any]) -> Settings:
    """Return the file's settings with changes on top; to train, these must have each schedule that was a function."""
    stored = require(checkpoint.data, "settings", dict)
    odd = sorted(set(stored) - set(setting_names()))  # one that is missing is newer than the file: its default changes nothing
    if odd:
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
    """Raise CheckpointMismatch for other trials once they have begun."""
    several = len(require(checkpoint.data, "trainings", list)) > 1
    for name in ("trials", "rungs", "trials_fraction"):
        kept = getattr(settings, name)
        if changes.get(name, kept) == kept:
            continue
        if several or any(each.get("num_timesteps") for each in counters_in(checkpoint.data)):
            why = "while several trials are left" if several else "since training has begun"
            raise CheckpointMismatch(
                f"{name} = {changes[name]!r} cannot change on loading {why}: the checkpoint has {kept!r}. Start a new run"
            )


def _name_of(function: Any) -> str:
    """Return the name of a user's function or class; '...' for one of FastES, which stands for a missing one."""
    is_own = str(getattr(function, "__module__", "")).startswith("fastes.")
    return "..." if is_own else getattr(function, "__name__", "function")


def warn_of_functions(settings: Settings, path: str) -> None:
    """Warn that a file holds none of the settings that are functions or classes, and say how to pass them to `load`.

    Args:
        settings: The training's.
        path: The file that is written.
    """
    functions = {name: value for name in FUNCTIONS if callable(value := getattr(settings, name))}
    if functions:
        again = ", ".join(f"{name}={_name_of(value)}" for name, value in functions.items())
        warn_user(
            f"the checkpoint holds no function or class, and {' and '.join(functions)} is one: to train on, pass it again, "
            f"as in FastES.load({path!r}, {again})",
            UserWarning,
        )


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


def selection_from(checkpoint: Checkpoint, kinds: Sequence[Kind], episode_limit: int | None) -> Selection:
    """Return the trainings of a checkpoint.

    Args:
        checkpoint: The file's content.
        kinds: Policy and settings of each training, with what is changed on loading.
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
        warn_user(
            f"the checkpoint was trained with version {stream!r} of the random streams, this FastES draws version "
            f"{versions()['noise_stream']}: it acts as before, but training continues with other noise"
        )
    records = require(checkpoint.data, "trainings", list)
    check_memory_of_trainings(kinds)
    arrays = _arrays_by_training(checkpoint, len(records))
    batch = checkpoint.arrays.get("reference", {})
    needing = [kind.spec for kind in kinds if kind.spec.needs_reference]
    reference = _reference_in(batch, needing[0] if needing else kinds[0].spec)
    calls, trainings = EnvCalls(_env_calls_in(checkpoint)), list[Training]()
    for number, (record, kind) in enumerate(zip(records, kinds, strict=True)):
        factor = 1.0  # a sigma that adapts is a number, before and now
        if kind.settings.sigma_adaptation != "none":
            saved = {**require(checkpoint.data, "settings", dict), **record.get("settings", {})}
            factor = float(kind.settings.sigma) / saved.get("sigma", Settings().sigma)  # type: ignore[arg-type]
        own = reference if kind.spec.needs_reference else None
        try:
            new = Training.start(kind.settings, kind.spec, 0, episode_limit, own, calls)
        except ValueError as error:  # a file that was edited, or settings that are given, ask for more than a checkpoint holds
            raise CheckpointMismatch(f"the checkpoint does not fit its settings: {shorten(error)}") from error
        fields = {name: value for name, value in record.items() if name not in _OF_A_KIND}
        trainings.append(new.from_fields(f"trainings.{number}", fields, arrays[number], factor))
    return Selection.from_fields("selection", require(checkpoint.data, "selection", dict), seed_from(checkpoint), trainings)


def check_memory_of_trainings(kinds: Sequence[Kind]) -> None:
    """Raise OSError if the trainings of these kinds take more memory than there is."""
    largest = max(kinds, key=lambda kind: kind.spec.num_params)
    check_model_memory(largest.spec, max(kind.settings.archive_size for kind in kinds), len(kinds))


def _env_calls_in(checkpoint: Checkpoint) -> tuple[EnvCall, ...]:
    """Return the calls that environments were given; CheckpointError if they are damaged."""
    try:
        return calls_from_json(checkpoint.data.get("env_calls", []))
    except ValueError as error:
        raise CheckpointError(f"the checkpoint's 'env_calls' are damaged or were edited: {error}") from error
