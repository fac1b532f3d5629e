"""The fields of Settings as keywords, for editors and type checkers; tests/test_keywords.py compares both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastes.es.hyperparameters import MoreHyperparameters, Unpack
from fastes.es.schedules import ScheduleSetting

__all__ = ["ChangedSettings", "SettingsDict", "Unpack"]


class _Settings(MoreHyperparameters, total=False):
    """Those that are arguments of their own neither in FastES nor in FastES.load."""

    population_size: int
    sigma: ScheduleSetting
    total_timesteps: int
    target_return: float | str
    target_episodes: int
    policy_kwargs: dict[str, Any]
    generation_timesteps: int | str
    max_population_size: int
    noise_table_size: int
    starts: int
    starts_share: float
    starts_rounds: int
    starts_episodes: int
    starts_alternatives: dict[str, list[Any]]
    episodes_per_candidate: int | str
    eval_episodes: int
    eval_every: int
    eval_lag: int
    archive_size: int
    action_noise: float
    sample_actions: bool
    alive_bonus: ScheduleSetting
    max_episode_steps: int
    episode_cap: str
    episode_cap_start: int
    episode_cap_factor: float
    on_env_error: str
    step_timeout: float | str
    worker_max_episodes: int
    obs_columns: str | Sequence[int | str]
    normalize_obs: bool
    obs_warmup: bool
    obs_freeze_after: int
    obs_clip: float
    obs_std_floor: float


class SettingsDict(_Settings, total=False):
    """What FastES takes beside its own arguments; policy and learning_rate are among those."""

    population_scale: int


class ChangedSettings(_Settings, total=False):
    """What FastES.load takes beside its own arguments."""

    learning_rate: ScheduleSetting
