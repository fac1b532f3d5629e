"""One training of the study of defaults, in this process: `python -m benchmarks.learning.studies.default_run JSON`."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.child_process import answer_once
from benchmarks.learning.runs.clock import ended_cpu_seconds
from benchmarks.learning.runs.contestant import fingerprint
from benchmarks.machine import cpu_model, versions
from fastes import FastES

EPISODES = 20


class Result(NamedTuple):
    """A line of the study's CSV: a training to the end of its budget, and what its last parameters are worth.

    alternative: its name when it was run. settings: their fingerprint, which says whether the training is done.
    timesteps: the budget. steps: environment steps that were taken, evaluation's, too.
    score, std, worst: of the returns of EPISODES noise-free episodes, on seeds that all trainings of the task share.
    cpu: seconds, evaluation included.
    """

    env: str
    alternative: str
    settings: str
    seed: int
    timesteps: int
    score: float
    std: float
    worst: float
    steps: int
    cpu: float
    machine: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.env, self.settings, self.seed, self.timesteps


def train(env: str, alternative: str, preset: str, changes: dict[str, Any], seed: int, timesteps: int) -> Result:
    """A preset with changes, trained to the end of the budget on one core, whatever the target."""
    started = ended_cpu_seconds()
    with FastES(env, preset=preset, n_workers=0, seed=seed, target_return="none", **changes) as model:
        settings = fingerprint(model.settings)  # of several starts the best one's take their place
        model.learn(timesteps)
        steps = model.num_timesteps + model.eval_timesteps
        found = model.evaluate(EPISODES)
    statistics = float(found.mean), float(found.std), float(min(found.returns))
    cpu = round(ended_cpu_seconds() - started, 1)
    return Result(env, alternative, settings, seed, timesteps, *statistics, steps, cpu, f"{cpu_model()}; {versions()}")


if __name__ == "__main__":
    answer_once(lambda given: train(**given)._asdict())
