"""Callbacks: objects whose methods a training calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastes.errors import shown
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.training.evaluation import Evaluation, FinishedEvaluation
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Generation, Record
from fastes.training.selection import Rung


class Callback:
    """Subclass and override what you need. model is the FastES that trains.

    on_generation may return False to stop training at once. on_new_best is called while the model still holds the
    parameters whose evaluation was the best so far. on_rung is called after each rung of several `trials`, when the model
    holds the best of those that continue; rung has the scores. on_final_selection is called after the final selection of an
    `archive_size`, when the model holds the winner. on_not_confirmed is called when an evaluation has reached the target and
    the fresh episodes that follow have not: finished is the evaluation, confirmation the fresh episodes. on_phase is called
    before noise-free episodes that belong to no generation: those that score trials, confirm the target, or are a final
    selection's; name says which, and episodes how many.

    Attributes:
        reads_infos: Whether generations have to come with the infos of their episodes' last steps.
    """

    reads_infos = False

    def on_start(self, model: Any, total_timesteps: int) -> None: ...

    def on_new_best(self, model: Any, eval_return: float) -> None: ...

    def on_rung(self, model: Any, rung: Rung) -> None: ...

    def on_final_selection(self, model: Any, result: FinalSelection) -> None: ...

    def on_not_confirmed(self, model: Any, finished: FinishedEvaluation, confirmation: Evaluation) -> None: ...

    def on_phase(self, model: Any, name: str, episodes: int) -> None: ...

    def on_generation(self, model: Any, record: Record) -> bool | None: ...

    def on_end(self, model: Any) -> None: ...


class FunctionCallback(Callback):
    """A function of (model, record), called once per generation; a false result other than None stops training."""

    def __init__(self, function: Callable[[Any, Record], bool | None]) -> None:
        self.function = function

    def on_generation(self, model: Any, record: Record) -> bool | None:
        return self.function(model, record)


def as_callbacks(callback: Any, adapted: Callable[[Any], Callback | None] = lambda _: None) -> list[Callback]:
    """Make a list of Callbacks of the argument `callback` of `learn`.

    Args:
        callback: A Callback, a function of (model, record), a list of these, or None.
        adapted: Makes a Callback of a reporter's name, or of an object that another library would take; None for others.

    Raises:
        TypeError: For anything else.
    """
    if callback is None:
        return []
    if isinstance(callback, type):
        raise TypeError(f"callback = {shown(callback)} is a class: pass an object of it, such as {callback.__name__}()")
    if isinstance(callback, Callback):
        return [callback]
    if (other := adapted(callback)) is not None:
        return [other]
    if isinstance(callback, Sequence) and not isinstance(callback, (str, bytes)):
        return [each for item in callback for each in as_callbacks(item, adapted)]
    if callable(callback):
        return [FunctionCallback(callback)]
    raise TypeError(
        f"callback = {shown(callback)} is a {type(callback).__name__}: expected a Callback of FastES or SB3, a function, the "
        "name of a reporter, or a list of them"
    )


class CallbackListener:
    """A trainer's listener that calls callbacks with the model, and warns of odd statistics.

    Args:
        model: The model that trains.
        callbacks: All of its callbacks. All are called, and each can stop the training.
        warnings: The model's, by trial: none is repeated in a later call of `learn`.
        target_return: Noise-free return at which the training ends.
    """

    def __init__(
        self, model: Any, callbacks: Sequence[Callback], warnings: dict[int, StatisticsWarnings], target_return: float
    ) -> None:
        self._model, self._callbacks, self._warnings = model, callbacks, warnings
        self._target_return = target_return

    def on_generation(self, record: Record, generation: Generation) -> bool:
        answers = [callback.on_generation(self._model, record) for callback in self._callbacks]
        training, selection = self._model.training, self._model.selection
        finished = training.latest_evaluations[-1] if record.eval_generation else None
        if record.trial not in self._warnings:
            self._warnings[record.trial] = StatisticsWarnings(next((each.of_env for each in self._warnings.values()), None))
        race = selection.is_race and selection.sizes[0] > 1, selection.is_open_race
        self._warnings[record.trial].check(training, record, generation.batch, finished, self._target_return, *race)
        return all(answer is None or bool(answer) for answer in answers)

    def on_new_best(self, eval_return: float) -> None:
        for callback in self._callbacks:
            callback.on_new_best(self._model, eval_return)

    def on_not_confirmed(self, finished: FinishedEvaluation, confirmation: Evaluation) -> None:
        for callback in self._callbacks:
            callback.on_not_confirmed(self._model, finished, confirmation)

    def on_rung(self, rung: Rung) -> None:
        for callback in self._callbacks:
            callback.on_rung(self._model, rung)

    def on_final_selection(self, result: FinalSelection) -> None:
        for callback in self._callbacks:
            callback.on_final_selection(self._model, result)

    def on_phase(self, name: str, episodes: int) -> None:
        for callback in self._callbacks:
            callback.on_phase(self._model, name, episodes)
