"""The names under which statistics of a generation go to dashboards: those of Stable-Baselines3's logger where it has them."""

from __future__ import annotations

import math

from fastes.training.record import Record

# key, as SB3's dashboards and plot scripts read it -> field of the record
LOGGED = {
    "train/learning_rate": "learning_rate",
    "train/n_updates": "generation",
    "es/sigma": "sigma",
    "es/eval_return": "eval_return",
    "es/return_max": "return_max",
    "es/return_std": "return_std",
    "es/eval_rank": "eval_rank",
    "es/elite_fraction": "elite_fraction",
    "es/theta_norm": "theta_norm",
    "es/gradient_norm": "gradient_norm",
    "es/update_ratio": "update_ratio",
    "es/num_nonfinite": "num_nonfinite",
    "es/utilisation": "utilisation",
}
# what SB3's logger has of the last episodes or of the whole training, here of the generation, and what it lacks
_OF_A_GENERATION = {
    "rollout/ep_rew_mean": "return_mean",
    "rollout/ep_len_mean": "episode_length",
    "time/fps": "steps_per_second",
    "time/seconds": "seconds",
    "time/cpu_seconds": "cpu_seconds",
    "time/episodes": "episodes",
    "time/eval_timesteps": "eval_timesteps",
    "time/jobs_rerun": "jobs_rerun",
    "es/eval_std": "eval_std",
    "es/eval_at": "eval_at",
    "es/eval_generation": "eval_generation",
    "es/episode_cap": "episode_cap",
    "es/episodes_cut": "episodes_cut",
    "es/trial": "trial",
}
OF_REPORTERS = {**LOGGED, **_OF_A_GENERATION}  # all of a record but timesteps, the step


def row_of(record: Record) -> dict[str, float]:
    """Return a record's finite numbers by the names of OF_REPORTERS, without those of an evaluation if there was none."""
    row = {}
    for key, field in OF_REPORTERS.items():
        value = getattr(record, field)
        if math.isfinite(value) and (record.eval_generation or not key.startswith("es/eval_")):
            row[key] = value
    return row
