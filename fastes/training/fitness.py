"""From the returns of a generation to the fitness that it is judged by: the alive bonus is taken away here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastes.errors import NotFinite
from fastes.es.schedules import ANY_NUMBER, make_schedule
from fastes.rollout.batch import Batch
from fastes.settings.settings import Settings


def fitness_of(batch: Batch, settings: Settings, generation: int, progress_remaining: float) -> npt.NDArray[np.float64]:
    """Returns less the alive bonus for each step, float64 (num_pairs, 2).

    generation: as errors count it.
    progress_remaining: what this generation's sigma was drawn with.

    Raises NotFinite when every candidate failed, and what the schedule of alive_bonus raises.
    """
    if batch.penalised and not batch.finite_returns.size:
        raise NotFinite(
            f"every candidate of generation {generation} failed, one of them with {batch.penalised}; parameters are "
            "unchanged. With on_env_error='stop' the first exception ends the training and is shown whole"
        )
    if not settings.alive_bonus:
        return batch.returns
    bonus = make_schedule("alive_bonus", settings.alive_bonus, ANY_NUMBER)(progress_remaining)
    return batch.returns - bonus * batch.lengths / batch.per_candidate if bonus else batch.returns
