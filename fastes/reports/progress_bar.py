"""How far a training is: a bar at the bottom of a terminal or in a notebook, or lines in a file or a pipe.

A bar covers all that a training does: its generations, the episodes that score its trials, its final selection, and, if the
caller says so, those that judge its result. What remains is estimated in environment steps, by the episodes so far.
"""

from __future__ import annotations

import math
import statistics
import sys
import threading
import time
import warnings
from typing import Any, NamedTuple, Protocol

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.repeatedly import Repeatedly
from fastes.rollout.job import StepsPlayed
from fastes.system.console import BottomLine, in_notebook, lasting
from fastes.system.forks import tell_of_forks
from fastes.training.final_selection import FinalSelection, episodes_of_selection
from fastes.training.record import Record
from fastes.training.selection import Rung

_SECONDS = 0.5  # between looks at the steps that are played
_NARROWEST, _WIDEST = 8, 40  # characters of a bar: a longer one says no more


class Progress(NamedTuple):
    """What a bar shows.

    share: of all steps that is done, 0 to 1; less than 1 as long as anything is left.
    seconds: since it began.
    remaining: seconds that are left, estimated; NaN for no estimate.
    rate: steps a second; NaN where none was made.
    phase: what goes on, in words.
    note: of the last evaluation, say; '' for none.
    """

    share: float
    seconds: float
    remaining: float
    rate: float
    phase: str
    note: str

    @property
    def percent(self) -> int:
        """Rounded down: what rounds up to 100 looks as if it hung."""
        return int(100.0 * self.share)

    def in_words(self) -> str:
        remaining = "?" if math.isnan(self.remaining) else _clock(self.remaining)
        rate = "" if math.isnan(self.rate) else f", {short(self.rate)} steps/s"
        note = f", {self.note}" if self.note else ""
        return f"{self.phase} [{_clock(self.seconds)}<{remaining}{rate}{note}]"

    def drawn(self, columns: int, ascii_only: bool) -> str:
        """With a bar that fills so many columns. Where they are few, the rate is left out, and then the note."""
        from tqdm.std import Bar

        percent, without_rate = f"{self.percent:3d}%", self._replace(rate=math.nan)
        for shown in (self, without_rate, without_rate._replace(note="")):
            words = shown.in_words()
            if (width := columns - len(percent) - len(words) - 3) >= _NARROWEST:
                return f"{percent}|{Bar(self.share, min(width, _WIDEST), Bar.ASCII if ascii_only else Bar.UTF)}| {words}"
        return f"{percent} {words}"


def short(number: float) -> str:
    """A number of at most five characters: 960, 1.23k, 400k, 12.3M."""
    from tqdm import tqdm

    return f"{number:.0f}" if number < 999.5 else str(tqdm.format_sizeof(number))


def _clock(seconds: float) -> str:
    """00:31, 1:02:03."""
    from tqdm import tqdm

    return str(tqdm.format_interval(seconds))


class Face(Protocol):
    """Where a bar is seen. seconds: that lie between two looks at it."""

    seconds: float

    def show(self, progress: Progress) -> None: ...

    def end(self, stays: bool) -> None:
        """stays: whether what was shown last is to be seen from now on."""


class OnTerminal:
    """A bar in the last line."""

    seconds = 0.1

    def __init__(self) -> None:
        self._line = BottomLine(sys.stderr)
        self._ascii = not (getattr(sys.stderr, "encoding", None) or "").lower().startswith("utf")

    def show(self, progress: Progress) -> None:
        self._line.show(progress.drawn(self._line.columns, self._ascii))

    def end(self, stays: bool) -> None:
        self._line.end(stays)


class InNotebook:
    """A widget, or without ipywidgets a bar of text."""

    seconds = 0.5

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets
            from tqdm.autonotebook import tqdm
        form = "{percentage:3.0f}%|{bar}| {desc}"
        self._bar: Any = tqdm(total=100, dynamic_ncols=True, bar_format=form, mininterval=0.0)

    def show(self, progress: Progress) -> None:
        self._bar.n = progress.percent
        self._bar.set_description_str(progress.in_words(), refresh=True)

    def end(self, stays: bool) -> None:
        self._bar.leave = stays
        self._bar.close()


class InFile:
    """Lines for a stream that keeps them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def show(self, progress: Progress) -> None:
        print(f"{progress.percent:3d}% {progress.in_words()}", file=lasting(sys.stderr), flush=True)

    def end(self, stays: bool) -> None: ...


def _face(line_seconds: float | None) -> Face | None:
    """The one for this process's streams; None where nobody watches."""
    if in_notebook():
        return InNotebook()
    if sys.stderr is not None and lasting(sys.stderr).isatty():
        return OnTerminal()
    return None if sys.stderr is None or line_seconds is None else InFile(line_seconds)


class _Training:
    """One that a bar covers: what it has played, and what is to come. total: steps of candidates that it will have."""

    def __init__(self, model: Model, total: int, judging: int) -> None:
        self.model, self.total, self.judging = model, total, judging
        self.begun_at = self._played()
        self.phase, self._phase_episodes, self._phase_ends = "", 0, 0.0
        self._episode_steps = 0.0  # that a noise-free episode is estimated to have
        self._evaluated = 0.0  # steps of noise-free episodes for one of candidates, phases left out
        self._in_phases, self._phase_begun_at = 0, 0  # steps of noise-free episodes
        self.is_over = False
        self.is_timed = False  # whether max_minutes is estimated to end it, and not the budget

    def _played(self) -> StepsPlayed:
        return self.model.steps_played()

    def meet(self, record: Record) -> None:
        """A generation is over."""
        evaluation = self.model.last_evaluation
        self._episode_steps = record.episode_length if evaluation is None else float(evaluation.lengths.mean())
        self.end_phase()
        self._evaluated = max(record.eval_timesteps - self._in_phases, 0) / max(record.timesteps, 1)

    def begin_phase(self, name: str, episodes: int) -> None:
        self.phase, self._phase_episodes = name, episodes
        self._phase_begun_at = self._played().evaluations
        self._phase_ends = self._phase_begun_at + episodes * self._episode_steps

    def end_phase(self) -> None:
        if self.phase:
            self._in_phases += self._played().evaluations - self._phase_begun_at
        self.phase, self._phase_episodes = "", 0

    def end(self) -> None:
        self.is_over = True
        self.end_phase()

    @property
    def is_whole(self) -> bool:
        """Whether it has ended because nothing is left to train."""
        model = self.model
        return self.is_over and (model.solved or model.out_of_time or model.num_timesteps >= self.total)

    def counts(self) -> tuple[int, int]:
        """Steps of candidates, and those that it will have."""
        candidates = min(self._played().candidates, max(self.total, self.model.num_timesteps))
        return candidates, candidates if self.is_whole else max(self.total, candidates)

    def done(self) -> int:
        return sum(self._played()) - sum(self.begun_at)

    def left(self, rate: float) -> float:
        """Steps to come. rate: those a second; NaN for unknown."""
        (candidates, evaluations), model, episodes = self._played(), self.model, self.judging
        steps = max(self.total - candidates, 0) * (1.0 + self._evaluated)
        if model.ends_at < math.inf and not math.isnan(rate):
            in_time = max(model.ends_at - time.monotonic(), 0.0) * rate
            self.is_timed = in_time < steps
            steps = min(steps, in_time)
        if self.is_over and not self.is_whole and not self.phase:  # it was stopped: nothing follows
            return steps
        if self.is_over:
            steps = 0.0 if self.is_whole or self.judging else steps
        else:
            episodes += model.selection.episodes_to_come()
            archive = model.training.archive
            if archive is not None and not archive.has_selected(model.generation):
                snapshots = len(archive.best()) if candidates >= self.total else archive.size
                episodes += episodes_of_selection(snapshots + 1)
        steps += max(episodes - self._phase_episodes, 0) * self._episode_steps
        return steps + (max(self._phase_ends - evaluations, 0.0) if self.phase else 0.0)


class ProgressBar(Callback):
    """A bar over all that a training plays: on a terminal, and in a notebook as a widget.

    line_seconds: in a file or a pipe, a line on stderr so often, and one at the end; None for nothing there.
    judging: noise-free episodes that follow training (`judge`): the bar goes on until `close`, and vanishes then.
    """

    def __init__(self, line_seconds: float | None = None, judging: int = 0) -> None:
        self._line_seconds, self._judging = line_seconds, judging
        self._trainings: dict[int, _Training] = {}
        self._returns: dict[int, float] = {}  # of the last evaluation of each
        self._face: Face | None = None
        self._lock = threading.RLock()
        self._looking: Repeatedly | None = None
        self._begun = self._shown_at = 0.0
        self._share = 0.0
        tell_of_forks(self)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset_after_fork(self) -> None:
        """See forks.Owner: two bars would share a terminal's line."""
        self._face, self._looking, self._lock = None, None, threading.RLock()

    # --- what a training tells it -----------------------------------------------------------------------------------

    def on_start(self, model: Model, total_timesteps: int) -> None:
        if all(training.is_over for training in self._trainings.values()) and len(self._trainings) == self.expected:
            self._trainings.clear()  # of another call of learn
        self._trainings[id(model)] = _Training(model, total_timesteps, self._judging)
        if len(self._trainings) == 1:
            self._begin()

    def on_generation(self, model: Model, record: Record) -> None:
        self._trainings[id(model)].meet(record)
        if record.eval_generation:
            self._returns[id(model)] = record.eval_return
        self._show()

    def on_phase(self, model: Model, name: str, episodes: int) -> None:
        self._trainings[id(model)].begin_phase(name, episodes)
        self._show()

    def on_rung(self, model: Model, rung: Rung) -> None:  # noqa: ARG002
        self._trainings[id(model)].end_phase()

    def on_final_selection(self, model: Model, result: FinalSelection) -> None:  # noqa: ARG002
        self._trainings[id(model)].end_phase()

    def on_end(self, model: Model) -> None:
        self._trainings[id(model)].end()
        if not self._judging and self._all_are_over():
            self._end(stays=True)

    def judge(self, model: Model, episodes: int) -> None:
        """So many noise-free episodes are played after training; none once they were."""
        training = self._trainings.get(id(model))
        if training is None:
            return
        training.judging = episodes
        if episodes:
            training.begin_phase("judging the result", episodes)
        else:
            training.end_phase()
        self._show()

    def close(self) -> None:
        self._end(stays=False)

    # --- what it shows ----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> int:
        """Trainings that it covers."""
        return 1

    def _all_are_over(self) -> bool:
        over = sum(training.is_over for training in self._trainings.values())
        return over == self.expected

    def progress(self) -> Progress:
        """At this moment."""
        trainings, ahead = list(self._trainings.values()), sum(self._running())
        done, seconds = sum(each.done() for each in trainings) + ahead, time.monotonic() - self._begun
        rate = done / seconds if done and seconds else math.nan
        left = sum(each.left(rate / len(trainings)) for each in trainings)
        left += (self.expected - len(trainings)) * trainings[0].total
        left = max(left - ahead, 1.0) if left else 0.0
        self._share = max(self._share, min(done / (done + left), 0.9999)) if left > 0.0 else 1.0
        return Progress(self._share, seconds, left / rate if left else 0.0, rate, self._phase(trainings), self._note())

    def _running(self) -> StepsPlayed:
        """Of episodes that go on at this moment, where a training cannot tell its own from those of others."""
        evaluator = next(iter(self._trainings.values())).model.evaluator
        if not evaluator.is_shared:
            return StepsPlayed()
        models = [each.model for each in self._trainings.values()]
        known = [steps for model in models for steps in (model.steps_played(), model.dropped_steps)]
        played = evaluator.steps_played()
        candidates, evaluations = (sum(each) for each in zip(*known, strict=True))
        return StepsPlayed(max(played.candidates - candidates, 0), max(played.evaluations - evaluations, 0))

    def _phase(self, trainings: list[_Training]) -> str:
        """What all that go on are at, or else how many steps of training were made."""
        phases = {each.phase for each in trainings if not each.is_over or each.phase}
        if len(phases) == 1 and (phase := phases.pop()):
            return phase
        counts = [each.counts() for each in trainings]
        total = sum(count[1] for count in counts) + (self.expected - len(trainings)) * trainings[0].total
        made = min(sum(count[0] for count in counts) + self._running().candidates, total)
        if made == total:
            return f"{short(made)} steps"
        if any(each.is_timed and not each.is_over for each in trainings):
            return f"of {trainings[0].model.max_minutes:g} min, {short(made)} steps"  # behind the percentage
        return f"{short(made)} of {short(total)} steps"

    def _note(self) -> str:
        return f"eval {next(iter(self._returns.values())):.1f}" if self._returns else ""

    def _begin(self) -> None:
        self._end(stays=True)
        self._begun = self._shown_at = time.monotonic()
        self._share, self._returns = 0.0, {}
        self._face = _face(self._line_seconds)
        if self._face is not None:  # generations may take minutes
            self._looking = Repeatedly(_SECONDS, self._show)

    def _show(self, at_once: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if self._face is not None and (at_once or now - self._shown_at >= self._face.seconds):
                self._shown_at = now
                self._face.show(self.progress())

    def _end(self, stays: bool) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.end()
        with self._lock:
            if stays:
                self._show(at_once=True)
            if self._face is not None:
                self._face.end(stays)
            self._face = None


class SeedsBar(ProgressBar):
    """A bar over several trainings, which go on at once.

    trainings: how many; one that is solved early leaves the others less to do.
    line_seconds, judging: see ProgressBar.
    """

    def __init__(self, trainings: int, line_seconds: float | None = 10.0, judging: int = 0) -> None:
        super().__init__(line_seconds, judging)
        self._number = trainings

    @property
    def expected(self) -> int:
        return self._number

    def close(self) -> None:
        self._end(stays=True)  # nothing else tells of these trainings

    def _note(self) -> str:
        median = f"median eval {statistics.median(self._returns.values()):.1f}, " if self._returns else ""
        ended = sum(training.is_whole for training in self._trainings.values())
        return f"{median}{ended} of {self._number} ended"
