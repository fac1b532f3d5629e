"""FastES as an algorithm of the Zoo, which gives it a VecEnv, and schedules as objects."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from fastes import model
from fastes.agent import CallbackArgument
from fastes.envs.source import Env, EnvSource, make_env_source
from fastes.envs.vector.sb3_vec_env import is_vec_env, keywords_of
from fastes.errors import FastESError
from fastes.policies.policy_keywords import HIDDEN_KEYS
from fastes.reports.callbacks import Callback
from fastes.reports.monitor_files import MonitorFile
from fastes.settings.preset_loader import DEFAULT
from fastes.settings.recipes import PLAIN
from fastes.settings.settings import SCHEDULES
from fastes.zoo.hyperparams import convert, sample

_FACTORY = "_fastes_factory"  # attribute of a VecEnv
_TWO_NUMBERS = re.compile(r"(lin|exp)_[^_]+_[^_]+")
_MAKES_SCHEDULES = "_preprocess_schedules"  # method of the Zoo's ExperimentManager


def register(name: str) -> None:
    """Make FastES an algorithm of the Zoo in this process, under a name: to train, load, and tune.

    The Zoo has no plugins. Its tables are changed in place, since its modules have imported them by name.
    """
    from rl_zoo3 import exp_manager
    from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER, HYPERPARAMS_SAMPLER
    from rl_zoo3.utils import ALGOS

    if name in ALGOS:
        return
    ALGOS[name] = FastES
    HYPERPARAMS_SAMPLER[name] = sample
    HYPERPARAMS_CONVERTER[name] = convert
    exp_manager.make_vec_env = remembering(exp_manager.make_vec_env)
    if makes_schedules := getattr(exp_manager.ExperimentManager, _MAKES_SCHEDULES, None):
        setattr(exp_manager.ExperimentManager, _MAKES_SCHEDULES, staticmethod(leaving_two_numbers(makes_schedules)))


class FastES(model.FastES):
    """fastes.FastES, made from the Zoo's VecEnv and hyper-parameters.

    Args:
        env: The Zoo's VecEnv.
        policy: See fastes.FastES.
        n_workers: None for one process per usable core, which builds the environments if that is possible; otherwise, and for
            0, the VecEnv itself is driven.
        preset: Name of the settings to start from: 'default', so that an entry of a hyper-parameter file is complete.
        named: Other arguments of fastes.FastES.
    """

    _given: Any = None

    def __init__(
        self, env: Any, policy: Any = None, *, n_workers: int | None = None, preset: str = DEFAULT, **named: Any
    ) -> None:
        source = single_environments(env, n_workers)
        named.setdefault("info_keywords", keywords_of(env) if is_vec_env(env) else ())
        if preset == PLAIN and _asks_for_network(policy, named):
            policy = "MlpPolicy"
        super().__init__(source or env, policy, n_workers=n_workers, preset=preset, **plain_schedules(named))
        self._keep(env, source)

    def _keep(self, env: Any, source: EnvSource | None) -> None:
        """Remember the VecEnv that the Zoo has given, if environments of it are used."""
        self._given = env if source is not None or self.source.vector_env is not None else None

    @classmethod
    def load(cls, path: Any, env: Any = None, n_workers: int | None = None, **named: Any) -> FastES:
        """See fastes.FastES.load. The Zoo adds hyper-parameters if training is to continue."""
        named.pop("preset", None)
        named.setdefault("info_keywords", keywords_of(env) if is_vec_env(env) else ())
        source = single_environments(env, n_workers)
        model = super().load(path, source or env, n_workers, **plain_schedules(named))
        model._keep(env, source)
        return model

    @property
    def env(self) -> Any:
        """The VecEnv that was given, which its owner closes; without one see fastes.FastES.env."""
        return super().env if self._given is None else self._given

    @env.deleter
    def env(self) -> None:
        self._given = self._env = None

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """See fastes.FastES.set_env."""
        source = single_environments(env, self.pool_choice.n_workers)
        super().set_env(source or env, force_reset)
        self._keep(env, source)

    @property
    def n_envs(self) -> int:
        """Number of environments in the VecEnv that was given: the Zoo divides periods of callbacks by it."""
        return int(self._given.num_envs) if self._given is not None else super().n_envs

    def get_env(self) -> Any:
        """The VecEnv that was given."""
        return super().get_env() if self._given is None else self._given

    def learn(
        self, total_timesteps: float | None = None, callback: CallbackArgument = None, *arguments: Any, **named: Any
    ) -> FastES:
        """See fastes.FastES.learn. It ends the workers, since the Zoo closes only `env`.

        ValueError and AssertionError become FastESError: a study of the Zoo would hide them as trials that diverged.
        """
        callbacks = [monitor_file(self._given), callback] if self.source.vector_env is None else callback
        try:
            super().learn(total_timesteps, callbacks, *arguments, **named)
        except (ValueError, AssertionError) as error:
            raise FastESError(f"{type(error).__name__}: {error}") from error
        finally:
            self.evaluator.close()
        return self


def _asks_for_network(policy: Any, named: Mapping[str, Any]) -> bool:
    """Whether -params name hidden layers for the linear policy of the plain recipe's entry."""
    return policy in (None, "LinearPolicy") and any(key in (named.get("policy_kwargs") or {}) for key in HIDDEN_KEYS)


def monitor_file(vec_env: Any) -> Callback:
    """Return a callback that writes the monitor file that the Zoo's plots read, which its unused first environment has."""
    writer = vec_env.get_attr("results_writer")[0] if vec_env is not None else None
    return Callback() if writer is None else MonitorFile(writer.file_handler.name)


def leaving_two_numbers(preprocess: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Wrap the method that makes the Zoo's schedules, which have one number: a schedule between two stays as it is."""

    @functools.wraps(preprocess)
    def ready(hyperparams: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in hyperparams.items() if name in SCHEDULES and _TWO_NUMBERS.fullmatch(str(value))}
        return {**preprocess({name: value for name, value in hyperparams.items() if name not in kept}), **kept}

    return ready


def plain_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """Turn the Zoo's schedule objects back into numbers and 'lin_A', which checkpoints can hold."""
    changed = dict(settings)
    for name in SCHEDULES:
        kind = type(settings.get(name)).__name__
        if kind == "ConstantSchedule":
            changed[name] = float(settings[name](1.0))
        elif kind == "SimpleLinearSchedule":
            changed[name] = f"lin_{float(settings[name](1.0))!r}"
    return changed


def remembering(make_vec_env: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap SB3's make_vec_env so that its DummyVecEnvs know how to build one of their environments without Monitor.

    A VecEnv with `monitor_kwargs` does not, because its monitor files need the environment's infos.
    """

    @functools.wraps(make_vec_env)
    def make(env_id: Any, *arguments: Any, **named: Any) -> Any:
        vec_env = make_vec_env(env_id, *arguments, **named)
        if type(vec_env).__name__ == "DummyVecEnv" and not arguments and not named.get("monitor_kwargs"):
            factory = functools.partial(build_one, env_id, named.get("env_kwargs"), named.get("wrapper_class"))
            vars(vec_env)[_FACTORY] = factory
        return vec_env

    return make


def build_one(
    env_id: str | Callable[..., Env], env_kwargs: Mapping[str, Any] | None, wrapper: Callable[[Env], Env] | None
) -> Env:
    """Build an environment as make_vec_env does, without Monitor, Gymnasium's checker and a window."""
    kwargs = {key: value for key, value in (env_kwargs or {}).items() if key != "render_mode"}
    make = functools.partial(gymnasium.make, env_id) if isinstance(env_id, str) else env_id
    env: Env = make(**kwargs, disable_env_checker=True)
    return env if wrapper is None else wrapper(env)


def single_environments(vec_env: Any, n_workers: int | None = None) -> EnvSource | None:
    """Return the source of environments like those of a VecEnv.

    Returns:
        None without workers, and for a VecEnv with wrappers or processes of its own, which is driven itself.
    """
    factory = getattr(vec_env, "__dict__", {}).get(_FACTORY)
    if factory is None or n_workers == 0:
        return None
    source = make_env_source(vec_env)
    return replace(source, factory=None if source.rebuilds else factory, vector_env=None)
