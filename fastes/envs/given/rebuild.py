"""An environment that is given as an object is taken apart, so that any process can build the same again."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordVideo, TimeLimit

from fastes.envs.layers import DRAWING, LIVES, layers
from fastes.envs.likeness import alike
from fastes.errors import warn_user

Env = gymnasium.Env[Any, Any]


class Wrapping(NamedTuple):
    """A wrapper's class, and its arguments without the environment. Workers get a script's class itself, not its name."""

    kind: Callable[..., Env]
    kwargs: dict[str, Any]

    def around(self, env: Env) -> Env:
        """Return the environment in this wrapper."""
        return self.kind(env, **own(self.kwargs))

    @property
    def entry_point(self) -> str:
        """Name of the class with its module, as a spec has it."""
        return f"{self.kind.__module__}:{self.name}"

    @property
    def name(self) -> str:
        """Name of the class."""
        return getattr(self.kind, "__name__", type(self.kind).__name__)


def own(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of arguments, since an environment may change them; what cannot be copied is passed on."""
    copies = dict(kwargs)
    for name, value in kwargs.items():
        with contextlib.suppress(Exception):
            copies[name] = copy.deepcopy(value)
    return copies


def taken_apart(env: Env) -> tuple[EnvSpec, tuple[Wrapping, ...]]:
    """Return the spec for gymnasium.make, and the wrappers around the environment that it makes, innermost first.

    The spec of a wrapped environment would not do: it moves a TimeLimit inside all wrappers (outside a frame skip
    it counts other steps), and names the classes of wrappers, which a script's own workers cannot look up.

    Raises:
        ValueError: A wrapper does not record its arguments.
    """
    around: list[Env] = []
    inner = env
    for inner in layers(env):
        if isinstance(inner, (OrderEnforcing, PassiveEnvChecker)) or inner is env.unwrapped:
            break
        if type(inner) not in DRAWING:
            around.append(inner)
    if inner.spec is None:
        raise ValueError("it has no spec")
    spec = copy.deepcopy(inner.spec)
    limits = []
    while around and type(around[-1]) is TimeLimit:
        limits.append(_limit(around.pop()))
    spec.max_episode_steps, spec.additional_wrappers = min(limits, default=None), ()
    spec.kwargs.pop("render_mode", None)  # workers show nothing
    return spec, tuple(_wrapping(wrapper) for wrapper in reversed(around))


def registered_wrappings(spec: EnvSpec) -> tuple[Wrapping, ...]:
    """Return the wrappers that an id was registered with; () if Gymnasium cannot make one, and will say why."""
    specs = spec.additional_wrappers
    try:
        kinds: list[Any] = [load_env_creator(each.entry_point) for each in specs]
    except (ImportError, AttributeError):
        return ()
    if any(each.kwargs is None for each in specs):
        return ()
    return tuple(Wrapping(kind, dict(each.kwargs or {})) for kind, each in zip(kinds, specs, strict=True))


def without_wrappers(spec: EnvSpec) -> EnvSpec:
    """Return a copy of a spec that makes the environment inside its wrappers."""
    bare = copy.deepcopy(spec)
    bare.additional_wrappers = ()
    return bare


def _wrapping(wrapper: Env) -> Wrapping:
    kind = type(wrapper)
    recorded = getattr(wrapper, "_saved_kwargs", None) if isinstance(wrapper, RecordConstructorArgs) else None
    if recorded is None:
        raise ValueError(
            f"the wrapper {kind.__name__} does not record its arguments with gymnasium.utils.RecordConstructorArgs"
        )
    several = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    _, *parameters = inspect.signature(kind).parameters.values()
    for parameter in parameters:
        if parameter.kind not in several and parameter.name not in recorded:
            raise ValueError(f"the wrapper {kind.__name__} does not record its argument {parameter.name!r}")
    return Wrapping(kind, {name: value for name, value in recorded.items() if name != "env"})


def as_code(env: Env) -> str:
    """Return how a script may build an environment: gymnasium.make in its wrappers, whose arguments are left out."""
    code = f"gymnasium.make({env.spec.id!r})" if env.spec is not None else f"{type(env.unwrapped).__name__}()"
    for layer in reversed(list(layers(env))):
        if layer is not env.unwrapped and not isinstance(layer, (OrderEnforcing, PassiveEnvChecker, TimeLimit)):
            code = f"{type(layer).__name__}({code})"
    return code


def check_same(given: Env, rebuilt: Env) -> None:
    """Raise ValueError if an environment that was rebuilt differs visibly from the given one: in its layers or spaces."""
    if chain(given) != chain(rebuilt):
        raise ValueError(f"its spec makes {rebuilt} instead")
    for name in ("observation_space", "action_space"):
        if not alike(getattr(given, name), getattr(rebuilt, name)):
            raise ValueError(f"its spec makes one with {name} {getattr(rebuilt, name)} instead of {getattr(given, name)}")


def chain(env: Env) -> list[tuple[str, int]]:
    """Return classes and limits of the layers, innermost first, without checkers and drawers; neighbouring limits are one."""
    found: list[tuple[str, int]] = []
    for layer in reversed(list(layers(env))):
        if type(layer) in (PassiveEnvChecker, *DRAWING):
            continue
        name = f"{type(layer).__module__}.{type(layer).__qualname__}"
        limit = _limit(layer) if type(layer) is TimeLimit else 0
        if limit and found[-1][0] == name:
            limit = min(limit, found.pop()[1])
        found.append((name, limit))
    return found


def _limit(layer: Env) -> int:
    return int(layer._max_episode_steps)  # type: ignore[attr-defined]


# --- wrappers of which each worker would have its own ---------------------------------------------------------------


def without_monitor(env: Env) -> tuple[Env, str | None, tuple[str, ...]]:
    """Return the environment inside SB3's Monitors, the file that these write, and their info_keywords."""
    inner, monitors = _inside_monitors(env)
    files = [monitor.results_writer.file_handler.name for monitor in monitors if monitor.results_writer is not None]
    return inner, files[-1] if files else None, _keywords_of(monitors)


def unwatched(env: Env) -> tuple[Env, tuple[str, ...]]:
    """Return the environment that a function has made, inside SB3's Monitors, and the info_keywords of these.

    Their files are closed, with a warning: each worker's Monitor would overwrite the rows of the others.
    """
    inner, monitors = _inside_monitors(env)
    for writer in (monitor.results_writer for monitor in monitors if monitor.results_writer is not None):
        warn_user(
            f"the file {writer.file_handler.name} of the Monitor stays empty: each worker builds one of its own. Give the "
            "environment itself, FastES(Monitor(env, file)), or the callback fastes.reports.monitor_files.MonitorFile(file)",
            UserWarning,
        )
        writer.close()
    return inner, _keywords_of(monitors)


def _inside_monitors(env: Env) -> tuple[Env, list[Any]]:
    """Return the environment inside SB3's Monitors, which only watch, and these, outermost first."""
    monitors: list[Any] = []
    while (type(env).__module__, type(env).__name__) == ("stable_baselines3.common.monitor", "Monitor"):
        monitors.append(env)
        env = env.env  # type: ignore[attr-defined]
    return env, monitors


def _keywords_of(monitors: list[Any]) -> tuple[str, ...]:
    """Return the info_keywords of Monitors; warn of reset_keywords."""
    for name in (name for monitor in monitors for name in monitor.reset_keywords):
        warn_user(
            f"Monitor(reset_keywords=...) has {name!r}, which no file and no info will have: FastES resets environments with a "
            "seed alone. Leave it out, or give the value in info and name it in info_keywords",
            UserWarning,
        )
    return tuple(dict.fromkeys(name for monitor in monitors for name in monitor.info_keywords))


def number_videos(env: Env, index: int) -> None:
    """Give Gymnasium's RecordVideo names of files that are not taken: it counts the episodes of each worker from 0.

    Files of workers other than the first have their number. If there are videos of that name already, from an environment that
    this one replaces, a further number follows.
    """
    for layer in layers(env):
        if isinstance(layer, RecordVideo):
            name = f"{layer.name_prefix}-worker-{index}" if index else layer.name_prefix
            others = (f"{name}-{number}" for number in itertools.count(2))
            layer.name_prefix = next(
                free for free in itertools.chain([name], others) if not _has_videos(layer.video_folder, free)
            )


def _has_videos(folder: str, name: str) -> bool:
    files = os.listdir(folder) if os.path.isdir(folder) else []
    return any(file.startswith((f"{name}-episode-", f"{name}-step-")) for file in files)


def check_for_workers(env: Env, n_workers: int | None) -> None:
    """Check an environment of which every worker will build one, and warn of wrappers whose state differs in each.

    Args:
        env: The environment.
        n_workers: The number of workers; 0 for none.

    Raises:
        ValueError: It would open a window in each worker.
    """
    if n_workers != 0 and getattr(env, "render_mode", None) == "human":
        raise ValueError(
            "the function that builds the environment makes render_mode='human', and each worker would open a window: leave "
            "render_mode out, and watch the trained policy (fastes play), or use n_workers=0"
        )
    for layer in layers(env):
        if type(layer).__name__ == "EpisodicLifeEnv":
            warn_user(LIVES, UserWarning)
        if getattr(layer, "update_running_mean", False) is True:
            warn_user(
                f"the wrapper {type(layer).__name__} keeps statistics from one episode to the next, each worker its own: "
                "results depend on the number of workers, and checkpoints do not hold them. Leave it out: FastES normalises "
                "observations itself (normalize_obs) and compares returns by rank or in units of their std",
                UserWarning,
            )
