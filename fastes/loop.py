"""The loop of a training: ask, evaluate, tell, record, callbacks, stop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from functools import partial

from fastes.reports.callbacks import Callback
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.rollout.job import StepsPlayed
from fastes.sb3.interface import SB3Interface
from fastes.system.interrupts import interrupts_wait
from fastes.training.archive.race import episodes_of_race, run_race
from fastes.training.evaluation import Told
from fastes.training.evaluator import Evaluator
from fastes.training.generation import (
    Generation,
    confirm_target,
    evaluate,
    finish_evaluation,
    make_record,
    may_confirm,
    play_start,
    run_generation,
    warm_up,
)
from fastes.training.record import Record
from fastes.training.state import TrainingState


class Loop(SB3Interface):
    """The loop of `FastES.learn`. It awaits requests, so that several trainings can share a pool."""

    _odd: StatisticsWarnings
    _judged: tuple[TrainingState, TrainingState] | None = None  # how it was left then, and what it was judged to be

    async def _train(self, total: int, callbacks: Callback, ends_at: float = math.inf) -> None:
        """Generations until num_timesteps has reached total, the target return is confirmed, or a callback says stop.

        ends_at: time.monotonic() from which on no generation begins, but the first.
        """
        finished, stopped, late = time.perf_counter(), False, False
        self.out_of_time, self._judged, self.ends_at = False, None, ends_at
        self._pool_steps = self.evaluator.steps_played()
        while not stopped and not self.solved and self.num_timesteps < total and not late:
            await self._judge_start(callbacks)
            self._begin_starts_ahead()
            self._become(await warm_up(self.state, self.evaluator))
            generation = await run_generation(self.state, self.evaluator)  # ask and evaluate
            record, finished = await self._commit_generation(generation, finished, callbacks)  # tell and record
            self._note_episodes()
            stopped = callbacks.on_generation(self, record) is False
            self.state = self.state.reported()
            told = self.state.told_last[-1] if record.eval_generation else None
            self._odd.check(self.state, generation.perturbations.generation + 1, generation.batch, told)
            late = time.monotonic() >= ends_at
        if not self.solved:
            await self._drain_evaluations(callbacks)
        if self.num_timesteps >= total:
            await self._judge_start(callbacks)
            if not stopped and not self.solved:
                await self._race(callbacks)
        elif late and not stopped and not self.solved:
            self.out_of_time = True
            await self._judge_aside(callbacks)
        self._pool_steps = self.evaluator.steps_played()

    def _become(self, state: TrainingState) -> None:
        """Have a state that counts all that was played. In this order, a thread that asks meanwhile counts nothing twice."""
        self._pool_steps = self.evaluator.steps_played()
        self.state = state

    def _drop(self, steps: StepsPlayed) -> None:
        """They were played, and are part of no state."""
        so_far = self.dropped_steps
        self.dropped_steps = StepsPlayed(so_far.candidates + steps.candidates, so_far.evaluations + steps.evaluations)

    async def _judge_aside(self, callbacks: Callback) -> None:
        """Judge as at the end of the budget, and keep the result apart: the training may go on another day as if unjudged."""
        before = self.state
        try:
            self.state = before.begun(0, anew=False)
            await self._judge_start(Callback())
            await self._race(callbacks)
            self._judged = before, self.state
        finally:
            self.state = before

    @contextlib.contextmanager
    def as_judged(self) -> Iterator[None]:
        """Meanwhile the model is what the end of `learn` has judged to be the best, as after a whole budget.

        For a training that max_minutes ended. Afterwards it is as training goes on again. Of any other it changes nothing.
        """
        before = self.state
        try:
            if self._judged is not None and self._judged[0] is before:
                self.state = self._judged[1]
            yield
        finally:
            self.state = before

    async def _judge_start(self, callbacks: Callback) -> None:
        """Judge the present start where it has spent its part, and begin the next one or go on from the best."""
        starts = self.state.starts
        if starts.due(self.num_timesteps, self.budget):
            callbacks.on_phase(self, f"judging start {starts.running + 1} of {starts.number}", starts.episodes)
            evaluation = await evaluate(self.state, self.evaluator, starts.judges())
            self._become(self.state.judged(evaluation))
            callbacks.on_start_judged(self, starts.running + 1, starts.score(evaluation))

    async def _race(self, callbacks: Callback) -> None:
        """Let what the archive holds and the present parameters race, unless they have, and go on from the winner."""
        if self.state.archive.is_due(self.generation):
            entrants = len(self.state.archive.best()) + 1
            callbacks.on_phase(self, f"race of {entrants}", episodes_of_race(entrants))
            race = await run_race(self.state, self.evaluator)
            self._become(self.state.raced(race.winner.snapshot, race.timesteps))
            callbacks.on_raced(self, race)

    def _begin_starts_ahead(self) -> None:
        """The next starts of the round, where workers are free for them."""
        starts = self.state.starts
        if not starts.has_unjudged_starts:
            self.evaluator.end_ahead()
        elif ahead := self.evaluator.starts_ahead():
            for number in range(starts.judged + 1, min(starts.judged + 1 + ahead, starts.size)):
                self.evaluator.play_ahead((starts.round, number), partial(self._play_start, number))

    async def _play_start(self, number: int, evaluator: Evaluator) -> None:
        await play_start(self.state.start_ahead(number), evaluator)

    async def _commit_generation(self, generation: Generation, started: float, callbacks: Callback) -> tuple[Record, float]:
        """Replace the state by the one after a generation. Returns its statistics, and when they were known."""
        batch, state, told = generation.batch, self.state, []
        solved, (due, waiting) = False, state.due(batch)
        for pending in due:
            told.append(await finish_evaluation(state, self.evaluator, pending))
            solved, state = await self._process_evaluation(state, told[-1], callbacks)
            if solved:
                break
        last = told[-1] if told else None
        with interrupts_wait():
            state, update = state.finished(told[-1]) if solved else state.updated(batch, waiting)
            finished = time.perf_counter()
            record = make_record(state, generation, last, update, self.evaluator.pool.n_workers, finished - started)
            self._become(state.reporting(record, batch, told))
            if solved:
                self._drop(StepsPlayed(candidates=int(batch.lengths.sum())))
        return record, finished

    async def _process_evaluation(self, state: TrainingState, told: Told, callbacks: Callback) -> tuple[bool, TrainingState]:
        """Process a finished evaluation: update the best return and check the target. Returns (solved, new state)."""
        pending, mean = told.pending, told.evaluation.mean
        if pending.is_told:
            return False, state
        is_best = mean > -math.inf and mean >= state.counters.best_eval_return
        state = state.told(told)
        if is_best:
            before = self.state
            try:  # a context manager's lines around its `try` would be a gap
                self.state = state.as_evaluated(pending)
                callbacks.on_new_best(self, mean)
            finally:
                self.state = before
        if mean >= self.target_return and may_confirm(state):
            callbacks.on_phase(self, "confirming the target", self.settings.target_episodes)
            solved, state, confirmation = await confirm_target(state, self.evaluator, pending, self.target_return)
            if solved:
                self._drop(StepsPlayed(evaluations=confirmation.timesteps))
            else:
                callbacks.on_not_confirmed(self, told, confirmation)
            return solved, state
        return False, state

    async def _drain_evaluations(self, callbacks: Callback) -> None:
        """Wait for the evaluations that are still running, and process them: the training ends."""
        for pending in self.state.pending:
            if not pending.is_told:
                told = await finish_evaluation(self.state, self.evaluator, pending)
                solved, state = await self._process_evaluation(self.state, told, callbacks)
                state = state.ended(told)
                self.state = state.finished(told)[0] if solved else state
                if solved:
                    return
