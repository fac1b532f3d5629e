"""The loop of a model's trainings: ask, evaluate, tell, record, notify, stop."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from fastes.pools.pool import Condition, side_by_side
from fastes.rollout.batch import Batch, StepsPlayed
from fastes.system.interrupts import interrupts_deferred
from fastes.training.archive import Snapshot
from fastes.training.evaluation import Evaluation, FinishedEvaluation
from fastes.training.evaluator import Evaluator
from fastes.training.final_selection import FinalSelection, episodes_of_selection, select
from fastes.training.player import Player
from fastes.training.record import Generation, Pace, Record, make_record
from fastes.training.selection import MEASURING_FRACTION, TRIAL_EPISODES, Rung, Selection
from fastes.training.training import Training


class Listener(Protocol):
    """Hears of a training while it goes on. The trainer's selection then shows the training that an event is of."""

    def on_generation(self, record: Record, generation: Generation) -> bool:
        """After a generation was committed; False stops at once."""

    def on_new_best(self, eval_return: float) -> None:
        """While the training holds the parameters of the best evaluation so far, before they move on."""

    def on_not_confirmed(self, finished: FinishedEvaluation, confirmation: Evaluation) -> None:
        """After an evaluation has reached the target, and the fresh episodes that followed have not."""

    def on_rung(self, rung: Rung) -> None:
        """After a rung, while the selection shows the best trial of those that go on."""

    def on_final_selection(self, result: FinalSelection) -> None:
        """After a final selection, while the training holds the winner."""

    def on_phase(self, name: str, episodes: int) -> None:
        """Before noise-free episodes that belong to no generation."""


class Silent:
    """A listener that ignores every event."""

    def on_generation(self, record: Record, generation: Generation) -> bool:  # noqa: ARG002
        return True

    def on_new_best(self, eval_return: float) -> None: ...

    def on_not_confirmed(self, finished: FinishedEvaluation, confirmation: Evaluation) -> None: ...

    def on_rung(self, rung: Rung) -> None: ...

    def on_final_selection(self, result: FinalSelection) -> None: ...

    def on_phase(self, name: str, episodes: int) -> None: ...


class _Stopped(Exception):
    """One of several trials has ended the training, or left C: the others end where they are."""


class _Aside(NamedTuple):
    """A training that max_minutes has ended, and what the end of a whole budget would have made of it."""

    left: Selection
    judged: Selection


class Trainer:
    """Runs the trainings of a selection on one pool, until the budget or the time is spent, one is solved, or a callback stops.

    Args:
        selection: The trainings. Replaced as a whole by each generation.
        evaluator: Has the pool.
    """

    def __init__(self, selection: Selection, evaluator: Evaluator) -> None:
        self.selection, self.evaluator = selection, evaluator
        self.target_return = math.inf  # noise-free return at which training stops
        self.out_of_time = False  # whether max_minutes has ended the last `run`
        self.ends_at = math.inf  # time.monotonic() at which it does
        self.unreported: Record | None = None  # of the last committed generation, until the listener has got it
        self.dropped_steps = StepsPlayed()  # that count nowhere: of the proof that a training is solved, of its candidates
        self._pool_steps = StepsPlayed()  # of the pool when steps were committed last
        self._aside: _Aside | None = None
        self._listener: Listener = Silent()
        self._is_stopped = self._is_late = False
        self._pool_at_start = self._pool_now
        self._pace = Pace(time.perf_counter())
        self.cpu_seconds = 0.0  # CPU time of all trials so far, also of an earlier process that the run folder knows of
        self._cpu_began = 0.0  # the evaluator's CPU time when it was 0

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def run(self, listener: Listener, ends_at: float = math.inf) -> None:
        """Train until the selection's budget is spent, the target return is confirmed, or the listener says stop.

        Args:
            listener: Hears of each generation.
            ends_at: time.monotonic() from which no generation begins, except the first.
        """
        self._listener, self.ends_at, self._is_stopped = listener, ends_at, False
        self.out_of_time, self._aside = False, None
        self._pool_steps, self._is_late = self.evaluator.steps_played(), False
        self._pace, self._cpu_began = Pace(time.perf_counter()), self.evaluator.cpu_seconds() - self.cpu_seconds
        try:
            await self.evaluator.collect_abandoned()
            await self._train()
            await self._finish()
        finally:  # whatever has ended it
            self.selection = self.selection.showing_best()
        self._pool_steps = self.evaluator.steps_played()
        self._count_cpu()

    async def _train(self) -> None:
        """The trials' generations and rungs, and those of the one that is left."""
        if self.selection.is_new_race:
            await self._measure()
        while self.selection.is_open and not self._is_over:
            is_whole = await self._play_rung()
            if is_whole and not self._is_over:
                await self._end_rung()
        while not self._is_over:
            await self._train_once(self.selection.present.number)
            await self.evaluator.collect_abandoned()  # a callback may have closed the pool

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._is_late or self._is_solved or self._is_spent

    @property
    def _is_spent(self) -> bool:
        return self.selection.num_timesteps >= self.selection.budget

    @property
    def _is_solved(self) -> bool:
        return self.selection.training.solved

    async def _train_once(self, number: int) -> None:
        """One generation of a training: ask, evaluate, tell, record, notify."""
        if self._training(number).needs_warm_up():
            await self._warm_up(number)
        generation = await self._player(number).generation(self._training(number))
        if self._leaves_c(generation.batch):
            return
        record = await self._commit(number, generation)
        self._notify(record, generation)

    def _leaves_c(self, batch: Batch) -> bool:
        """Return whether candidates have other numbers in C than in Python: they and all later ones have to play in Python."""
        if batch.differs:
            self._drop(StepsPlayed(candidates=batch.steps))
            self.evaluator.env_calls.leave_c()
        return batch.differs

    def _notify(self, record: Record, generation: Generation) -> None:
        goes_on = self._listener.on_generation(record, generation)
        self.unreported = None
        self._is_stopped = self._is_stopped or not goes_on
        self._is_late = time.monotonic() >= self.ends_at

    async def _warm_up(self, number: int) -> None:
        training = self._training(number)
        batch = await self._played_alike(lambda: self._player(number).warm_up(training))
        self._commit_selection(self.selection.with_training(training.warmed_up(batch), number))

    async def _played_alike(self, play: Callable[[], Awaitable[Batch]]) -> Batch:
        """Play first candidates, and again in Python if they have other numbers in C."""
        batch = await play()
        return await play() if self._leaves_c(batch) else batch

    async def _commit(self, number: int, generation: Generation) -> Record:
        """Replace a training by the one after a generation. Returns its statistics."""
        training, batch = self._training(number), generation.batch
        finished, solved, has_differed = list[FinishedEvaluation](), False, False
        due, waiting = training.due(batch)
        for pending in due:
            evaluated, differs = await self._player(number).finished(training, pending)
            finished.append(evaluated)
            has_differed |= differs
            solved, training = await self._process_evaluation(number, training, finished[-1])
            if solved:
                break
        with interrupts_deferred():
            training, update = training.solved_by(finished[-1]) if solved else training.tell(batch, waiting)
            before = self.selection.in_turn(number)
            counters = before.counters_with(training)
            self._count_cpu()
            steps = batch.steps + (finished[-1].evaluation.timesteps if finished else 0)
            record = make_record(
                generation,
                finished[-1] if finished else None,
                update,
                counters,
                others=counters.num_timesteps - training.counters.num_timesteps,
                episode_cap=training.episode_settings()[0].max_steps,
                n_workers=self.evaluator.pool.n_workers,
                stretch=self._pace.after(number, time.perf_counter(), steps, batch.busy_seconds),
                cpu_seconds=self.cpu_seconds,
                trial=number + 1,
            )
            after = before.with_training(training.reporting(record, batch, finished))
            self._drop(StepsPlayed(evaluations=_repeated_steps(finished)))
            self._commit_selection(after.with_winner(number) if solved else after, record)
            if has_differed:
                self.evaluator.env_calls.leave_c()
            if solved:
                self._drop(StepsPlayed(candidates=batch.steps))
        return record

    # --- evaluations ------------------------------------------------------------------------------------------------

    async def _process_evaluation(
        self, number: int, training: Training, finished: FinishedEvaluation, may_solve: bool = True
    ) -> tuple[bool, Training]:
        """Process a finished evaluation: update the best return and check the target. Returns (solved, new training).

        may_solve: False before its turn, where another trial may be solved first.
        """
        pending, mean = finished.pending, finished.evaluation.mean
        best = max(self.selection.counters.best_eval_return, training.counters.best_eval_return)
        may_be_best = not pending.already_reported or self.selection.is_open  # others have come since: the later of equals
        is_best = may_be_best and -math.inf < mean >= best
        training = training.after_evaluation(finished)
        if is_best:
            with self._showing(number, training.as_evaluated(pending)):
                self._listener.on_new_best(mean)
        is_due = may_solve and training.counters.num_timesteps >= training.counters.confirm_after
        if is_due and mean >= self.target_return:
            return await self._confirm_target(number, training, finished)
        return False, training

    async def _confirm_target(self, number: int, training: Training, finished: FinishedEvaluation) -> tuple[bool, Training]:
        """Evaluate theta on fresh seeds, as one good episode proves nothing. Returns (solved, new training).

        After a failure training comes first, for as many steps as that took: confirming costs half of the time at most.
        """
        episodes = training.settings.target_episodes
        self._listener.on_phase("confirming the target", episodes)
        confirmation = await self._player(number).evaluate(training, training.fresh_seeds(episodes), finished.pending)
        steps = confirmation.timesteps
        if confirmation.mean >= self.target_return:
            self._drop(StepsPlayed(evaluations=steps))
            return True, training
        counters = training.counters.with_evaluation(steps)
        training = training._replace(counters=counters._replace(confirm_after=counters.num_timesteps + steps))
        with self._showing(number, self._training(number)):
            self._listener.on_not_confirmed(finished, confirmation)
        return False, training

    @contextlib.contextmanager
    def _showing(self, number: int, training: Training) -> Iterator[None]:
        """Meanwhile the selection shows a training in this state."""
        before = self.selection
        try:
            self.selection = before.focused(number).with_training(training)
            yield
        finally:
            self.selection = before

    async def drain_evaluations(self) -> None:
        """Wait for the pending evaluations of the trial that committed last, and process them.

        While several trials are left, none counts as solved here: another trial's evaluation may be due first.
        """
        await self._drain(self.selection.last.number, may_solve=not self.selection.is_open)

    async def _drain(self, number: int, may_solve: bool = True) -> None:
        for pending in self._training(number).pending:
            if pending.already_reported and not (may_solve and self.selection.is_open):
                continue
            training = self._training(number)
            finished, _ = await self._player(number).finished(training, pending)
            solved, training = await self._process_evaluation(number, training, finished, may_solve)
            if pending.already_reported:  # a stop has, but it was not compared with the target
                self._drop(StepsPlayed(evaluations=finished.evaluation.timesteps))
            else:
                training = training.after_last_evaluation(finished)
            if solved:
                solution = training.solved_by(finished)[0]
                self._commit_selection(self.selection.with_training(solution, number).with_winner(number), self.unreported)
                return
            self._commit_selection(self.selection.with_training(training, number), self.unreported)

    # --- several trials ---------------------------------------------------------------------------------------------

    async def _measure(self) -> None:
        """Play a few candidates before a race: their lengths decide how many recipes the budget allows."""
        trial = self.selection.trial_to_measure()
        most = MEASURING_FRACTION * self.selection.budget
        batch = await self._played_alike(lambda: self._player(trial.number).measure(trial.training, most))
        self._commit_selection(self.selection.measured(batch, trial))

    async def _play_rung(self) -> bool:
        """Play all trials that have steps left in the rung, side by side. They commit in turn, always in the same order.

        Returns:
            Whether all came to the end of the rung: a callback may have closed the pool, or ended the training.
        """
        selection, first = self.selection, 0
        if selection.last.rung_timesteps:  # before a stop
            first = selection.turn + 1
        trials = (*selection.trials[first:], *selection.trials[:first])
        numbers = [trial.number for trial in trials if selection.has_rung_budget(trial.number)]
        turns = deque(numbers)
        self._pool_at_start = self._pool_now
        try:
            await side_by_side(*[self._run_trial(number, turns) for number in numbers])
        except _Stopped:
            self.evaluator.forget_requests()
            if not self._is_over:
                await self.evaluator.collect_abandoned()
            return False
        return True

    async def _run_trial(self, number: int, turns: deque[int]) -> None:
        """A trial's generations in one rung, each committed when it is the trial's turn.

        A generation in flight when the budget is spent is left out, so that the committed ones alone decide what follows.
        """
        training = self._training(number)
        if training.needs_warm_up():
            batch = await self._player(number).warm_up(training)
            await _turn_of(number, turns)
            if self._leaves_c(batch):
                raise _Stopped
            self._commit_selection(self.selection.with_training(training.warmed_up(batch), number).in_turn(number))
            turns.rotate(-1)
        while self.selection.has_rung_budget(number) and not self._is_over:
            generation = await self._player(number).generation(self._training(number))
            await _turn_of(number, turns)
            if self._is_spent:
                self._drop(StepsPlayed(candidates=generation.batch.steps))
                break
            if self._leaves_c(generation.batch):
                raise _Stopped
            record = await self._commit(number, generation)
            self._notify(record, generation)
            if self._is_stopped or not self.selection.is_open or self._is_interrupted:
                raise _Stopped
            turns.rotate(-1)
        await _turn_of(number, turns)
        turns.popleft()

    @property
    def _is_interrupted(self) -> bool:
        """Whether a callback has closed the pool of the rung's other trials, or one has left C: they begin again."""
        return self._pool_at_start != self._pool_now or not self.evaluator.pool.is_open

    @property
    def _pool_now(self) -> tuple[Evaluator, int, bool]:
        """The pool, which of its openings it is, and whether it has left C."""
        return self.evaluator, self.evaluator.openings, self.evaluator.env_calls.in_python

    async def _end_rung(self, is_last: bool = False) -> None:
        """Process what the trials of a rung still play, score them, and go on with the better ones."""
        for number in [trial.number for trial in self.selection.trials]:
            await self._drain(number)
            if self._is_solved:
                return
        selection = self.selection
        trials = selection.trials
        self._listener.on_phase(f"scoring rung {selection.rung + 1} of {len(selection.sizes)}", TRIAL_EPISODES * len(trials))
        seeds = selection.seeds()
        scored = await side_by_side(*[self._player(trial.number).evaluate(trial.training, seeds) for trial in trials])
        selection = selection.after_rung({trial.number: each for trial, each in zip(trials, scored, strict=True)}, is_last)
        self._commit_selection(selection)
        if selection.last_rung is not None:
            self._listener.on_rung(selection.last_rung)
        self._is_late = self._is_late or time.monotonic() >= self.ends_at

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """Process what still plays; once the budget is spent, choose the best of what there is."""
        ends_rung = self._is_spent and self.selection.is_open  # which processes the evaluations of all trials
        if not self._is_solved and not ends_rung:
            await self.drain_evaluations()
        if self._is_solved:
            return
        if self._is_spent:
            await self._choose()
        elif self._is_late and not self._is_stopped:
            self.out_of_time = True
            await self._judge_aside()

    async def _choose(self) -> None:
        """The best of the trials that are left, and of its archive."""
        if self.selection.is_open and self.selection.num_timesteps:
            await self._end_rung(is_last=True)
        if self._is_solved:
            return
        training = self.selection.training
        if training.archive is not None and training.archive.is_due(training.generation) and not self._is_stopped:
            finalists = len(training.archive.best()) + 1
            self._listener.on_phase(f"final selection of {finalists}", episodes_of_selection(finalists))
            result = await select(training, self._player(self.selection.present.number))
            winner: Snapshot = result.winner.snapshot
            self._commit_selection(self.selection.with_training(training.after_final_selection(winner, result.timesteps)))
            self._listener.on_final_selection(result)

    async def _judge_aside(self) -> None:
        """Choose as at the end of the budget, and keep the result apart: the training may go on as if nothing was chosen."""
        self.selection = self.selection.showing_best()
        before, listener = self.selection, self._listener
        self._listener = _PhasesOnly(listener)
        try:
            await self._choose()
            self._aside = _Aside(before, self.selection)
        finally:
            self._listener = listener
            self.replace_selection(before)

    @contextlib.contextmanager
    def as_judged(self) -> Iterator[None]:
        """Meanwhile the selection is what the end of a whole budget would have made of one that max_minutes has ended."""
        before = self.selection
        try:
            if self._aside is not None and self._aside.left is before:
                self.selection = self._aside.judged
            yield
        finally:
            self.selection = before

    # --- state ------------------------------------------------------------------------------------------------------

    def _training(self, number: int) -> Training:
        return self.selection.trials[self.selection.place_of(number)].training

    def _player(self, number: int) -> Player:
        return Player(self.evaluator, number)

    def _commit_selection(self, selection: Selection, record: Record | None = None) -> None:
        """Replace the selection, and count its steps as committed.

        They are counted first, so that `steps_played` in another thread never counts a step twice.

        record: That of the generation that led to it.
        """
        if self.selection.is_open:  # the pool's steps are those of the other trials' running generations, too
            before, after = self.selection.counters, selection.counters
            scoring = selection.scoring_timesteps - self.selection.scoring_timesteps
            steps, evaluations = after.num_timesteps - before.num_timesteps, after.eval_timesteps - before.eval_timesteps
            self._count(steps - scoring, evaluations + scoring)
        else:
            self._pool_steps = self.evaluator.steps_played()
        self.selection, self.unreported = selection, record  # at once, whatever interrupts
        self.evaluator.trainings = trainings_of(selection)

    def replace_selection(self, selection: Selection) -> None:
        """Replace the selection by one whose trainings may need something else of a pool."""
        self.selection = selection
        self.evaluator.trainings = trainings_of(selection)

    def _count(self, candidates: int, evaluations: int) -> None:
        """Count steps of the pool as committed."""
        self._pool_steps = self._pool_steps.plus(candidates, evaluations)

    def move(self, selection: Selection, evaluator: Evaluator) -> None:
        """Continue in another environment, also in the middle of `run`: see Agent.use_env."""
        self._cpu_began += evaluator.cpu_seconds() - self.evaluator.cpu_seconds()
        self.evaluator, self._pool_steps = evaluator, evaluator.steps_played()
        self.replace_selection(selection)

    def _count_cpu(self) -> None:
        self.cpu_seconds = self.evaluator.cpu_seconds() - self._cpu_began

    def _drop(self, steps: StepsPlayed) -> None:
        """Count steps that are part of no training."""
        self.dropped_steps = self.dropped_steps.plus(*steps)
        if self.selection.is_open:
            self._count(*steps)

    def steps_played(self) -> StepsPlayed:
        """Steps of all trials, with those of episodes that play at this moment; any thread may ask.

        If several models share a pool, only committed steps: evaluator.steps_played() has those of all models.
        """
        counters, committed = self.selection.counters, self._pool_steps  # in the opposite order of `_commit_selection`
        played = committed if self.evaluator.is_shared else self.evaluator.steps_played()
        return StepsPlayed(
            counters.num_timesteps + max(0, played.candidates - committed.candidates),
            counters.eval_timesteps + max(0, played.evaluations - committed.evaluations),
        )


class _PhasesOnly(Silent):
    """Passes on phases and final selections only."""

    def __init__(self, listener: Listener) -> None:
        self.on_phase = listener.on_phase  # type: ignore[method-assign]
        self.on_final_selection = listener.on_final_selection  # type: ignore[method-assign]


def _repeated_steps(finished: Sequence[FinishedEvaluation]) -> int:
    """Return the steps of evaluations that a stop had played, and counted, before their turn."""
    return sum(each.evaluation.timesteps for each in finished if each.pending.already_reported)


async def _turn_of(number: int, turns: deque[int]) -> None:
    """Wait until the other trials have committed what comes before."""
    await Condition(lambda: turns[0] == number)


def trainings_of(selection: Selection) -> Mapping[int, Training]:
    """The trainings that are left, by the number of their trial."""
    return {trial.number: trial.training for trial in selection.trials}
