"""The statistics of one generation."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """Statistics of one generation, in the order of progress.csv. Returns are plain sums of rewards.

    eval_return: mean of the noise-free episodes of theta as it was before the update. eval_rank: theta's place among the
    candidates, 1 is above all. elite_share: share of candidates above the candidates' mean. update_ratio: |step|/|theta|.
    episode_length: mean steps of a training episode. timesteps: steps of candidates so far; evaluation is counted in
    eval_timesteps. utilisation: share of the generation's wall time that workers spent in episodes.
    """

    generation: int
    timesteps: int
    return_mean: float
    return_max: float
    return_std: float
    eval_return: float
    eval_std: float
    eval_rank: int
    elite_share: float
    theta_norm: float
    gradient_norm: float
    update_ratio: float
    learning_rate: float
    sigma: float
    episode_length: float
    episode_cap: int
    num_nonfinite: int
    episodes: int
    eval_timesteps: int
    jobs_rerun: int
    seconds: float
    steps_per_second: float
    utilisation: float
