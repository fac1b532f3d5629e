"""The statistics of one generation, and what callbacks are told of it."""

from __future__ import annotations

from typing import NamedTuple

from fastes.rollout.job import Batch
from fastes.rollout.last_infos import Info


class Record(NamedTuple):
    """Statistics of one generation, in the order of progress.csv. Returns are plain sums of rewards.

    generation: updates so far, from 1.
    timesteps: environment steps of candidates so far.
    return_mean, return_max, return_std: over the candidates' finite returns.
    eval_generation: whose theta the evaluation is of that was told with this generation, as it was before that generation's
        update; 0 where none was told.
    eval_at: timesteps that this theta had been trained with.
    eval_return, eval_std: of its noise-free episodes; NaN where none were told.
    eval_rank: its place among the candidates of its own generation, 1 is above all; 0 where none was told.
    elite_fraction: fraction of candidates above the candidates' mean, 0 to 1.
    theta_norm, gradient_norm: Euclidean lengths of the parameters and of the estimated gradient.
    update_ratio: length of the step over that of the parameters.
    learning_rate, sigma: as the generation used them; the mean sigma where each parameter has its own.
    episode_length: mean steps of a training episode.
    episode_cap: steps at which training episodes are cut.
    episodes_cut: of the generation's candidates, by that cap or max_episode_steps and not by the environment.
    num_nonfinite: candidates whose return was no finite number.
    episodes: of candidates so far.
    eval_timesteps: environment steps of noise-free episodes so far.
    jobs_rerun: episodes played again because their worker was lost.
    seconds: wall time of the generation.
    steps_per_second: of the generation, and of the evaluation that was told with it.
    utilisation: share of the wall time that workers spent in the episodes of candidates, 0 to 1.
    """

    generation: int
    timesteps: int
    return_mean: float
    return_max: float
    return_std: float
    eval_generation: int
    eval_at: int
    eval_return: float
    eval_std: float
    eval_rank: int
    elite_fraction: float
    theta_norm: float
    gradient_norm: float
    update_ratio: float
    learning_rate: float
    sigma: float
    episode_length: float
    episode_cap: int
    episodes_cut: int
    num_nonfinite: int
    episodes: int
    eval_timesteps: int
    jobs_rerun: int
    seconds: float
    steps_per_second: float
    utilisation: float


class Report(NamedTuple):
    """A generation's statistics, and its candidates' episodes in job order.

    episodes: (return, length) of each; of several for a candidate all have their mean return.
    successes: 1.0, 0.0 or NaN.
    infos: what the infos of their last steps said; [] where nobody reads them.
    has_masks: whether one of these had an action mask.
    """

    record: Record
    episodes: list[tuple[float, int]]
    successes: list[float]
    infos: list[Info]
    has_masks: bool


def report_of(record: Record, batch: Batch) -> Report:
    """batch: of the generation's candidates."""
    each = batch.per_candidate
    episodes = [
        (mean_return, steps // each + (number < steps % each))
        for mean_return, steps in zip(batch.returns.ravel().tolist(), batch.lengths.ravel().tolist(), strict=True)
        for number in range(each)
    ]
    successes = [success for success in batch.successes.ravel().tolist() for _ in range(each)]
    return Report(record, episodes, successes, [info for infos in batch.infos for info in infos], batch.has_masks)
