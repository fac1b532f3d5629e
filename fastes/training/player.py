"""One training's requests: its candidates and its evaluations, played on the pool of its model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fastes.errors import WorkerError
from fastes.es.perturbations import Perturbations
from fastes.rollout.batch import Batch
from fastes.rollout.job import Request
from fastes.training.archive import Snapshot
from fastes.training.evaluation import Evaluation, FinishedEvaluation, PendingEvaluation
from fastes.training.evaluator import Evaluator, Running
from fastes.training.record import Generation
from fastes.training.training import Training

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


class Player:
    """Makes a training's requests and awaits their results. It changes no training that it is given.

    Args:
        evaluator: Has the pool.
        number: The training's, among those of the model.
    """

    def __init__(self, evaluator: Evaluator, number: int = 0) -> None:
        self.evaluator, self.number = evaluator, number

    # --- candidates -------------------------------------------------------------------------------------------------

    async def generation(self, training: Training) -> Generation:
        """Play the running generation's candidates, and begin with theta's evaluation, which may play on afterwards.

        While an adaptive population misses pairs, these are played beside those that were there.
        """
        await self._keep_evaluations([pending.theta for pending in training.pending])
        perturbations, lags = training.ask(), training.settings.eval_lag
        if not lags:  # what has no adaptive cap, and is waited for, should not be the last to start
            self._begin_evaluations(training)
        ticket = self._begin_candidates(training, perturbations)
        if lags:
            self._begin_evaluations(training)
        training.draw_ahead()
        batch = await self.evaluator.result(ticket)
        if (population := training.population) is not None:
            while missing := population.missing_pairs(batch.lengths, training.progress_remaining):
                first = perturbations.num_pairs
                perturbations = training.ask(first + missing)
                batch = batch.joined(await self.evaluator.result(self._begin_candidates(training, perturbations, first)))
        return Generation(perturbations, batch)

    async def warm_up(self, training: Training) -> Batch:
        """Play the first candidates for the statistics of observations; the first generation plays them again."""
        return await self.evaluator.result(self._begin_candidates(training, training.ask()))

    def _begin_candidates(self, training: Training, perturbations: Perturbations, first_pair: int = 0) -> int:
        """Submit a generation's candidates from a pair on. Returns the ticket."""
        pool, place = self.evaluator.start(), self.evaluator.place(self.number)
        pool.place_table(training.strategy.table, place)
        request = Request(
            perturbations.theta,
            training.normalizer,
            training.episode_settings()[0],
            perturbations,
            first_pair=first_pair,
            training=place,
            strategy=training.strategy,
            calls=training.env_calls.sent(),
        )
        return pool.submit(request)

    # --- noise-free episodes ----------------------------------------------------------------------------------------

    def _begin_evaluations(self, training: Training) -> None:
        for pending in training.to_evaluate()[: training.settings.evaluations_at_once()]:  # a loaded training may have more
            self.begin_evaluation(training, pending)

    def begin_evaluation(self, training: Training, pending: PendingEvaluation) -> Running:
        """Submit an evaluation, unless it plays already: it is known by its theta, the very array."""
        pool = self.evaluator.opened()
        for each in self.evaluator.running:
            if each.theta is pending.theta and pool.knows(each.ticket):  # an error may make the pool forget it
                return each
        seeds = training.eval_seeds(pending.generation)
        request = Request(
            pending.theta,
            pending.normalizer,
            training.episode_settings()[1],
            eval_seeds=seeds,
            generation=pending.generation,
            training=self.evaluator.place(self.number),
            calls=training.env_calls.sent(pending.calls),
        )
        new = Running(self.number, pending.theta, pool.submit(request), seeds)
        self.evaluator.running = [*(each for each in self.evaluator.running if pool.knows(each.ticket)), new]
        return new

    async def finished(self, training: Training, pending: PendingEvaluation) -> FinishedEvaluation:
        """Await an evaluation, which begins here if it does not play yet."""
        running = self.begin_evaluation(training, pending)
        batch = await self.evaluator.result(running.ticket)
        self.evaluator.running = [each for each in self.evaluator.running if each.ticket != running.ticket]
        return FinishedEvaluation(pending, Evaluation(batch.returns, batch.lengths, running.seeds))

    async def evaluate(self, training: Training, seeds: Int64, of: PendingEvaluation | Snapshot | None = None) -> Evaluation:
        """Play noise-free episodes, one for each environment seed.

        Args:
            training: Its settings, and its parameters unless others are given.
            seeds: Environment seeds, int64 (n,).
            of: The parameters; None for the training's own.
        """
        policy = (training.strategy.theta, training.normalizer) if of is None else (of.theta, of.normalizer)
        return await self.evaluator.evaluate(*policy, seeds, training.episode_settings()[1], self.number)

    async def _keep_evaluations(self, wanted: Sequence[Float32]) -> None:
        """Discard running evaluations of any other theta: a training that was changed meanwhile does not need them."""
        over = [
            each
            for each in self.evaluator.running
            if each.number == self.number and not any(each.theta is theta for theta in wanted)
        ]
        if over:
            pool = self.evaluator.start()
            self.evaluator.running = [each for each in self.evaluator.running if not any(each is one for one in over)]
            for ticket in (each.ticket for each in over if pool.knows(each.ticket)):
                with contextlib.suppress(WorkerError):
                    await self.evaluator.result(ticket)
