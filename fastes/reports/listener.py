"""The way from a trainer to a model's callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastes.models.model import Model
from fastes.reports.callbacks import Callback
from fastes.reports.training_warnings import StatisticsWarnings
from fastes.training.evaluation import Evaluation, FinishedEvaluation
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Generation, Record
from fastes.training.selection import Rung

if TYPE_CHECKING:
    from fastes.training.trainer import Listener


class CallbackListener:
    """A trainer's listener that calls callbacks with the model, and warns of odd statistics.

    Args:
        model: The model that trains.
        callbacks: All of its callbacks, as one.
        warnings: The model's, of each trial: what was said once is not said again.
    """

    def __init__(self, model: Model, callbacks: Callback, warnings: dict[int, StatisticsWarnings]) -> None:
        self._model, self._callbacks, self._warnings = model, callbacks, warnings

    def on_generation(self, record: Record, generation: Generation) -> bool:
        stops = self._callbacks.on_generation(self._model, record) is False
        training = self._model.training
        finished = training.latest_evaluations[-1] if record.eval_generation else None
        warnings = self._warnings.setdefault(record.trial, StatisticsWarnings())
        warnings.check(training, record.generation, generation.batch, finished)
        return not stops

    def on_new_best(self, eval_return: float) -> None:
        self._callbacks.on_new_best(self._model, eval_return)

    def on_not_confirmed(self, finished: FinishedEvaluation, confirmation: Evaluation) -> None:
        self._callbacks.on_not_confirmed(self._model, finished, confirmation)

    def on_rung(self, rung: Rung) -> None:
        self._callbacks.on_rung(self._model, rung)

    def on_final_selection(self, result: FinalSelection) -> None:
        self._callbacks.on_final_selection(self._model, result)

    def on_phase(self, name: str, episodes: int) -> None:
        self._callbacks.on_phase(self._model, name, episodes)


if TYPE_CHECKING:
    _: type[Listener] = CallbackListener
