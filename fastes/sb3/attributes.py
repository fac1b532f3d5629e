"""Attributes that scripts and callbacks read from SB3's algorithms: those that mean something here, and why others do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastes.es.schedules import make_schedule
from fastes.models.model import Model
from fastes.settings.foreign_names import ANSWERS
from fastes.settings.settings import setting_names

_NO_BUFFER = "ES keeps no transitions, only returns"
_NO_CRITIC = "ES trains one network and no critic: model.policy has its parameters"
_INTERNAL = "it is inside SB3's algorithms: subclass fastes.Callback, or write the loop with fastes.EvolutionStrategy"
_ABSENT = {
    **dict.fromkeys(("replay_buffer", "rollout_buffer", "save_replay_buffer", "load_replay_buffer"), _NO_BUFFER),
    **dict.fromkeys(("actor", "critic", "critic_target", "q_net", "q_net_target", "log_ent_coef"), _NO_CRITIC),
    **dict.fromkeys(("train", "collect_rollouts", "_setup_model", "_setup_learn", "_store_transition"), _INTERNAL),
    "action_noise": "SB3's is an object with a state; here it is the number model.settings.action_noise",
    "exploration_rate": "candidates explore by the noise on their parameters: model.settings.sigma",
}


class SB3Attributes(Model):
    """What of these a model has. Each follows the training; none can be set."""

    use_sde = False
    sde_sample_freq = -1
    _last_obs = None  # each episode begins with a reset, in its own environment: nothing is kept from the one before
    _last_original_obs = None
    _last_episode_starts = None
    stats_window_size: int
    logger_was_set: bool
    _timesteps_at_start: int

    @property
    def elapsed(self) -> float:
        """Seconds since `learn` was called."""
        raise NotImplementedError

    def get_vec_normalize_env(self) -> Any:
        """The VecNormalize of the VecEnv that was given."""
        raise NotImplementedError

    @property
    def policy_kwargs(self) -> dict[str, Any]:
        """The setting, a copy."""
        return dict(self.settings.policy_kwargs)

    @property
    def lr_schedule(self) -> Callable[[float], float]:
        """The step size as a function of the progress that remains, from 1 to 0."""
        return make_schedule("learning_rate", self.settings.learning_rate)

    @property
    def start_time(self) -> int:
        """When `learn` was called, in nanoseconds since 1970."""
        return time.time_ns() - int(1e9 * self.elapsed)

    @property
    def _total_timesteps(self) -> int:
        return self.budget

    @property
    def _num_timesteps_at_start(self) -> int:
        return self._timesteps_at_start

    @property
    def _current_progress_remaining(self) -> float:
        return max(0.0, 1.0 - self.num_timesteps / max(self.budget, 1))

    @property
    def _episode_num(self) -> int:
        return self.num_episodes

    @property
    def _n_updates(self) -> int:
        return self.generation

    @property
    def _stats_window_size(self) -> int:
        return self.stats_window_size

    @property
    def _custom_logger(self) -> bool:
        return self.logger_was_set

    @property
    def _vec_normalize_env(self) -> Any:
        return self.get_vec_normalize_env()

    if not TYPE_CHECKING:  # a type checker is to go on knowing the names

        def __getattr__(self, name: str) -> Any:
            if (reason := _reason(name)) is not None:
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: {reason}")
            return object.__getattribute__(self, name)  # the error that it was, of a property also


def _reason(name: str) -> str | None:
    """Why a model lacks an attribute that SB3's have; None for any other."""
    if name in setting_names() and name not in _ABSENT:
        return f"it is a setting, model.settings.{name}"
    return _ABSENT.get(name, ANSWERS.get(name, "").removesuffix(": leave it out") or None)
