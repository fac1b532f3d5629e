"""The statistics of one generation, and what callbacks are told of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.es.perturbations import Perturbations
from fastes.es.portable_math import mean_and_std
from fastes.es.strategy import Update
from fastes.rollout.batch import Batch
from fastes.rollout.last_infos import Info
from fastes.system.html_tables import html_table
from fastes.training.counters import Counters
from fastes.training.evaluation import FinishedEvaluation


class Generation(NamedTuple):
    """A generation's perturbations and results."""

    perturbations: Perturbations
    batch: Batch


class Stretch(NamedTuple):
    """The time from a training's last generation to this one, and what the whole pool has done in it.

    Attributes:
        seconds: Wall time.
        steps: Environment steps of the generations that were committed, and of their evaluations.
        busy_seconds: Time that workers spent in the episodes of these generations' candidates.
    """

    seconds: float
    steps: int
    busy_seconds: float


class Pace:
    """Measures how fast a pool works while several trainings commit generations in turn.

    Args:
        began: time.perf_counter() as they begin.
    """

    def __init__(self, began: float) -> None:
        self._total = self._began = Stretch(began, 0, 0.0)  # of all trainings; `seconds` is the clock's
        self._last: dict[int, Stretch] = {}  # the totals at each training's last generation

    def after(self, number: int, now: float, steps: int, busy_seconds: float) -> Stretch:
        """Note a generation of a training that is committed.

        Args:
            number: The training's.
            now: time.perf_counter().
            steps: Environment steps of the generation, and of the evaluation that comes with it.
            busy_seconds: Time that workers spent in its candidates' episodes.

        Returns:
            The time since this training's last generation.
        """
        before, total = self._last.get(number, self._began), self._total
        self._last[number] = self._total = Stretch(now, total.steps + steps, total.busy_seconds + busy_seconds)
        return Stretch(now - before.seconds, self._total.steps - before.steps, self._total.busy_seconds - before.busy_seconds)


class Record(NamedTuple):
    """Statistics of one generation, in the order of progress.csv. Returns are plain sums of rewards.

    generation: updates so far, from 1.
    timesteps: environment steps of candidates so far.
    return_mean, return_max, return_std: over the candidates' finite returns.
    eval_generation: the generation whose theta, before its update, the reported evaluation played; 0 if none was reported.
    eval_at: timesteps that this theta had been trained with.
    eval_return, eval_std: of its noise-free episodes; NaN if none was reported.
    eval_rank: its place among the candidates of its own generation, 1 is above all; 0 if none was reported.
    elite_fraction: fraction of candidates above the candidates' mean, 0 to 1.
    theta_norm, gradient_norm: Euclidean lengths of the parameters and of the estimated gradient.
    update_ratio: length of the step over that of the parameters.
    learning_rate, sigma: as the generation used them; the mean sigma if each parameter has its own.
    episode_length: mean steps of a training episode.
    episode_cap: steps at which training episodes are cut.
    episodes_cut: of the generation's candidates, by that cap or max_episode_steps and not by the environment.
    num_nonfinite: candidates whose return was no finite number.
    episodes: of candidates so far.
    eval_timesteps: environment steps of noise-free episodes so far.
    jobs_rerun: episodes played again because their worker was lost.
    seconds: wall time since this training's last generation.
    cpu_seconds: CPU time so far, of this process and the workers, for all trials; NaN if the earlier part is not known.
    steps_per_second: in this time, of the generations of all trials and the evaluations that came with them.
    utilisation: share of this time that workers spent in the episodes of all trials' candidates, 0 to 1.
    trial: the training that it is of, from 1, among several `trials`; timesteps, episodes and eval_timesteps are those of all.
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
    cpu_seconds: float
    steps_per_second: float
    utilisation: float
    trial: int

    def _repr_html_(self) -> str:
        """Return a table, which a notebook shows."""
        rows = ((name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}") for name, value in self._asdict().items())
        return html_table(f"Generation {self.generation}", rows)


def make_record(
    generation: Generation,
    finished: FinishedEvaluation | None,
    update: Update,
    counters: Counters,
    *,
    others: int,
    episode_cap: int,
    n_workers: int,
    stretch: Stretch,
    cpu_seconds: float,
    trial: int,
) -> Record:
    """The statistics of a generation.

    Args:
        generation: Its perturbations and results.
        finished: The evaluation that comes with it.
        update: The strategy's step.
        counters: The tallies of all trials after it.
        others: Timesteps of the other trials until then.
        episode_cap: Steps at which the next generation's training episodes are cut.
        n_workers: Processes that play, for their utilisation.
        stretch: The time since this training's last generation.
        cpu_seconds: CPU time of all trials so far.
        trial: The training's number, from 1.
    """
    perturbations, batch = generation
    finite, size, unknown = batch.finite_returns, batch.returns.size, math.nan
    values = finite.tolist()
    mean, std = mean_and_std(values)
    return Record(
        generation=perturbations.generation + 1,
        timesteps=counters.num_timesteps,
        return_mean=mean,
        return_max=max(values, default=unknown),
        return_std=std,
        eval_generation=finished.pending.generation + 1 if finished else 0,
        eval_at=finished.pending.timesteps + others if finished else 0,
        eval_return=finished.evaluation.mean if finished else unknown,
        eval_std=finished.evaluation.std if finished else unknown,
        eval_rank=finished.rank if finished else 0,
        elite_fraction=float(np.count_nonzero(finite > mean)) / size,
        theta_norm=update.theta_norm,
        gradient_norm=update.gradient_norm,
        update_ratio=update.update_ratio,
        learning_rate=update.learning_rate,
        sigma=perturbations.sigma,
        episode_length=batch.steps / (size * batch.per_candidate),
        episode_cap=episode_cap,
        episodes_cut=int(batch.cuts.sum()),
        num_nonfinite=size - finite.size,
        episodes=counters.num_episodes,
        eval_timesteps=counters.eval_timesteps,
        jobs_rerun=batch.rerun,
        seconds=stretch.seconds,
        cpu_seconds=cpu_seconds,
        steps_per_second=_share(stretch.steps, stretch.seconds),
        utilisation=min(_share(stretch.busy_seconds, max(n_workers, 1) * stretch.seconds), 1.0),
        trial=trial,
    )


def _share(amount: float, seconds: float) -> float:
    """amount / seconds; NaN if the clock stood still or went back, as in a test or a virtual machine."""
    return amount / seconds if seconds > 0.0 else math.nan


class Report(NamedTuple):
    """A generation's statistics, and the results of its candidates.

    Attributes:
        record: The statistics.
        returns, lengths, success_rates, per_candidate: As `returns`, `lengths`, `successes` and `per_candidate` of Batch.
        infos_of_candidates: As `infos` of Batch.
        has_masks: Whether one of these infos had an action mask.
    """

    record: Record
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    success_rates: npt.NDArray[np.float64]
    per_candidate: int
    infos_of_candidates: tuple[tuple[Info, ...], ...]
    has_masks: bool

    @property
    def num_finite(self) -> int:
        """The number of episodes whose return is finite."""
        return (self.returns.size - self.record.num_nonfinite) * self.per_candidate

    @property
    def episodes(self) -> list[tuple[float, int]]:
        """(return, length) of each episode in job order; of several for a candidate all have their mean return."""
        each = self.per_candidate
        episodes = list(zip(self.returns.ravel().tolist(), self.lengths.ravel().tolist(), strict=True))
        if each == 1:
            return episodes
        return [(mean, steps // each + (number < steps % each)) for mean, steps in episodes for number in range(each)]

    @property
    def successes(self) -> list[float]:
        """1.0, 0.0 or NaN of each episode."""
        return [success for success in self.success_rates.ravel().tolist() for _ in range(self.per_candidate)]

    @property
    def infos(self) -> list[Info]:
        """The scalars in the last info of each episode in job order; [] if no infos were asked for."""
        return [info for infos in self.infos_of_candidates for info in infos]


def report_of(record: Record, batch: Batch) -> Report:
    """batch: of the generation's candidates."""
    return Report(
        record=record,
        returns=batch.returns,
        lengths=batch.lengths,
        success_rates=batch.successes,
        per_candidate=batch.per_candidate,
        infos_of_candidates=batch.infos,
        has_masks=batch.has_masks,
    )
