"""Made by docs/scripts/make_keywords.py from the fields of the settings: do not edit."""

from collections.abc import Sequence
from typing import Any, TypedDict

from typing_extensions import Unpack as Unpack

from fastes.es.fitness_shaping import ShapingFunction
from fastes.es.optimizers import OptimizerFactory
from fastes.es.schedules import ScheduleSetting

class SettingsDict(TypedDict, total=False):
    population_size: int
    sigma: ScheduleSetting
    sigma_adaptation: str
    sigma_learning_rate: float
    optimizer: str | OptimizerFactory
    momentum: float
    beta2: float
    max_speed: float
    weight_decay: float
    shaping: str | ShapingFunction
    top_fraction: float
    perturbed_fraction: float
    total_timesteps: int
    target_return: float | str
    target_episodes: int
    policy_kwargs: dict[str, Any]
    generation_timesteps: int | str
    max_population_size: int
    noise_table_size: int
    trials: int
    rungs: int
    trials_fraction: float
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
    native: str | bool
    obs_columns: str | Sequence[int | str]
    normalize_obs: bool
    obs_warmup: bool
    obs_freeze_after: int
    obs_clip: float
    obs_std_floor: float
    population_scale: int

class ChangedSettings(TypedDict, total=False):
    population_size: int
    sigma: ScheduleSetting
    sigma_adaptation: str
    sigma_learning_rate: float
    learning_rate: ScheduleSetting
    optimizer: str | OptimizerFactory
    momentum: float
    beta2: float
    max_speed: float
    weight_decay: float
    shaping: str | ShapingFunction
    top_fraction: float
    perturbed_fraction: float
    total_timesteps: int
    target_return: float | str
    target_episodes: int
    policy_kwargs: dict[str, Any]
    generation_timesteps: int | str
    max_population_size: int
    noise_table_size: int
    trials: int
    rungs: int
    trials_fraction: float
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
    native: str | bool
    obs_columns: str | Sequence[int | str]
    normalize_obs: bool
    obs_warmup: bool
    obs_freeze_after: int
    obs_clip: float
    obs_std_floor: float
