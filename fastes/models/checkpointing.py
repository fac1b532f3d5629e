"""What of a model goes into a checkpoint, and how it comes back."""

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
from fastes.checkpoints.field_checks import MAX_COUNTER, Kinds, check_arrays, check_record, damaged, is_number_or_none, require
from fastes.checkpoints.file_format import Arrays, Checkpoint
from fastes.checkpoints.policy_description import check_same_layers, describe_policy, spec_from
from fastes.checkpoints.reader import read_checkpoint
from fastes.envs.closing import close_env
from fastes.envs.rebuild import check_for_workers
from fastes.envs.source import EnvArgument, EnvSource, MissingEnv, make_env_source
from fastes.errors import CheckpointError, CheckpointMismatch, check_seed, level_outside, shorten, shown
from fastes.es.optimizers import MissingOptimizer
from fastes.policies.action_head import actions_in_words
from fastes.policies.choose_policy import AnySpec, check_noise
from fastes.policies.custom_policy import CustomPolicy, CustomSpec, obs_shape_of
from fastes.policies.images.cnn import BYTES
from fastes.policies.images.image import values_in_words
from fastes.policies.layers.convolution import ImageConvolution
from fastes.policies.mlp import make_policy_spec
from fastes.policies.obs_columns import checked_columns
from fastes.policies.policy_keywords import head_from, plain_policy_kwargs
from fastes.policies.policy_spec import PolicySpec
from fastes.rollout.env_calls import EnvCall, calls_from_json, calls_to_json
from fastes.settings.settings import FIXED, FUNCTIONS, Settings, setting_names
from fastes.system.memory import check_memory
from fastes.training.counters import Counters
from fastes.training.evaluation import load_pending
from fastes.training.evaluation import state_of as pending_state
from fastes.training.state import TrainingState

_PACKAGES = ("fastes", "numpy", "gymnasium", "mujoco", "ale-py", "opencv-python", "opencv-python-headless")
_OLDER = {"eval_lag": 0}  # what settings were before they were settings
_FIRST_BLOCKS = "first_blocks"  # there where the population is adaptive
_NOT_ZERO = {"draws_ahead": 2**30, "warm_up_timesteps": MAX_COUNTER}  # counters that are there where they are not 0, to at most
_NO_ENV = "env_not_kept"  # why a file says nothing of its environment
_KINDS_OF_AN_ENV: Kinds = {
    "id": lambda value: isinstance(value, str),
    "kwargs": lambda value: isinstance(value, dict),
    "lost": lambda value: isinstance(value, dict) and all(isinstance(words, str) for words in value.values()),
}
_COUNTERS = ("generation", "num_timesteps", "eval_timesteps", "num_episodes", "episode_cap", "confirm_after", "budget")


def versions(torch: bool = False) -> dict[str, str]:
    """Versions that results depend on; torch: whether they depend on torch's."""
    found = {"python": platform.python_version(), "noise_stream": str(_core.STREAM_VERSION)}
    wanted = (*_PACKAGES, "torch") if torch else _PACKAGES
    return {**found, **{package: version for package in wanted if (version := _version(package)) is not None}}


@cache
def _version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def checkpoint_of(state: TrainingState, source: EnvSource) -> Checkpoint:
    """A checkpoint of a training's state, and of how its environments are built."""
    counters = state.counters
    target = state.settings.to_dict()
    if not isinstance(target["target_return"], str) and math.isinf(target["target_return"]):
        target["target_return"] = "none" if target["target_return"] > 0 else -1e308
    if not isinstance(target["step_timeout"], str) and math.isinf(target["step_timeout"]):
        target["step_timeout"] = 1e308
    data: dict[str, Any] = {
        "seed": state.seed,
        "env_name": source.name,
        "env": to_json(source),
        **({_NO_ENV: reason} if (reason := reason_for_none(source)) else {}),
        "settings": target,
        "policy": describe_policy(state.spec),
        "counters": {
            "generation": state.strategy.generation,
            "num_timesteps": counters.num_timesteps,
            "eval_timesteps": counters.eval_timesteps,
            "num_episodes": counters.num_episodes,
            "episode_cap": state.cap.steps,
            "confirm_after": counters.confirm_after,
            "budget": counters.budget,
            **({_FIRST_BLOCKS: state.population.first} if state.settings.generation_timesteps else {}),
            **{name: value for name in _NOT_ZERO if (value := getattr(counters, name))},
        },
        "best_eval_return": counters.best_eval_return if math.isfinite(counters.best_eval_return) else None,
        "versions": versions(torch=isinstance(state.spec, CustomSpec) and state.spec.kind == "TorchPolicy"),
    }
    strategy = state.strategy.state()
    arrays = {"theta": {"theta": strategy.pop("theta")}, "optimizer": strategy, "normalizer": state.normalizer.state()}
    if state.reference is not None:
        arrays["reference"] = {"observations": state.reference}
    for key, group, (values, its_arrays) in (
        ("starts", "start", state.starts.state()),
        ("pending", "pending", pending_state(state.pending)),
        ("archive", "archive", state.archive.state()),
    ):
        if values is not None:
            data[key] = values
        if its_arrays:
            arrays[group] = its_arrays
    if len(state.env_calls):
        data["env_calls"] = calls_to_json(state.env_calls)
    return Checkpoint(data, arrays)  # type: ignore[arg-type]


class Parts(NamedTuple):
    """What a model is set up with before a checkpoint's arrays and counters go into it."""

    checkpoint: Checkpoint
    source: EnvSource
    spec: AnySpec
    settings: Settings
    seed: int


def read_parts(
    path: str | os.PathLike[str] | IO[bytes],
    env: EnvArgument | None,
    n_workers: int | None,
    env_kwargs: Mapping[str, Any] | None,
    policy: str | CustomPolicy | None,
    changes: dict[str, Any],
) -> Parts:
    """Read a checkpoint.

    path, env, n_workers, env_kwargs, policy: as FastES.load takes them.
    changes: settings that replace the file's.
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
            check_env_fits(source, spec, settings, n_workers, stacklevel=3)
        except TypeError as error:
            its_kwargs = (checkpoint.data["env"] or {}).get("kwargs")
            if isinstance(env, str) and env_kwargs is None and its_kwargs:
                raise CheckpointError(
                    f"the checkpoint's 'env.kwargs' is {reprlib.repr(its_kwargs)}, which {env!r} does not take ({error}): the "
                    "file was edited, or the environment has changed; pass env_kwargs="
                ) from error
            raise
    check_noise(spec, changes.get("action_noise", 0.0), changes.get("sample_actions", False))
    return Parts(checkpoint, source, spec, settings, seed_from(checkpoint))


def checked_objects(custom_objects: Mapping[str, Any] | None) -> dict[str, Any]:
    """SB3's custom_objects as a dict; TypeError for anything but a mapping of names."""
    if custom_objects is None:
        return {}
    if not isinstance(custom_objects, Mapping) or any(not isinstance(name, str) for name in custom_objects):
        raise TypeError(f"custom_objects = {custom_objects!r:.100}: expected a dict by name, as in {{'learning_rate': 0.01}}")
    return dict(custom_objects)


def print_versions(title: str, found: object) -> None:
    """Print versions under a title, a line each, as SB3 does."""
    print(f"== {title} ==")
    for name, version in (found if isinstance(found, dict) else {}).items():
        print(f"- {name}: {version}")
    print()


def settings_among(custom_objects: Mapping[str, Any]) -> dict[str, Any]:
    """Those of SB3's custom_objects that are settings. A learning rate of 0 says that the model will only act: left out."""
    found = {key: value for key, value in custom_objects.items() if key in setting_names()}
    if found.get("learning_rate") == 0.0:
        del found["learning_rate"]
    return found


def source_from(
    checkpoint: Checkpoint, env: EnvArgument | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> EnvSource:
    """The environment's source: env, where it is given; an id that the file names, too, keeps the file's arguments.

    One that can only raise when it is needed, where neither says enough.
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
    """The run's seed."""
    try:
        return check_seed(checkpoint.data.get("seed"))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's seed is damaged: {error}") from error


def settings_from(checkpoint: Checkpoint, changes: dict[str, Any]) -> Settings:
    """The file's settings with changes on top; a schedule that was a function must be among them to go on training."""
    stored = require(checkpoint.data, "settings", dict)
    if odd := sorted(set(stored) - set(setting_names())):  # a missing one is newer than the file: its default changes nothing
        raise CheckpointError(f"the checkpoint's settings are damaged, or of a newer FastES: {reprlib.repr(odd)} are unknown")
    missing = {name: missing(name) for name, missing in FUNCTIONS.items() if stored.get(name) == "function"}
    try:
        settings = Settings().changed(**{**_OLDER, **stored, **missing})
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
    _refuse_alternatives(checkpoint, settings, changes)
    settings = settings.changed(**changes)
    theta = checkpoint.arrays.get("theta", {}).get("theta")
    size = settings.noise_table_size
    if theta is not None and 0 < size < theta.size and "noise_table_size" not in changes:
        raise CheckpointError(f"the checkpoint's settings are damaged: noise_table_size {size} for {theta.size} parameters")
    return settings


def _refuse_alternatives(checkpoint: Checkpoint, settings: Settings, changes: dict[str, Any]) -> None:
    """CheckpointMismatch for settings in which starts differ, where some have begun and are left to be judged."""
    counters = checkpoint.data.get("counters")
    if checkpoint.data.get("starts") is None or not (isinstance(counters, dict) and counters.get("generation")):
        return
    for name in ("starts_alternatives", *settings.starts_alternatives):
        if name in changes and changes[name] != (kept := getattr(settings, name)):
            raise CheckpointMismatch(
                f"{name} = {changes[name]!r} cannot change on loading while starts that may differ in it are left: the present "
                f"one has {kept!r}. Start a new run, or change it once the best start goes on"
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


def check_env_fits(source: EnvSource, spec: AnySpec, settings: Settings, n_workers: int | None, stacklevel: int) -> None:
    """CheckpointMismatch when a policy does not fit the environment that was passed for it; and `check_for_workers`.

    stacklevel: of the latter's warning, counted from the caller.
    """
    env: Any = source() if source.vector_env is None else source.vector_env
    try:
        if source.vector_env is None:
            check_for_workers(env, n_workers, 1 + stacklevel)
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
    """In what the layer that reads an environment's image differs from the policy's, in words. shown: the image's values."""
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
    """The reference batch of a policy that needs one, or CheckpointError."""
    if not spec.needs_reference and not arrays:
        return None
    batch = arrays.get("observations")
    if batch is None or set(arrays) != {"observations"} or not spec.needs_reference:
        needs = "one" if spec.needs_reference else "none"
        raise CheckpointError(f"the checkpoint's reference batch has the arrays {sorted(arrays)}, its policy needs {needs}")
    # values need not be finite: an environment may show any, as a lidar does that sees nothing
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


def restore_state(state: TrainingState, checkpoint: Checkpoint) -> None:
    """Put the file's arrays and counters into a state that was set up with its settings.

    Fills that state in place, as nothing else may: it was just made, nobody trains on it yet, and its own arrays say which
    names and shapes fit. After a CheckpointError it is filled in part, and goes with the model that was to be loaded.
    """
    counters = require(checkpoint.data, "counters", dict)
    settings = require(checkpoint.data, "settings", dict)
    adaptive = bool(settings.get("generation_timesteps"))
    if adaptive != (_FIRST_BLOCKS in counters):
        raise CheckpointError(
            f"the checkpoint's 'counters' {'miss' if adaptive else 'have'} {_FIRST_BLOCKS!r}, and its "
            f"'settings.generation_timesteps' is {settings.get('generation_timesteps')!r}: the file was edited"
        )
    limits = {"generation": 2**32 - 1, **_NOT_ZERO}
    for name in (*_COUNTERS, *([_FIRST_BLOCKS] if adaptive else []), *(_NOT_ZERO.keys() & counters.keys())):
        limit = limits.get(name, MAX_COUNTER)
        low = name in ("episode_cap", _FIRST_BLOCKS)
        if type(counters.get(name)) is not int or not low <= counters[name] <= limit:
            raise damaged(f"counters.{name}", counters.get(name))
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
            stacklevel=3,
        )
    groups = checkpoint.arrays
    for group in ("theta", "optimizer", "normalizer"):
        require(groups, group, dict)
    own = state.arrays()
    if isinstance(state.strategy.optimizer, MissingOptimizer):  # nothing says which arrays it had
        own |= {name: array for name, array in groups["optimizer"].items() if name.startswith("optimizer.")}
    check_arrays(
        {**groups["theta"], **groups["optimizer"], **{f"normalizer.{k}": v for k, v in groups["normalizer"].items()}}, own
    )
    begins = counters["generation"] == 0 and settings.get("starts", 1) == 1  # or the file's own starts are over
    factor = 1.0  # a sigma that adapts is a number, before and now
    if state.settings.sigma_adaptation != "none":
        factor = float(state.settings.sigma) / settings.get("sigma", Settings().sigma)  # type: ignore[arg-type]
    saved_starts = _with_sigmas(groups.get("start", {}), factor)
    state.starts.load_state(checkpoint.data.get("starts"), saved_starts, own, state.settings, begins)
    state.strategy.load_state({**groups["theta"], **_with_sigmas(groups["optimizer"], factor)}, counters["generation"])
    state.normalizer.load_state(groups["normalizer"])
    state.reference = _reference_in(groups.get("reference", {}), state.spec)
    like = state.normalizer, state.strategy.theta, state.settings
    state.env_calls.restore(_env_calls_in(checkpoint))
    state.pending = load_pending(checkpoint.data.get("pending"), groups.get("pending", {}), *like)
    state.archive.load_state(checkpoint.data.get("archive"), groups.get("archive", {}), *like)
    if settings.get("episode_cap", "none") == "none":  # the file's cap is its limit, where one that is new does not begin
        state.starts.cap_anew(state.cap.steps)
    else:
        state.cap.resume(counters["episode_cap"])
    state.population.resume(counters[_FIRST_BLOCKS] if adaptive else 1)
    best = checkpoint.data.get("best_eval_return")
    if not is_number_or_none(best):
        raise damaged("best_eval_return", best)
    tallies = {name: counters[name] for name in Counters._fields if name in counters}
    state.counters = Counters(**tallies, best_eval_return=-math.inf if best is None else best)


def _env_calls_in(checkpoint: Checkpoint) -> tuple[EnvCall, ...]:
    """What environments were given, or CheckpointError."""
    try:
        return calls_from_json(checkpoint.data.get("env_calls", []))
    except ValueError as error:
        raise CheckpointError(f"the checkpoint's 'env_calls' are damaged or were edited: {error}") from error


def _with_sigmas(arrays: Arrays, factor: float) -> Arrays:
    """Arrays in which sigmas that adapt keep their proportion to the setting, which may change on loading by this factor."""
    if factor == 1.0:
        return arrays
    with np.errstate(over="ignore"):  # they end within the bounds of today's
        return {name: array * factor if name.rpartition(".")[2] == "sigma" else array for name, array in arrays.items()}
