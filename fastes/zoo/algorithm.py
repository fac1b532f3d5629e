"""FastES as the Zoo holds an algorithm: it gets a VecEnv, and schedules as objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastes import model
from fastes.agent import CallbackArgument
from fastes.envs.vector.sb3_vec_env import is_vec_env, keywords_of
from fastes.errors import FastESError
from fastes.reports.callbacks import Callback
from fastes.reports.monitor_files import MonitorFile
from fastes.settings.preset_loader import DEFAULT, GENERAL, preset_for
from fastes.settings.settings import SCHEDULES
from fastes.zoo.environments import single_environments


class FastES(model.FastES):
    """fastes.FastES, made from the Zoo's VecEnv and hyper-parameters.

    env: the Zoo's VecEnv.
    n_workers: None lets FastES's own workers build its environments where they can, one a usable core, and else drives the
        VecEnv as it is; 0 drives it as it is.
    preset: the settings under the ones given; the default, so that an entry of a hyper-parameter file is all there is.

    The others: see fastes.FastES.
    """

    _given: Any = None

    def __init__(
        self, env: Any, policy: Any = None, *, n_workers: int | None = None, preset: str = DEFAULT, **named: Any
    ) -> None:
        source = single_environments(env) if n_workers != 0 else None
        named.setdefault("info_keywords", keywords_of(env) if is_vec_env(env) else ())
        if preset == GENERAL:
            policy, preset = _general_or_network(policy, named)
        super().__init__(source or env, policy, n_workers=n_workers, preset=preset, **plain_schedules(named))
        self._given = env if source is not None or self.source.vector_env is not None else None

    @classmethod
    def load(cls, path: Any, env: Any = None, n_workers: int | None = None, **named: Any) -> FastES:
        """See fastes.FastES.load; hyper-parameters may come with it, as for training that goes on."""
        named.pop("preset", None)
        named.setdefault("info_keywords", keywords_of(env) if is_vec_env(env) else ())
        source = single_environments(env) if env is not None and n_workers != 0 else None
        model: Any = super().load(path, source or env, n_workers, **plain_schedules(named))
        model._given = env if source is not None or model.source.vector_env is not None else None
        return model  # type: ignore[no-any-return]

    @property
    def env(self) -> Any:
        """The VecEnv that was given, which its owner closes; without one, see fastes.FastES.env."""
        return super().env if self._given is None else self._given

    @env.deleter
    def env(self) -> None:
        self._given = self._env = None

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """See fastes.FastES.set_env."""
        source = single_environments(env) if self.pool_choice.n_workers != 0 else None
        super().set_env(source or env, force_reset)
        self._given = env if source is not None or self.source.vector_env is not None else None

    @property
    def n_envs(self) -> int:
        """Environments in the VecEnv that was given: the Zoo divides periods of callbacks by them."""
        return int(self._given.num_envs) if self._given is not None else super().n_envs

    def get_env(self) -> Any:
        """The VecEnv that was given."""
        return super().get_env() if self._given is None else self._given

    def learn(
        self, total_timesteps: float | None = None, callback: CallbackArgument = None, *arguments: Any, **named: Any
    ) -> FastES:
        """See fastes.FastES.learn. Ends the workers: the Zoo closes nothing but `env`.

        ValueError and AssertionError come as FastESError: a study of the Zoo would hide them as trials that diverged, which
        trials of FastES do not.
        """
        callbacks = [monitor_file(self._given), callback] if self.source.vector_env is None else callback
        try:
            super().learn(total_timesteps, callbacks, *arguments, **named)
        except (ValueError, AssertionError) as error:
            raise FastESError(f"{type(error).__name__}: {error}") from error
        finally:
            self.evaluator.close()
        return self


def _general_or_network(policy: Any, named: Mapping[str, Any]) -> tuple[Any, str]:
    """Policy and preset of an entry with `general`, whose linear policy stays in it when -params ask for hidden layers."""
    linear = policy in (None, "LinearPolicy")
    preset = preset_for("", named if linear else {**named, "policy": policy})
    return (None if linear and preset == DEFAULT else policy), preset


def monitor_file(vec_env: Any) -> Callback:
    """What writes a line for each candidate where the Zoo's plots read, in place of the first environment, which is unused."""
    writer = vec_env.get_attr("results_writer")[0] if vec_env is not None else None
    return Callback() if writer is None else MonitorFile(writer.file_handler.name)


def plain_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the schedules that the Zoo has made of numbers and 'lin_A' as these again: checkpoints hold those."""
    changed = dict(settings)
    for name in SCHEDULES:
        kind = type(settings.get(name)).__name__
        if kind == "ConstantSchedule":
            changed[name] = float(settings[name](1.0))
        elif kind == "SimpleLinearSchedule":
            changed[name] = f"lin_{float(settings[name](1.0))!r}"
    return changed
