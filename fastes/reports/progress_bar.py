"""The progress of a training: a bar at the bottom of a terminal or in a notebook, or lines in a file or a pipe.

A bar covers everything that a training plays: generations, episodes that score trials, a final selection and, on request, the
episodes that judge the result. The remaining time is estimated in environment steps, from the episodes so far.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.rollout.batch import StepsPlayed
from fastes.system.console import BottomLine, in_notebook, tolerant
from fastes.system.digits import digits_of, short
from fastes.system.forks import register_for_forks
from fastes.training.final_selection import FinalSelection, episodes_of_selection
from fastes.training.record import Record
from fastes.training.selection import Rung

_SECONDS = 0.5  # between looks at the steps that are played
_NARROWEST, _WIDEST = 8, 40  # characters of a bar


class Progress(NamedTuple):
    """The content of a bar.

    Attributes:
        share: Share of all steps that is done, 0 to 1; below 1 as long as steps are left.
        seconds: Time since the start.
        remaining: Estimate of the seconds that are left; NaN for none.
        rate: Steps per second; NaN before the first step.
        phase: Present phase of the training, in words.
        notes: Texts about returns and workers, the most important first.
    """

    share: float
    seconds: float
    remaining: float
    rate: float
    phase: str
    notes: tuple[str, ...]

    @property
    def percent(self) -> int:
        """The share in percent, rounded down: a bar at 100 that continues looks as if it hung."""
        return int(100.0 * self.share)

    def in_words(self) -> str:
        remaining = "?" if math.isnan(self.remaining) else _clock(self.remaining)
        rate = "" if math.isnan(self.rate) else f", {short(self.rate)} steps/s"
        notes = "".join(f", {note}" for note in self.notes)
        return f"{self.phase} [{_clock(self.seconds)}<{remaining}{rate}{notes}]"

    def drawn(self, columns: int, ascii_only: bool) -> str:
        """Return the bar with its words for a width in columns. If that is narrow, the rate is left out, then the last notes.

        Args:
            columns: The width.
            ascii_only: Whether the bar is of ASCII's characters.
        """
        from tqdm.std import Bar

        percent, without_rate = f"{self.percent:3d}%", self._replace(rate=math.nan)
        fewer = (without_rate._replace(notes=self.notes[:number]) for number in range(len(self.notes), -1, -1))
        for shown in (self, *fewer):
            words = shown.in_words()
            if (width := columns - len(percent) - len(words) - 3) >= _NARROWEST:
                return f"{percent}|{Bar(self.share, min(width, _WIDEST), Bar.ASCII if ascii_only else Bar.UTF)}| {words}"
        return f"{percent} {words}"


def _clock(seconds: float) -> str:
    """Format seconds as in 00:31 and 1:02:03."""
    from tqdm import tqdm

    return str(tqdm.format_interval(seconds))


class Face(Protocol):
    """An output that shows a bar. seconds: time between two updates."""

    seconds: float

    def show(self, progress: Progress) -> None: ...

    def end(self, stays: bool) -> None:
        """End the output. stays: whether the last content remains visible."""


class OnTerminal:
    """A bar in the last line of a terminal."""

    seconds = 0.1

    def __init__(self) -> None:
        self._line = BottomLine(sys.stderr)
        self._ascii = not (getattr(sys.stderr, "encoding", None) or "").lower().startswith("utf")

    def show(self, progress: Progress) -> None:
        self._line.show(progress.drawn(self._line.columns, self._ascii))

    def end(self, stays: bool) -> None:
        self._line.end(stays)


class InNotebook:
    """A widget in a notebook, or a bar of text without ipywidgets."""

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
    """Lines in a file or a pipe."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def show(self, progress: Progress) -> None:
        print(f"{progress.percent:3d}% {progress.in_words()}", file=tolerant(sys.stderr), flush=True)

    def end(self, stays: bool) -> None: ...


def choose_face(line_seconds: float | None) -> Face | None:
    """Choose the output by this process's streams; None for none.

    Args:
        line_seconds: See `ProgressBar`.
    """
    if in_notebook():
        return InNotebook()
    if sys.stderr is not None and tolerant(sys.stderr).isatty():
        return OnTerminal()
    return None if sys.stderr is None or line_seconds is None else InFile(line_seconds)


class Repeatedly:
    """Calls a function at intervals of `seconds`, in its own thread, until `end`. A forked copy has no such thread."""

    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        self.seconds, self.function = seconds, function
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastes-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self.seconds):
            with contextlib.suppress(Exception):  # such as a closed stream: no training must end because of it
                self.function()

    def end(self) -> None:
        """Stop the calls: when this returns, the last one has ended."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


class _Training:
    """A training that a bar covers: the steps that it has played, and those to come.

    Args:
        model: The model.
        total: Steps of candidates at its end.
        judging: Noise-free episodes that follow training.
    """

    def __init__(self, model: Model, total: int, judging: int) -> None:
        self.model, self.total, self.judging = model, total, judging
        self.begun_at = self.model.steps_played()
        self.phase, self._phase_episodes, self._phase_ends = "", 0, 0.0
        self._episode_steps = 0.0  # estimate of a noise-free episode's steps
        self._evaluated = 0.0  # steps of noise-free episodes outside phases, per step of candidates
        self._in_phases, self._phase_begun_at = 0, 0  # steps of noise-free episodes
        self.is_over = False
        self.is_timed = False  # whether max_minutes is estimated to end it, and not the budget

    def end_generation(self, record: Record) -> None:
        evaluation = self.model.last_evaluation
        self._episode_steps = record.episode_length if evaluation is None else float(evaluation.lengths.mean())
        self.end_phase()
        self._evaluated = max(record.eval_timesteps - self._in_phases, 0) / max(record.timesteps, 1)

    def begin_phase(self, name: str, episodes: int) -> None:
        self.phase, self._phase_episodes = name, episodes
        self._phase_begun_at = self.model.steps_played().evaluations
        self._phase_ends = self._phase_begun_at + episodes * self._episode_steps

    def end_phase(self) -> None:
        if self.phase:
            self._in_phases += self.model.steps_played().evaluations - self._phase_begun_at
        self.phase, self._phase_episodes = "", 0

    def end(self) -> None:
        self.is_over = True
        self.end_phase()

    @property
    def is_whole(self) -> bool:
        """Whether the training has ended and was not stopped early."""
        model = self.model
        return self.is_over and (model.solved or model.out_of_time or model.num_timesteps >= self.total)

    def counts(self) -> tuple[int, int]:
        """Return the steps of candidates so far, and at the end."""
        candidates = min(self.model.steps_played().candidates, max(self.total, self.model.num_timesteps))
        return candidates, candidates if self.is_whole else max(self.total, candidates)

    def done(self) -> int:
        return sum(self.model.steps_played()) - sum(self.begun_at)

    def left(self, rate: float) -> float:
        """Estimate the steps to come. rate: steps per second; NaN if unknown."""
        (candidates, evaluations), model, episodes = self.model.steps_played(), self.model, self.judging
        steps = max(self.total - candidates, 0) * (1.0 + self._evaluated)
        if model.ends_at < math.inf and not math.isnan(rate):
            in_time = max(model.ends_at - time.monotonic(), 0.0) * rate
            self.is_timed = in_time < steps
            steps = min(steps, in_time)
        if self.is_over and not self.is_whole and not self.phase:  # it was stopped early: nothing follows
            return steps
        if self.is_over:
            steps = 0.0 if self.is_whole or self.judging else steps
        else:
            episodes += model.selection.episodes_to_come()
            archive = model.training.archive
            if archive is not None and not archive.had_final_selection(model.generation):
                snapshots = len(archive.best()) if candidates >= self.total else archive.size
                episodes += episodes_of_selection(snapshots + 1)
        steps += max(episodes - self._phase_episodes, 0) * self._episode_steps
        return steps + (max(self._phase_ends - evaluations, 0.0) if self.phase else 0.0)


class ProgressBar(Callback):
    """A bar over everything that a training plays, on a terminal or as a widget in a notebook.

    Args:
        line_seconds: Time between two lines on stderr if that is a file or a pipe; None for no lines.
        judging: Noise-free episodes that follow training (see `judge`). The bar then continues until `close` and vanishes.
    """

    def __init__(self, line_seconds: float | None = None, judging: int = 0) -> None:
        self._line_seconds, self._judging = line_seconds, judging
        self._trainings: dict[int, _Training] = {}
        self._evaluations: dict[int, float] = {}  # the last one of each training
        self._means: dict[int, float] = {}  # of the last population of each training
        self._best, self._utilisation = -math.inf, math.nan
        self._face: Face | None = None
        self._lock = threading.RLock()
        self._looking: Repeatedly | None = None
        self._begun = self._shown_at = 0.0
        self._share = 0.0
        register_for_forks(self)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset_after_fork(self) -> None:
        """See forks.Owner: two processes would draw in one line."""
        self._face, self._looking, self._lock = None, None, threading.RLock()

    # --- callbacks of a training --------------------------------------------------------------------------------------

    def on_start(self, model: Model, total_timesteps: int) -> None:
        if all(training.is_over for training in self._trainings.values()) and len(self._trainings) == self.expected:
            self._trainings.clear()  # those of an earlier call of learn
        self._trainings[id(model)] = _Training(model, total_timesteps, self._judging)
        if len(self._trainings) == 1:
            self._begin()

    def on_generation(self, model: Model, record: Record) -> None:
        self._trainings[id(model)].end_generation(record)
        if record.eval_generation:
            self._evaluations[id(model)] = record.eval_return
        self._means[id(model)], self._utilisation = record.return_mean, record.utilisation
        self._best = max(self._best, model.selection.counters.best_eval_return)
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
        """Show the episodes that judge a training's result. episodes: their number; 0 when they have ended."""
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

    # --- content ------------------------------------------------------------------------------------------------------

    @property
    def expected(self) -> int:
        """Number of trainings."""
        return 1

    def _all_are_over(self) -> bool:
        over = sum(training.is_over for training in self._trainings.values())
        return over == self.expected

    def progress(self) -> Progress:
        """Return the progress at this moment."""
        trainings, ahead = list(self._trainings.values()), sum(self._running())
        done, seconds = sum(each.done() for each in trainings) + ahead, time.monotonic() - self._begun
        rate = done / seconds if done and seconds else math.nan
        left = sum(each.left(rate / len(trainings)) for each in trainings)
        left += (self.expected - len(trainings)) * trainings[0].total
        left = max(left - ahead, 1.0) if left else 0.0
        whole = done  # of a training that was resumed, with what came before; of one for some minutes, what came in these
        if not any(each.is_timed for each in trainings):
            whole += sum(sum(each.begun_at) for each in trainings)
        self._share = max(self._share, min(whole / (whole + left), 0.9999)) if left > 0.0 else 1.0
        return Progress(self._share, seconds, left / rate if left else 0.0, rate, self._phase(trainings), self._notes())

    def _running(self) -> StepsPlayed:
        """Return the steps of running episodes if several trainings share a pool: they belong to no single training."""
        evaluator = next(iter(self._trainings.values())).model.evaluator
        if not evaluator.is_shared:
            return StepsPlayed()
        models = [each.model for each in self._trainings.values()]
        known = [steps for model in models for steps in (model.steps_played(), model.dropped_steps)]
        played = evaluator.steps_played()
        candidates, evaluations = (sum(each) for each in zip(*known, strict=True))
        return StepsPlayed(max(played.candidates - candidates, 0), max(played.evaluations - evaluations, 0))

    def _phase(self, trainings: list[_Training]) -> str:
        """Return the phase that all running trainings have in common, or else the number of training steps so far."""
        phases = {each.phase for each in trainings if not each.is_over or each.phase}
        if len(phases) == 1 and (phase := phases.pop()):
            return phase
        counts = [each.counts() for each in trainings]
        total = sum(count[1] for count in counts) + (self.expected - len(trainings)) * trainings[0].total
        made = min(sum(count[0] for count in counts) + self._running().candidates, total)
        if made == total:
            return f"{short(made)} steps"
        if any(each.is_timed and not each.is_over for each in trainings):
            return f"of {trainings[0].model.max_minutes:g} min, {short(made)} steps"  # after the percentage
        return f"{short(made)} of {short(total)} steps"

    def _notes(self) -> tuple[str, ...]:
        """Return the last evaluation, the best one, the mean of the last population and the workers' utilisation, if known."""
        median = "median " if self.expected > 1 else ""
        notes = [f"{median}eval {digits_of(statistics.median(self._evaluations.values()))}"] if self._evaluations else []
        notes += [f"best {digits_of(self._best)}"] if math.isfinite(self._best) else []
        notes += [f"{median}mean {digits_of(statistics.median(self._means.values()))}"] if self._means else []
        return (*notes, f"util {self._utilisation:.0%}") if math.isfinite(self._utilisation) else tuple(notes)

    def _begin(self) -> None:
        self._end(stays=True)
        self._begun = self._shown_at = time.monotonic()
        self._share, self._evaluations, self._means, self._best, self._utilisation = 0.0, {}, {}, -math.inf, math.nan
        self._face = choose_face(self._line_seconds)
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
    """A bar over several trainings that run side by side.

    Args:
        trainings: Their number.
        line_seconds: See ProgressBar.
        judging: See ProgressBar.
    """

    def __init__(self, trainings: int, line_seconds: float | None = 10.0, judging: int = 0) -> None:
        super().__init__(line_seconds, judging)
        self._number = trainings

    @property
    def expected(self) -> int:
        return self._number

    def close(self) -> None:
        self._end(stays=True)  # no other output reports on these trainings

    def _notes(self) -> tuple[str, ...]:
        ended = sum(training.is_whole for training in self._trainings.values())
        notes, after = super()._notes(), 1 if self._evaluations else 0
        return (*notes[:after], f"{ended} of {self._number} ended", *notes[after:])
