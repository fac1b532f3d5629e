"""An `env` argument becomes an EnvSource, which builds the environment in any process."""

from __future__ import annotations

import copy
import functools
import importlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle
from gymnasium.wrappers import TimeLimit

from fastes import _core
from fastes.envs.advice import advice_on_object, check_declared, entry_point_advice, package_missing, unknown_id_advice
from fastes.envs.as_registered import (
    changed_options,
    has_another_goal,
    is_registered_limit,
    may_change_rewards,
    odd_wrappers,
    watching_aside,
)
from fastes.envs.atari.options import is_ale_env, is_our_game, of_game, preset_id
from fastes.envs.closing import close_env, closed_after
from fastes.envs.factories import Copies, made_by, parts_held_by, takes_worker_index
from fastes.envs.given.changes import CannotCarry, Changes, changes_of, undisturbed
from fastes.envs.given.later_changes import WatchedEnv
from fastes.envs.given.rebuild import (
    Wrapping,
    as_code,
    check_same,
    number_videos,
    own,
    registered_wrappings,
    taken_apart,
    unwatched,
    without_monitor,
    without_wrappers,
)
from fastes.envs.import_hook import ATARI, register_atari, register_envs
from fastes.envs.layers import layers
from fastes.envs.likeness import same
from fastes.envs.mujoco_messages import listen_to_mujoco, mujoco_listened_to
from fastes.envs.native.native_env import checksum_of, expect, in_library, is_native, library_of, native_spec
from fastes.envs.vector.gymnasium_vector_env import GymnasiumVectorEnv
from fastes.envs.vector.sb3_vec_env import Sb3VectorEnv, VecEnv, is_vec_env
from fastes.envs.vector.vector_env import VectorEnv
from fastes.envs.worker_imports import ClassState, loaded_env_classes, portable, send_by_value, state_of_classes
from fastes.envs.worker_number import numbered, worker_index
from fastes.errors import EnvironmentUnavailable, shown
from fastes.system.forks import CopiesEndHere
from fastes.system.interrupts import signal_handlers_kept

register_envs()  # again, for a process whose import hooks keep ours from seeing Gymnasium

_FRAMES = "rgb_array"  # the render mode of pictures

Env = gymnasium.Env[Any, Any]
Pair = tuple[gymnasium.Space[Any], gymnasium.Space[Any]]  # of observations, of actions
EnvArgument = (
    str | EnvSpec | Env | Callable[[], Env] | Callable[[int], Env] | gymnasium.vector.VectorEnv[Any, Any, Any] | VecEnv
)


@dataclass(frozen=True, eq=False)
class EnvSource:
    """A source of environments: a Gymnasium spec, a factory of the user's, or a vector environment.

    Attributes:
        name: Name for folders and messages.
        spec: Spec for gymnasium.make; None for a factory.
        factory: The user's function without arguments, or of the worker's index; None for a spec.
        make_kwargs: Arguments for gymnasium.make.
        wrappers: Wrappers around the environment that the spec makes, innermost first.
        folder: The working directory in which the source was made. Workers start there: an environment may leave it.
        vector_env: A vector environment that exists already and is driven as it is. Single environments can be built if all of
            its environments are alike and have no wrappers.
        monitor_file: File of the SB3 Monitor around the given environment, into which the model writes.
        info_keywords: The info_keywords of this Monitor.
        found_keywords: Those of Monitors that a factory made, once it has made an environment in this process.
        changes: Changes that were made in the given environment since it was built.
        given: The given environment, for as long as it lives; no other process gets it.
        classes: Members of the environment's classes in the process that has sent this source here.
    """

    name: str
    spec: EnvSpec | None
    factory: Callable[..., Env] | None
    make_kwargs: Mapping[str, Any]
    wrappers: tuple[Wrapping, ...] = ()
    folder: str | None = field(default_factory=lambda: _working_directory())
    vector_env: VectorEnv | None = None
    monitor_file: str | None = None
    info_keywords: tuple[str, ...] = ()
    found_keywords: dict[str, None] = field(default_factory=dict)
    changes: Changes | None = None
    given: WatchedEnv | None = None
    classes: ClassState | None = None

    def __call__(self, number: int | None = None, **extra: Any) -> Env:
        """Build one environment. Handlers of SIGINT, SIGTERM and SIGHUP that it installs are removed.

        Args:
            number: Its number among those that exist at the same time; None for the number of this process.
            **extra: More keyword arguments for gymnasium.make; a factory gets render_mode only.
        """
        alone = CopiesEndHere(f"the environment {self.name}")
        number = worker_index() if number is None else number
        with _core.UsualFloats(), signal_handlers_kept(), numbered(number), mujoco_listened_to() as built, alone:
            env = self._built_with_its_classes(extra)
            number_videos(env, number)
            built.append(env)
        try:
            check_declared(env)
        except BaseException:
            close_env(env, self.name)
            raise
        return env

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, with the classes as this process has them."""
        kinds = list(self._kinds())
        send_by_value(kinds)
        spec = self.spec and portable(self.spec)
        state = {**vars(self), "spec": spec, "classes": state_of_classes(kinds), "given": None}
        if any(isinstance(part, gymnasium.Env) for _, part in parts_held_by(self.factory)):
            _SourcesForEnvs(file := io.BytesIO()).dump(self.factory)
            state["factory"] = file.getvalue()
        if self.spec is not None and in_library(self.spec):
            path = library_of(self.spec)
            state["library"] = path, checksum_of(path)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        factory = state["factory"]
        if "library" in state:
            expect(*state.pop("library"))
        vars(self).update(state, factory=pickle.loads(factory) if isinstance(factory, bytes) else factory)

    def _kinds(self) -> Iterator[Any]:
        """Yield the classes and functions that build an environment, as far as they are known."""
        if self.spec is not None:
            entry_point = self.spec.entry_point
            module, _, name = entry_point.partition(":") if isinstance(entry_point, str) else ("", "", "")
            yield getattr(sys.modules.get(module), name, None) if module else entry_point
        yield from (wrapper.kind for wrapper in self.wrappers)
        if isinstance(self.factory, Copies):
            yield from self.factory.kinds
        elif self.factory is not None:
            yield self.factory.func if isinstance(self.factory, functools.partial) else self.factory
            yield from loaded_env_classes()

    def _build(self, extra: Mapping[str, Any]) -> Env:
        if self.vector_env is not None and not self.rebuilds:
            raise EnvironmentUnavailable(
                f"{self.name}: a single environment is needed here, and none can be built from {self.vector_env}. Save the "
                "model, and give FastES.load(path, env=...) one"
            )
        env = self._by_spec(extra) if self.factory is None else self._by_factory(self.factory, extra.get("render_mode"))
        if self.changes is not None:
            self.changes.apply(env)
        return env

    def _by_factory(self, factory: Callable[..., Env], render_mode: str | None) -> Env:
        made = made_by(factory, render_mode)
        if not isinstance(made, gymnasium.Env):
            raise TypeError(
                f"the function {self.name!r} made {shown(made)}, a {type(made).__name__}: expected a gymnasium.Env"
                f"{advice_on_object(made)}"
            )
        inner, keywords = unwatched(made)
        self.found_keywords.update(dict.fromkeys(keywords))
        return inner

    def _by_spec(self, extra: Mapping[str, Any]) -> Env:
        assert self.spec is not None
        kwargs = {**self.make_kwargs, **extra}
        if "worker_index" not in self.spec.kwargs and takes_worker_index(self.spec.entry_point):
            kwargs.setdefault("worker_index", worker_index())
        env = _make(self.spec, kwargs)
        for wrapper in self.wrappers:
            env = wrapper.around(env)
        return env

    def _built_with_its_classes(self, extra: Mapping[str, Any]) -> Env:
        """Build an environment after its classes were changed as `classes` says.

        A factory may import a class only while it builds: if that class has to be changed, the factory builds once more.
        """
        if self.classes is None:
            return self._build(extra)
        self.classes.apply(imports=self.spec is not None)
        env = self._build(extra)
        if self.classes.apply(imports=False):
            close_env(env)
            env = self._build(extra)
        return env

    @property
    def episode_limit(self) -> int | None:
        """Steps after which an environment ends an episode, if a spec or a vector environment says it; else None."""
        if self.vector_env is not None:
            return self.vector_env.episode_limit
        return self.spec.max_episode_steps if self.spec is not None else None

    @property
    def normalizes_obs(self) -> bool:
        """Whether a wrapper around vector environments, even missing ones, normalises observations by running statistics."""
        if isinstance(self.factory, MissingEnv):
            return self.factory.normalized
        return self.vector_env is not None and self.vector_env.normalizes

    def preset_name(self, space: gymnasium.Space[Any]) -> str:
        """Return the id by which presets know the environment. space: of its observations."""
        return preset_id(self.name, self.spec, space)

    @functools.cached_property
    def added_wrappers(self) -> tuple[Wrapping, ...]:
        """The wrappers that the environment's id does not bring itself."""
        known = None if self.spec is None else gymnasium.registry.get(self.spec.id)
        brought = [(each.entry_point, each.kwargs) for each in known.additional_wrappers] if known is not None else []
        first = self.wrappers[: len(brought)]
        are_alike = len(first) == len(brought) and all(
            same((each.entry_point, each.kwargs), other) for each, other in zip(first, brought, strict=True)
        )
        return self.wrappers[len(brought) :] if are_alike else self.wrappers

    @property
    def rebuilds(self) -> bool:
        """Whether `spec` alone says how to build one."""
        if self.spec is None or self.spec.additional_wrappers or self.added_wrappers or self.changes is not None:
            return False
        if gymnasium.registry.get(self.spec.id) is None:
            return False
        return self.vector_env is None or self.vector_env.plain

    @functools.cached_property
    def differences(self) -> tuple[str, ...]:
        """Differences from the environment that its id makes, in words, as far as they can be known."""
        if isinstance(self.factory, Copies):
            wrappers = watching_aside(kind.__name__ for kind in self.factory.kinds[:-1] if kind is not TimeLimit)
            return tuple(wrappers) or ("something set in the object, which is copied",)
        if self.spec is None:
            return ()
        within = [kind for kind in self._within() if kind not in (TimeLimit, "TimeLimit")]  # its limit is the spec's
        around = [
            wrapper.kind for wrapper in self.added_wrappers if not is_registered_limit(self.spec, wrapper.kind, wrapper.kwargs)
        ]
        differ = () if self.vector_env is None or self.vector_env.alike else ("environments that differ",)
        set_since = () if self.changes is None else tuple(f"{name} set in the object" for name in self.changes.names)
        options = changed_options(self.spec, self.make_kwargs)
        return (*options, *set_since, *odd_wrappers(self.spec, (*around, *within)), *differ)

    def _within(self) -> tuple[type | str, ...]:
        return self.vector_env.wrapped_in if self.vector_env is not None else ()

    @functools.cached_property
    def reward_threshold(self) -> float | None:
        """The registered reward_threshold, at which an environment counts as solved.

        None if options, wrappers or what was set in the environment may change what a return is worth.
        """
        if self.spec is None or self.spec.reward_threshold is None or self.changes is not None:
            return None
        if self.vector_env is not None and (self.vector_env.changes_rewards or not self.vector_env.alike):
            return None
        kinds = (*(wrapper.kind for wrapper in self.added_wrappers), *self._within())
        if any(map(may_change_rewards, kinds)) or has_another_goal(self.spec, self.make_kwargs):
            return None
        return self.spec.reward_threshold


class _SourcesForEnvs(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends the source of an environment in its place: pickle might build it as it was at first."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, gymnasium.Env):
            return make_env_source(thing), ()
        return super().reducer_override(thing)


class MissingEnv:
    """A factory that raises ValueError with a reason.

    Args:
        reason: The reason.
        bare: The reason without the advice for Python.
        normalized: Whether a wrapper around the vector environments that are missing normalised observations.
    """

    def __init__(self, reason: str, bare: str = "", normalized: bool = False) -> None:
        self.reason, self.bare, self.normalized = reason, bare or reason, normalized

    def __call__(self) -> Any:
        raise ValueError(self.reason)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def make_env_source(env: EnvArgument, env_kwargs: Mapping[str, Any] | None = None) -> EnvSource:
    """Return the source of environments like `env`.

    An Env is rebuilt from its spec; one without a spec is copied. Specs are resolved here, so that workers do not need the
    registrations of this process.

    Args:
        env: An environment id, an EnvSpec, an Env, a vector environment, or a function without arguments or of the worker's
            index.
        env_kwargs: Arguments for gymnasium.make.

    Raises:
        EnvironmentUnavailable: The id is unknown.
        ValueError: The Env cannot be rebuilt.
        TypeError: env or env_kwargs has another type.
    """
    listen_to_mujoco()
    if not isinstance(env_kwargs, (Mapping, type(None))) or not all(isinstance(name, str) for name in env_kwargs or ()):
        raise TypeError(
            f"env_kwargs = {env_kwargs!r:.200} is a {type(env_kwargs).__name__}: expected a dict of arguments by name, such as "
            "{'render_mode': 'rgb_array'}"
        )
    kwargs = dict(env_kwargs or {})
    if kwargs.get("render_mode") == "human":
        del kwargs["render_mode"]  # as of an Env: workers show nothing
    if hasattr(type(env), "training_source"):  # the result of a model's get_env()
        env = env.training_source  # type: ignore[union-attr]
    if isinstance(env, EnvSource) and not kwargs:
        return env
    if isinstance(env, str):
        return _source_of_id(env, kwargs)
    if isinstance(env, EnvSpec):
        return _source_of_spec(env, kwargs)
    if (vector_env := vector_env_of(env)) is not None:
        return _source_of_vector_env(vector_env, kwargs)
    if isinstance(env, gymnasium.Env):
        return _source_of_env(env, kwargs)
    if callable(env):
        if kwargs:
            raise ValueError(f"env_kwargs = {shown(kwargs)} cannot reach a factory: pass lambda: factory(**env_kwargs) as env")
        return EnvSource(_name_of(env), None, env, {})
    raise TypeError(
        f"env = {shown(env)} is a {type(env).__name__}: expected an environment id such as 'CartPole-v1', a gymnasium.Env, an "
        "EnvSpec, a vector environment, or a function without arguments, or of the worker's index, that returns an "
        f"Env{advice_on_object(env)}"
    )


def vector_env_of(env: object) -> VectorEnv | None:
    """Return a vector environment as pools drive it; None for anything else."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return GymnasiumVectorEnv(env)
    return Sb3VectorEnv(env) if is_vec_env(env) else None


def _check_no_kwargs(kwargs: Mapping[str, Any], env: object) -> None:
    if kwargs:
        raise ValueError(
            f"env_kwargs = {shown(kwargs)} cannot reach {shown(env)}, which exists already: pass them when you make it"
        )


def _source_of_vector_env(vector_env: VectorEnv, kwargs: Mapping[str, Any]) -> EnvSource:
    _check_no_kwargs(kwargs, vector_env.env)
    spec, keywords = vector_env.spec, vector_env.info_keywords
    name = spec.id if spec else type(vector_env.env).__name__
    return EnvSource(name, spec, None, {}, vector_env=vector_env, info_keywords=keywords)


def _name_of(factory: Any) -> str:
    inner = factory.func if isinstance(factory, functools.partial) else factory
    return str(getattr(inner, "__name__", type(inner).__name__)).strip("<>")


def _find_spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        before = list(gymnasium.registry)
        register_atari(name)
        spec = gymnasium.spec(name)
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"environment {env_id!r} cannot be found: its module {error.name!r} is not importable; check the spelling, install "
            "it, or run where it lies"
        ) from error
    except gymnasium.error.Error as error:
        raise EnvironmentUnavailable(
            f"environment {env_id!r} is not registered in Gymnasium{unknown_id_advice(env_id, before)}"
        ) from error
    return spec


def _source_of_id(env_id: str, kwargs: dict[str, Any]) -> EnvSource:
    if is_native(env_id):
        return EnvSource(env_id.removeprefix("./"), native_spec(env_id, {}), None, kwargs)
    spec = _find_spec(env_id)
    if spec.id == ATARI or is_our_game(spec, kwargs):
        name, spec, kwargs = of_game(spec, kwargs)
        return EnvSource(name, spec, None, kwargs)
    return source_of_registered(env_id, spec, kwargs)


def source_of_registered(name: str, spec: EnvSpec, kwargs: Mapping[str, Any]) -> EnvSource:
    """Return the source of environments as an id was registered, whose wrappers workers get as classes, not as names."""
    wrappers = registered_wrappings(spec)
    return EnvSource(name, portable(without_wrappers(spec) if wrappers else spec), None, kwargs, wrappers)


def _source_of_spec(spec: EnvSpec, kwargs: dict[str, Any]) -> EnvSource:
    spec = copy.deepcopy(spec)
    mode = spec.kwargs.pop("render_mode", None)
    if not spec.additional_wrappers:
        return _drawing_if_needed(EnvSource(spec.id, portable(spec), None, {}), mode, kwargs)
    try:
        env = _make(spec, {"render_mode": mode} if mode == _FRAMES else {})
    except EnvironmentUnavailable:
        raise
    except Exception as error:
        raise _cannot_be_rebuilt(f"EnvSpec {spec.id!r}", error) from error
    try:
        return _source_of_env(env, kwargs)
    finally:
        close_env(env, spec.id)


def _source_of_env(env: Env, kwargs: dict[str, Any]) -> EnvSource:
    check_declared(env)
    inner, monitor_file, keywords = without_monitor(env)
    source = _source_of_inner(inner, kwargs)
    return replace(source, monitor_file=monitor_file, info_keywords=keywords, given=WatchedEnv(inner))


def _source_of_inner(env: Env, kwargs: dict[str, Any]) -> EnvSource:
    if env.spec is None:
        return _source_of_copies(env, kwargs)
    try:
        spec, wrappers = taken_apart(env)
        source = _drawing_if_needed(EnvSource(spec.id, portable(spec), None, {}, wrappers), env.render_mode, {})
        changes = changes_of(env, lambda number: closed_after(_like(env, source, number)))
    except Exception as error:
        return _copied_instead(env, kwargs, error)
    return replace(source, make_kwargs={**source.make_kwargs, **kwargs}, changes=changes)


def _drawing_if_needed(source: EnvSource, mode: str | None, kwargs: dict[str, Any]) -> EnvSource:
    """Return a source with these arguments for gymnasium.make, and with the render mode if its environments observe frames.

    Others draw nothing, which takes time.

    Args:
        source: A source without arguments.
        mode: The mode in which the user's environment draws.
        kwargs: The arguments.
    """
    source = replace(source, make_kwargs=kwargs)
    if mode != _FRAMES or not _observes_frames(source):
        return source
    return replace(source, make_kwargs={"render_mode": mode, **kwargs})


def _observes_frames(source: EnvSource) -> bool:
    """Return whether an environment cannot be built and reset without a render mode, or then observes nothing."""
    observed = None
    with undisturbed(), closed_after(source()) as env:
        observed = env.reset(seed=0)[0]
    return observed is None


def _like(given: Env, source: EnvSource, number: int) -> Env:
    """Build an environment to compare with the given one, with its render mode if this opens no window.

    Raises ValueError if it differs visibly.
    """
    drawn = {"render_mode": _FRAMES} if getattr(given, "render_mode", None) == _FRAMES else {}
    built = source(number, **drawn)
    try:
        check_same(given, built)
    except BaseException:
        close_env(built, source.name)
        raise
    return built


def _copied_instead(env: Env, kwargs: dict[str, Any], reason: Exception) -> EnvSource:
    """Return a source of copies of an environment that cannot be rebuilt, under its own name."""
    try:
        copies = _source_of_copies(env, kwargs)
    except Exception as error:
        if isinstance(reason, CannotCarry):
            raise _cannot_be_carried(env, reason) from reason
        why = error.__cause__ or error
        raise _cannot_be_rebuilt(f"environment {env}", reason, f" or copied ({why})", as_code(env)) from reason
    return replace(copies, name=env.spec.id if isinstance(env.spec, EnvSpec) else copies.name)


def _source_of_copies(env: Env, kwargs: dict[str, Any]) -> EnvSource:
    _check_no_kwargs(kwargs, env)
    try:
        copies = Copies(env)
        strict = any(isinstance(layer, EzPickle) for layer in layers(env))  # other classes say what copies are without
        changes = changes_of(env, lambda _: closed_after(copies()), strict)
    except CannotCarry as error:
        raise _cannot_be_carried(env, error) from error
    except Exception as error:
        raise ValueError(
            f"the environment {env} has no spec, and it cannot be copied ({error}), as workers need to: pass a function that "
            "builds it instead, such as FastES(lambda: MyEnv())"
        ) from error
    return EnvSource(_name_of(copies), None, copies, {}, changes=changes)


def _cannot_be_carried(env: Env, reason: CannotCarry) -> ValueError:
    lines = "".join(f"        {name} = ...\n" for name in reason.names[:3] if name.startswith("env."))
    return ValueError(
        f"the environment {env} was changed after it was made, and workers cannot be given what is different: {reason}. Pass a "
        f"function that builds it and makes the change:\n\n    def make_env():\n        env = {as_code(env)}\n{lines}"
        "        return env\n\n    FastES(make_env)"
    )


def _cannot_be_rebuilt(
    what: str, reason: Exception, nor: str = "", example: str = "MyWrapper(gymnasium.make('CartPole-v1'))"
) -> ValueError:
    return ValueError(
        f"the {what} cannot be rebuilt ({reason}){nor}, as workers need to: pass a function that builds it instead, such as "
        f"FastES(lambda: {example})"
    )


def _make(spec: EnvSpec, kwargs: Mapping[str, Any]) -> Env:
    spec = copy.deepcopy(spec)
    spec.disable_env_checker = True
    try:
        return gymnasium.make(spec, **own(kwargs))
    except (AttributeError, ValueError, ModuleNotFoundError) as error:
        if advice := entry_point_advice(spec):
            raise EnvironmentUnavailable(advice) from error
        if not isinstance(error, ImportError):
            raise
        raise package_missing(spec, error) from error
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise package_missing(spec, error) from error
    except (RuntimeError, gymnasium.error.Error) as error:  # ale-py raises both for an option that it does not know
        if not is_ale_env(spec):
            raise
        raise ValueError(f"{spec.id} cannot be made with {dict(own(kwargs)) or spec.kwargs}: {error}") from error
