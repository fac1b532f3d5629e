"""Statistics of a training as lines on the console."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

import numpy as np

from fastes.errors import listed
from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.choice_in_words import choice_in_words, exploring, no_preset, steps_in_words
from fastes.reports.task_in_words import (
    leaves_its_space,
    lengths_in_words,
    nothing_to_climb,
    returns_in_words,
    space_in_words,
)
from fastes.system.console import columns_of, fitted, tolerant
from fastes.system.digits import digits_of, duration_in_words, in_digits
from fastes.training.evaluation import Evaluation, FinishedEvaluation
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record
from fastes.training.selection import Rung

_ROWS_PER_HEADER = 40
_PACE_SECONDS = 2.0  # after the first generation until the pace is written
_LONG = 10.0  # seconds to come from which it is worth a line


class ConsoleLog(Callback):
    """Prints rows of statistics under a header that is repeated, above the progress bar if there is one.

    A row shows the last evaluation that was reported since the previous row. A narrow terminal gets fewer columns.

    Args:
        file: Output; None for sys.stdout.
        seconds: Time between two rows, 0 for a row per generation. The first and the last generation always have one. With 0
            each failed confirmation of the target has a line, else the first, second, fourth, eighth and so on.
    """

    def __init__(self, file: TextIO | None = None, seconds: float = 0.0) -> None:
        self.file, self.seconds, self.lines = file, seconds, 0
        self._begin()

    def _begin(self) -> None:
        self._budget = 0  # num_timesteps at which the training ends
        self._pace: tuple[float, int] | None = None  # the clock and num_timesteps after the first generation
        self.lines, self._written_at, self._trials = 0, -math.inf, False
        self._failed_confirmations = 0
        self._is_new = self._is_timed = False
        self._racing = 0  # recipes that are to race, before a few candidates have shown how many the budget allows
        self._waiting: Record | None = None  # of the last generation without a row

    def on_start(self, model: Model, total_timesteps: int) -> None:
        self._begin()
        self._trials, self._budget = model.selection.is_open, total_timesteps
        self._is_new = not model.generation
        if self._is_new:
            self._write(task_line(model))
        if model.selection.is_new_race:
            self._racing = len(model.selection.trials)
            self._write(race_line(model))
        if model.training.cuts_endless_episodes:
            self._write(limit_line(model))

    def on_generation(self, model: Model, record: Record) -> None:
        if model.solved:  # this generation made no step
            self._write_waiting()
            of = _evaluation_in_words(record.eval_return, record.eval_at)
            self._write(f"confirmed: {of} holds over {_fresh(model.settings.target_episodes)} (target {model.target_return:g})")
            return
        if self._is_new:
            self._is_new = False
            names = [trial.recipe for trial in model.selection.trials]
            if len(names) < self._racing:
                self._write(f"the budget is large enough for {len(names)} of them: {', '.join(names)}")
            for line in first_lines(model, record):
                self._write(line)
        before = self._waiting
        if before is not None and before.trial == record.trial and not record.eval_generation:
            record = record._replace(
                **{name: getattr(before, name) for name in ("eval_generation", "eval_return", "eval_rank")}
            )
        self._waiting = record
        self._tell_pace(model)
        if time.monotonic() - self._written_at >= self.seconds:
            self._write_waiting()

    def _tell_pace(self, model: Model) -> None:
        """Write once how long the budget takes, as soon as the pace is known: the first generation waits for the workers."""
        now, steps = time.monotonic(), model.num_timesteps
        if self._pace is None:
            self._pace = now, steps
        began, first = self._pace
        if self._is_timed or now - began < _PACE_SECONDS or steps <= first:
            return
        self._is_timed = True
        pace, left = (steps - first) / (now - began), self._budget - steps
        if left / pace >= _LONG:
            self._write(f"about {pace:,.0f} steps/s: the {left:,} steps that are left take {duration_in_words(left / pace)}")

    def on_end(self, model: Model) -> None:  # noqa: ARG002
        self._write_waiting()

    def _write_waiting(self) -> None:
        record, self._waiting = self._waiting, None
        if record is None:
            return
        columns = self._columns()
        if self.lines % _ROWS_PER_HEADER == 0:
            self._write(console_header(columns, self._trials))
        self._write(console_line(record, columns, self._trials))
        self.lines, self._written_at = self.lines + 1, time.monotonic()

    def on_rung(self, model: Model, rung: Rung) -> None:  # noqa: ARG002
        self._write_waiting()
        for line in rung_lines(rung):
            self._write(line)

    def on_phase(self, model: Model, name: str, episodes: int) -> None:  # noqa: ARG002
        """Tell of the final selection before it begins: it may take minutes, beyond those of max_minutes."""
        if name.startswith("final selection"):
            self._write_waiting()
            self._write(f"{name} finalists begins: {episodes} episodes")

    def on_final_selection(self, model: Model, result: FinalSelection) -> None:
        self._write_waiting()
        winner, of = result.winner.last, result.winner.snapshot
        of_trial = " of its trial" if model.selection.steps_of_others else ""
        earlier = f"the parameters after {of.timesteps} steps{of_trial}"
        who = "the last parameters" if of.generation == model.generation else earlier
        shown = f"{winner.in_words()} over {len(winner.returns)} episodes"
        self._write(f"final selection among {len(result.finalists)}: {who} win, {shown}")

    def on_not_confirmed(self, model: Model, finished: FinishedEvaluation, confirmation: Evaluation) -> None:
        """Print the confirmation above the row of the generation that reports it, unless there were many before."""
        self._failed_confirmations += 1
        count = self._failed_confirmations
        if self.seconds and count & (count - 1):  # no power of two
            return
        self._write_waiting()
        of = _evaluation_in_words(finished.evaluation.mean, finished.pending.timesteps + model.selection.steps_of_others)
        number = len(confirmation.returns)
        fresh = f"{_fresh(number)} {'gives' if number == 1 else 'give'} {digits_of(confirmation.mean)}"
        so_far = f" ({count} so far)" if count > 1 else ""
        self._write(f"not confirmed{so_far}: {of}; {fresh} (target {model.target_return:g})")

    def _write(self, line: str) -> None:
        stream = tolerant(self.file or sys.stdout)
        print(fitted(line, stream), file=stream, flush=True)  # at once, and a reader that has gone is noticed

    def _columns(self) -> int | None:
        """Return the width of the terminal, or None for a file or a pipe."""
        stream = tolerant(self.file or sys.stdout)
        return columns_of(stream) if stream.isatty() else None


def _fresh(episodes: int) -> str:
    return "1 fresh episode" if episodes == 1 else f"{episodes} fresh episodes"


def _evaluation_in_words(mean: float, timesteps: int) -> str:
    return f"the evaluation of {digits_of(mean)} after {timesteps} steps"


def task_line(model: Model) -> str:
    """Return a line about the spaces, and about the policy and its settings unless recipes race."""
    observations, actions = space_in_words(model.observation_space), space_in_words(model.action_space)
    seen = f"observations {observations}; actions {actions}; steps {steps_in_words(model)}"
    return seen if model.selection.is_new_race else f"{seen}; {choice_in_words(model)}"


def first_lines(model: Model, record: Record) -> Iterator[str]:
    """Yield lines about the episodes of a training's first generation.

    Args:
        model: The model.
        record: That generation's.
    """
    episodes = model.last_episodes
    if not episodes:
        return
    returns, lengths = np.array([each for each, _ in episodes]), np.array([length for _, length in episodes])
    grows = model.training.cap is not None
    why = " by episode_cap, which begins low" if grows else ""
    cut = f" ({record.episodes_cut} cut{why})" if record.episodes_cut else ""
    is_told = nothing_to_climb(returns) and not (grows and record.episodes_cut)
    said = f"first {len(episodes)} episodes: {lengths_in_words(lengths)}{cut}, return {returns_in_words(returns)}"
    yield f"{said}: nothing to climb yet. {exploring(model)}" if is_told else said
    if odd := leaves_its_space(model.normalizer, model.observation_space):
        yield odd


def limit_line(model: Model) -> str:
    """Return a line about the limit at which endless episodes are cut."""
    limit = model.training.longest_episode()
    return (
        f"{model.source.name} has no limit of steps that is known: an endless episode is cut after {limit:,}; "
        "max_episode_steps sets another limit, -1 none"
    )


def race_line(model: Model) -> str:
    """Return a line about the recipes that are about to race."""
    selection = model.selection
    names = [f"{trial.recipe} as trial {trial.number + 1}" for trial in selection.trials]
    return (
        f"{model.source.name} has {no_preset(model)}: up to {len(names)} recipes race{_policy_of_all(model)}; they train on "
        f"{selection.fraction:.0%} of the budget, and scoring takes more of it ({listed(names)})"
    )


def _policy_of_all(model: Model) -> str:
    """Return the policy that all recipes have in place of their own; '' if they differ."""
    policies = {trial.training.settings.policy for trial in model.selection.trials}
    return f", all of them with {policies.pop()}" if len(policies) == 1 else ""


def rung_lines(rung: Rung) -> Iterator[str]:
    """Yield lines about the end of a rung: the trials' scores, and which trials continue."""
    what = "recipe" if rung.recipes else "trial"
    where = f"rung {rung.number} of {rung.of}" if rung.of > 1 else f"{len(rung.scores)} {what}s"
    names = rung.recipes or tuple(f"trial {trial}" for trial, _ in rung.scores)
    scores = in_digits(*(score for _, score in rung.scores))
    yield f"{where}: {', '.join(map(' '.join, zip(names, scores, strict=True)))}"
    on = list(rung.recipes[: rung.kept]) or [str(trial) for trial in sorted(trial for trial, _ in rung.scores[: rung.kept])]
    if len(on) == 1:
        returns = f"; its episodes return {rung.scores[0][1]:.4g} +- {rung.spread:.4g}" if rung.recipes else ""
        yield f"{where}: {'' if rung.recipes else 'trial '}{on[0]} has won and continues alone{returns}"
    else:
        yield f"{where}: {what}s {listed(on)} continue"


class _Column(NamedTuple):
    """A column of the table.

    Attributes:
        title: Its title.
        field: The field of a record that it shows.
        form: The form of a number, as of str.format; "" for a return.
        width: Characters.
        rank: A narrow terminal shows the columns of the lowest ranks.
    """

    title: str
    field: str
    form: str
    width: int
    rank: int

    def text_of(self, value: float) -> str:
        return self.form.format(value) if self.form else digits_of(value)


_TRIAL = _Column("trial", "trial", "{:d}", 5, 0)  # while several go on
_COLUMNS = (
    _Column("gen", "generation", "{:d}", 5, 0),
    _Column("steps", "timesteps", "{:d}", 9, 1),
    _Column("ret mean", "return_mean", "", 9, 3),
    _Column("ret max", "return_max", "", 9, 4),
    _Column("eval", "eval_return", "", 9, 2),
    _Column("rank", "eval_rank", "{:d}", 5, 12),
    _Column("elite", "elite_fraction", "{:.0%}", 6, 9),
    _Column("|theta|", "theta_norm", "{:.3g}", 8, 11),
    _Column("|grad|", "gradient_norm", "{:.3g}", 8, 10),
    _Column("upd ratio", "update_ratio", "{:.2g}", 9, 8),
    _Column("ep len", "episode_length", "{:.0f}", 7, 5),
    _Column("steps/s", "steps_per_second", "{:.0f}", 8, 6),
    _Column("util", "utilisation", "{:.0%}", 5, 7),
)


def console_header(columns: int | None = None, trials: bool = False) -> str:
    """Return the titles of the table.

    Args:
        columns: Width of the terminal; None for any width.
        trials: Whether there is a column for the trial.
    """
    return " ".join(f"{column.title:>{column.width}}" for column in _fitting(columns, trials))


def console_line(record: Record, columns: int | None = None, trials: bool = False) -> str:
    """Return a row of the table; see `console_header`."""
    missing = () if record.eval_generation else ("eval_return", "eval_rank")
    shown = _fitting(columns, trials)
    values = ("-" if each.field in missing else each.text_of(getattr(record, each.field)) for each in shown)
    return " ".join(f"{value:>{each.width}}" for value, each in zip(values, shown, strict=True))


def _fitting(columns: int | None, trials: bool) -> Sequence[_Column]:
    """Return the columns that the terminal has room for."""
    room, ranks = sys.maxsize if columns is None else columns, set[int]()
    room -= (_TRIAL.width + 1) if trials else 0
    for each in sorted(_COLUMNS, key=lambda column: column.rank):
        room -= each.width + bool(ranks)
        if room < 0:
            break
        ranks.add(each.rank)
    return [*([_TRIAL] if trials else []), *(each for each in _COLUMNS if each.rank in ranks)]
