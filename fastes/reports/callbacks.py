"""What runs beside the loop: a protocol of a few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastes.training.evaluation import Evaluation, FinishedEvaluation
from fastes.training.final_selection import FinalSelection
from fastes.training.record import Record
from fastes.training.selection import Rung


class Callback:
    """Subclass and override what you need. model is the FastES that trains.

    on_generation may return False to stop training at once. on_new_best is called while the model still holds the
    parameters whose evaluation was the best so far, before they move on. on_rung is called after each rung of several
    `trials`, when the model holds the best of those that go on; rung has the scores. on_final_selection is called after the
    final selection of an `archive_size`, when the model holds the winner. on_not_confirmed is called when an evaluation has
    reached the target and the fresh episodes that follow have not: finished is the one, confirmation the others. on_phase is
    called before noise-free episodes that belong to no generation: those that score trials, confirm the target, or are a
    final selection's; name says which, and episodes how many.

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
    """A plain function of (model, record), called once a generation; a false result other than None stops training."""

    def __init__(self, function: Callable[[Any, Record], bool | None]) -> None:
        self.function = function

    def on_generation(self, model: Any, record: Record) -> bool | None:
        return self.function(model, record)


class CallbackList(Callback):
    """Several callbacks as one; all are called, any may stop."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = list(callbacks)

    @property
    def reads_infos(self) -> bool:  # type: ignore[override]
        return any(callback.reads_infos for callback in self.callbacks)

    def on_start(self, model: Any, total_timesteps: int) -> None:
        for callback in self.callbacks:
            callback.on_start(model, total_timesteps)

    def on_new_best(self, model: Any, eval_return: float) -> None:
        for callback in self.callbacks:
            callback.on_new_best(model, eval_return)

    def on_rung(self, model: Any, rung: Rung) -> None:
        for callback in self.callbacks:
            callback.on_rung(model, rung)

    def on_final_selection(self, model: Any, result: FinalSelection) -> None:
        for callback in self.callbacks:
            callback.on_final_selection(model, result)

    def on_not_confirmed(self, model: Any, finished: FinishedEvaluation, confirmation: Evaluation) -> None:
        for callback in self.callbacks:
            callback.on_not_confirmed(model, finished, confirmation)

    def on_phase(self, model: Any, name: str, episodes: int) -> None:
        for callback in self.callbacks:
            callback.on_phase(model, name, episodes)

    def on_generation(self, model: Any, record: Record) -> bool:
        answers = [callback.on_generation(model, record) for callback in self.callbacks]
        return all(answer is None or bool(answer) for answer in answers)

    def on_end(self, model: Any) -> None:
        for callback in self.callbacks:
            callback.on_end(model)
