"""What runs beside the loop: a protocol of a few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastes.training.archive.race import Race
from fastes.training.evaluation import Evaluation, Told
from fastes.training.record import Record


class Callback:
    """Subclass and override what you need. model is the FastES that trains.

    on_generation may return False to stop training at once. on_new_best is called while the model still holds the
    parameters whose evaluation was the best so far, before they move on. on_start_judged is called for each of several
    `starts` in each round, numbered from 1, when the model holds what goes on: the next start, or the best one. Then
    model.starts.verdict says which starts were dropped, and model.settings are those of what goes on. on_raced is called after
    the race of an `archive_size`, when the model holds the winner. on_not_confirmed is called when an evaluation has reached
    the target and the fresh episodes that follow have not: told is the one, confirmation the others. on_phase is called
    before noise-free episodes that belong to no generation: those that judge a start, confirm the target, or are a race's;
    name says which, and episodes how many.
    """

    def on_start(self, model: Any, total_timesteps: int) -> None: ...

    def on_new_best(self, model: Any, eval_return: float) -> None: ...

    def on_start_judged(self, model: Any, start: int, eval_return: float) -> None: ...

    def on_raced(self, model: Any, race: Race) -> None: ...

    def on_not_confirmed(self, model: Any, told: Told, confirmation: Evaluation) -> None: ...

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

    def on_start(self, model: Any, total_timesteps: int) -> None:
        for callback in self.callbacks:
            callback.on_start(model, total_timesteps)

    def on_new_best(self, model: Any, eval_return: float) -> None:
        for callback in self.callbacks:
            callback.on_new_best(model, eval_return)

    def on_start_judged(self, model: Any, start: int, eval_return: float) -> None:
        for callback in self.callbacks:
            callback.on_start_judged(model, start, eval_return)

    def on_raced(self, model: Any, race: Race) -> None:
        for callback in self.callbacks:
            callback.on_raced(model, race)

    def on_not_confirmed(self, model: Any, told: Told, confirmation: Evaluation) -> None:
        for callback in self.callbacks:
            callback.on_not_confirmed(model, told, confirmation)

    def on_phase(self, model: Any, name: str, episodes: int) -> None:
        for callback in self.callbacks:
            callback.on_phase(model, name, episodes)

    def on_generation(self, model: Any, record: Record) -> bool:
        answers = [callback.on_generation(model, record) for callback in self.callbacks]
        return all(answer is None or bool(answer) for answer in answers)

    def on_end(self, model: Any) -> None:
        for callback in self.callbacks:
            callback.on_end(model)
