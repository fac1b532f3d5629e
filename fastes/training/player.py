"""One training's requests: its candidates and its evaluations, played on the pool of its model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from fastes.errors import WorkerError
from fastes.es.perturbations import Perturbations
from fastes.number_array import Float32, Int64
from fastes.pools.pool import Pool
from fastes.rollout.batch import Batch
from fastes.rollout.episode import EpisodeSettings
from fastes.rollout.job import Request
from fastes.training.archive import Snapshot
from fastes.training.evaluation import Evaluation, FinishedEvaluation, PendingEvaluation
from fastes.training.evaluator import Evaluator, RunningEvaluation
from fastes.training.record import Generation
from fastes.training.training import Training


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

        An adaptive population then adds pairs, in further requests, until its generation has enough steps.
        """
        await self._collect_outdated([pending.theta for pending in training.pending])
        pool, perturbations, settings = self._pool_for(training), training.ask(), training.settings
        evaluated = training.to_evaluate()[: settings.evaluations_at_once()]  # a loaded training may have more
        begun = [pending for pending in evaluated if self._running(pending) is None]
        own, noise_free = training.episode_settings()
        evaluations = [self._evaluation(training, pending, noise_free) for pending in begun]
        candidates = self._candidates(training, perturbations, own)
        # evaluations have no adaptive cap: if the generation waits for them, they should not be the last to start
        place = 0 if settings.eval_lag else len(evaluations)
        tickets = pool.submit_all([*evaluations[:place], candidates, *evaluations[place:]])
        ticket = tickets.pop(place)
        self._note(*zip(begun, tickets, evaluations, strict=True))
        training.draw_ahead()
        batch = await self.evaluator.result(ticket)
        if (population := training.population) is not None:
            while missing := population.missing_pairs(batch.lengths, training.progress_remaining):
                begin = perturbations.num_pairs
                perturbations = training.ask(begin + missing)
                more = self._pool_for(training).submit(self._candidates(training, perturbations, own, begin))
                batch = batch.joined(await self.evaluator.result(more))
        return Generation(perturbations, batch)

    async def warm_up(self, training: Training) -> Batch:
        """Play the first candidates for the statistics of observations; the first generation plays them again."""
        return await self._first_pairs(training, 0, training.num_pairs)

    async def measure(self, training: Training, most: float) -> Batch:
        """Play the first candidates as `warm_up` does, in requests of whole pairs, until there are `most` steps.

        The first request has the pairs that fit even if every episode has the greatest length, and at least one. Each further
        one has as many as have played so far, or as many as still fit by the mean length. So lengths alone decide.
        """
        episodes, pairs = training.episode_settings()[0], training.num_pairs
        longest = min(episodes.max_steps, training.episode_limit or episodes.max_steps)
        played = min(pairs, max(1, int(most / (2 * longest * episodes.per_candidate))))
        batch = await self._first_pairs(training, 0, played)
        while played < pairs and batch.steps < most:
            fitting = int((most - batch.steps) * played / max(batch.steps, 1))
            more = min(pairs - played, played, max(1, fitting))
            batch = batch.joined(await self._first_pairs(training, played, more))
            played += more
        return batch

    async def _first_pairs(self, training: Training, first: int, count: int) -> Batch:
        """Play pairs of the first candidates."""
        pool = self._pool_for(training)
        request = self._candidates(training, training.ask(first + count), training.episode_settings()[0], first)
        return await self.evaluator.result(pool.submit(request))

    def _pool_for(self, training: Training) -> Pool:
        """The pool, open and with the training's noise table: then it is known which place the training has in it."""
        pool = self.evaluator.start()
        pool.place_table(training.strategy.table, self.evaluator.place(self.number))
        return pool

    def _candidates(
        self, training: Training, perturbations: Perturbations, episodes: EpisodeSettings, first_pair: int = 0
    ) -> Request:
        """The request of a generation's candidates from a pair on."""
        return Request(
            perturbations.theta,
            training.normalizer,
            episodes,
            perturbations,
            first_pair=first_pair,
            training=self.evaluator.place(self.number),
            strategy=training.strategy,
            calls=training.env_calls.sent(),
        )

    # --- noise-free episodes ----------------------------------------------------------------------------------------

    def _running(self, pending: PendingEvaluation) -> RunningEvaluation | None:
        """An evaluation that plays already, which is known by its theta, the very array; None if it does not."""
        for each in self.evaluator.running:
            if each.theta is pending.theta and self.evaluator.pool.knows(each.ticket):  # an error may make the pool forget it
                return each
        return None

    def _evaluation(self, training: Training, pending: PendingEvaluation, episodes: EpisodeSettings) -> Request:
        """The request of an evaluation."""
        return Request(
            pending.theta,
            pending.normalizer,
            episodes,
            eval_seeds=training.eval_seeds(pending.generation),
            generation=pending.generation,
            training=self.evaluator.place(self.number),
            calls=training.env_calls.sent(pending.calls),
        )

    def _note(self, *begun: tuple[PendingEvaluation, int, Request]) -> None:
        """Note evaluations that were submitted, with their tickets and requests."""
        known = [each for each in self.evaluator.running if self.evaluator.pool.knows(each.ticket)]
        new = [RunningEvaluation(self.number, pending.theta, ticket, request) for pending, ticket, request in begun]
        self.evaluator.running = known + new

    def begin_evaluation(self, training: Training, pending: PendingEvaluation) -> RunningEvaluation:
        """Submit an evaluation, unless it plays already."""
        pool = self.evaluator.opened()
        if (running := self._running(pending)) is not None:
            return running
        request = self._evaluation(training, pending, training.episode_settings()[1])
        self._note((pending, pool.submit(request), request))
        return self.evaluator.running[-1]

    async def finished(self, training: Training, pending: PendingEvaluation) -> tuple[FinishedEvaluation, bool]:
        """Await an evaluation, which begins here if it does not play yet. Returns it, and `Batch.differs`."""
        running = self.begin_evaluation(training, pending)
        batch = await self.evaluator.noise_free(running.ticket, running.request)
        self.evaluator.running = [each for each in self.evaluator.running if each.ticket != running.ticket]
        evaluation = Evaluation(batch.returns, batch.lengths, running.request.eval_seeds)
        return FinishedEvaluation(pending, evaluation), batch.differs

    async def evaluate(
        self,
        training: Training,
        seeds: Int64,
        of: PendingEvaluation | Snapshot | None = None,
        limit: int | None = None,
    ) -> Evaluation:
        """Play noise-free episodes, one for each environment seed.

        Args:
            training: Its settings, and its parameters unless others are given.
            seeds: Environment seeds, int64 (n,).
            of: The parameters; None for the training's own.
            limit: Steps after which an episode ends; None for the training's.
        """
        policy = (training.strategy.theta, training.normalizer) if of is None else (of.theta, of.normalizer)
        settings = training.episode_settings()[1] if limit is None else EpisodeSettings(limit)
        return await self.evaluator.evaluate(*policy, seeds, settings, self.number)

    async def _collect_outdated(self, wanted: Sequence[Float32]) -> None:
        """Await running evaluations of any other theta, and drop their results: their slots have to be free."""
        over = [
            each.ticket
            for each in self.evaluator.running
            if each.number == self.number and not any(each.theta is theta for theta in wanted)
        ]
        if over:
            pool = self.evaluator.start()
            self.evaluator.running = [each for each in self.evaluator.running if each.ticket not in over]
            for ticket in filter(pool.knows, over):
                with contextlib.suppress(WorkerError):
                    await self.evaluator.result(ticket)
