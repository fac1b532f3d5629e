"""The pool without processes, for debugging and for notebooks."""

from __future__ import annotations

import traceback

import numpy as np
import numpy.typing as npt

from fastes.errors import WorkerError
from fastes.noise import Perturbations
from fastes.normalizer import ObsNormalizer
from fastes.parallel.jobs import Batch, JobRunner, PoolSpec, Round, collect, describe_job, publish
from fastes.parallel.shm import Block
from fastes.rollout import EpisodeSettings


class SerialPool:
    """Runs the same jobs as ProcessPool, one after the other, in this process."""

    n_workers = 0

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.block = Block(spec.layout(0))
        self.block.close()
        self._runner: JobRunner | None = None
        self._rounds = 0

    @property
    def noise(self) -> npt.NDArray[np.float32]:
        """Memory for the noise table, float32 (table_size,)."""
        return self.block.noise

    def start(self) -> None:
        """Nothing to start: the environment is built by the first `evaluate`."""

    def evaluate(
        self,
        theta: npt.NDArray[np.float32],
        perturbations: Perturbations | None,
        normalizer: ObsNormalizer,
        eval_seeds: npt.NDArray[np.int64],
        training: EpisodeSettings,
        evaluation: EpisodeSettings,
    ) -> Batch:
        """See ProcessPool.evaluate."""
        jobs = publish(self.block, perturbations, theta, normalizer, eval_seeds)
        if self._runner is None:
            self._runner = JobRunner(self.spec.make_env(), self.spec, self.block)
        self._rounds += 1
        sigma, generation = (perturbations.sigma, perturbations.generation) if perturbations else (0.0, -1)
        round_ = Round(self._rounds, len(jobs), generation, sigma, normalizer.clip, training, evaluation)
        self._runner.begin(round_)
        for job in jobs.tolist():
            try:
                self._runner.run(job, round_)
            except Exception as error:
                seed = self._runner.running_seed
                where = f"generation {generation}, {describe_job(job, self.spec.num_pairs)}, env seed {seed}"
                trace = "".join(traceback.format_exception(error))
                raise WorkerError(
                    f"{type(error).__name__}: {error}\n[in the environment, {where}]\n\n{trace}",
                    generation,
                    job,
                    seed,
                ) from error
        return collect(self.block, jobs, 0)

    def close(self) -> None:
        """Close the environment. The pool can be used again."""
        if self._runner is not None:
            self._runner.env.close()
            self._runner = None
