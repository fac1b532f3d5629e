"""An archive: the parameters with the best evaluations, of which a final selection takes the best when a training ends."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from fastes.checkpoints.field_checks import (
    MAX_COUNTER,
    Kinds,
    check_record,
    damaged,
    is_count,
    is_generation,
    is_number_or_none,
)
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.number_array import Float32
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.settings.settings import MOST_SNAPSHOTS, Settings
from fastes.training.evaluation import FinishedEvaluation, policy_from_fields, policy_to_fields

SCREENING_EPISODES, FINAL_EPISODES = 10, 50  # of a final selection: of all finalists, and further ones of the better half
_SEGMENTS = 4  # of the budget, for each snapshot


class Snapshot(NamedTuple):
    """The parameters that stand for a segment of the budget, with the statistics of their observations.

    Attributes:
        generation: The one whose candidates perturbed them, as the strategy counts, from 0.
        timesteps: num_timesteps that they had been trained with; negative if these were counted anew since.
        evaluation: Their mean noise-free return, the best of the segment; NaN for the winner of a final selection.
        total: Sum of all evaluations of the segment; 0 for the winner of a final selection.
        evaluations: Number of these evaluations; 0 for the winner of a final selection.
        theta: float32 (num_params,), read-only.
        normalizer: The statistics of their observations.
    """

    generation: int
    timesteps: int
    evaluation: float
    total: float
    evaluations: int
    theta: Float32
    normalizer: ObsNormalizer

    @property
    def score(self) -> float:
        """The mean of its segment's evaluations; infinity for a winner, which stays until the next final selection."""
        return self.total / self.evaluations if self.evaluations else math.inf


class Archive(NamedTuple):
    """Keeps a snapshot of each of the best segments of the budget.

    The budget is divided into 4 segments for each snapshot. Neighbouring generations have nearly the same theta: one of them
    is enough, and all their evaluations together say what it is worth. A single one says little if returns vary: the best of
    many had easy episodes. The choice is left to the final selection.

    Attributes:
        size: Snapshots that are kept.
        snapshots: The oldest first; one more than `size`, since the last one's segment may go on.
        selected: Generations that there had been at the last final selection.
    """

    size: int
    snapshots: tuple[Snapshot, ...] = ()
    selected: int = 0

    @classmethod
    def start(cls, settings: Settings) -> Archive | None:
        """An empty archive; None if the setting is off."""
        return cls(settings.archive_size) if settings.archive_size else None

    def after(self, finished: FinishedEvaluation, budget: int) -> Archive:
        """The archive after an evaluation.

        Args:
            finished: The evaluation; they come in the order of the generations.
            budget: The training's, in timesteps.
        """
        pending, mean = finished.pending, finished.evaluation.mean
        if mean == -math.inf:
            return self
        own = Snapshot(pending.generation, pending.timesteps, mean, mean, 1, pending.theta, pending.normalizer)
        length = max(budget, 1) / (_SEGMENTS * self.size)
        last = self.snapshots[-1] if self.snapshots else None
        if last is None or not last.evaluations or last.timesteps // length != own.timesteps // length:
            return self._replace(snapshots=(*self.best(), own))
        if not math.isfinite(total := last.total + mean):
            return self
        better = own if mean >= last.evaluation else last
        joined = better._replace(total=total, evaluations=last.evaluations + 1)
        return self._replace(snapshots=(*self.snapshots[:-1], joined))

    def best(self) -> tuple[Snapshot, ...]:
        """The best `size` snapshots, the oldest first; of equal ones the latest."""
        kept = list(self.snapshots)
        while len(kept) > self.size:
            del kept[min(range(len(kept)), key=lambda n: self._rank(kept[n]))]
        return tuple(kept)

    def _rank(self, snapshot: Snapshot) -> float:
        """An earlier winner stays, unless a single snapshot leaves no room for a new one."""
        return snapshot.score if snapshot.evaluations or self.size > 1 else -math.inf

    def is_due(self, generation: int) -> bool:
        """Whether there are snapshots that no final selection has compared. generation: how many there have been."""
        return bool(self.snapshots) and generation > self.selected

    def had_final_selection(self, generation: int) -> bool:
        """Whether the present parameters have won a final selection, and were trained no further."""
        return 0 < generation == self.selected

    def after_final_selection(self, winner: Snapshot) -> Archive:
        """The archive after a final selection: the winner takes part in the next one."""
        return self._replace(snapshots=(winner,), selected=winner.generation)

    def counted_anew(self, num_timesteps: int) -> Archive:
        """Return the archive with the timesteps of its snapshots counted from num_timesteps on."""
        return self._replace(
            snapshots=tuple(each._replace(timesteps=each.timesteps - num_timesteps) for each in self.snapshots)
        )

    def emptied(self) -> Archive:
        """The archive once the parameters or the environment are others."""
        return Archive(self.size)

    def to_fields(self) -> tuple[dict[str, Any], Arrays]:
        """JSON values and arrays for a checkpoint."""
        snapshots: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for number, each in enumerate(self.snapshots):
            values = {name: value for name, value in each._asdict().items() if name in _KINDS_OF_ONE}
            snapshots.append({**values, "evaluation": each.evaluation if each.evaluations else None})
            arrays |= policy_to_fields(number, each.theta, each.normalizer)
        return {"selected": self.selected, "snapshots": snapshots}, arrays

    def from_fields(
        self, place: str, fields: object, arrays: Mapping[str, npt.NDArray[Any]], normalizer: ObsNormalizer, theta: Float32
    ) -> Archive:
        """The archive of `to_fields`; with less room the best snapshots stay.

        Args:
            place: The fields' place in the checkpoint, for messages.
            fields: JSON values.
            arrays: The arrays beside them.
            normalizer: The training's statistics; those of a snapshot have to be like them.
            theta: The training's parameters, float32 (num_params,); those of a snapshot have to be like them.

        Raises:
            CheckpointError: If a field or an array does not fit.
        """
        values, found, left = check_record(place, fields, _KINDS), [], dict(arrays)
        for number, each in enumerate(values["snapshots"]):
            its = check_record(f"{place}.snapshots.{number}", each, _KINDS_OF_ONE)
            if (its["evaluation"] is None) != (its["evaluations"] == 0):
                raise damaged(f"{place}.snapshots.{number}", its)
            its = its if its["evaluations"] else {**its, "evaluation": math.nan}
            its_theta, its_normalizer = policy_from_fields(place, number, left, normalizer, theta)
            found.append(Snapshot(**its, theta=its_theta, normalizer=its_normalizer))
        if left:
            raise CheckpointError(f"the checkpoint's {place!r} has the arrays {reprlib.repr(sorted(left))} of no snapshot")
        archive = Archive(self.size, tuple(found), values["selected"])
        return archive._replace(snapshots=archive.best()) if len(found) > self.size + 1 else archive


_KINDS: Kinds = {
    "selected": is_generation,
    "snapshots": lambda value: isinstance(value, list) and len(value) <= MOST_SNAPSHOTS + 1,
}
_KINDS_OF_ONE: Kinds = {
    "generation": is_generation,
    "timesteps": lambda value: is_count(value, low=-MAX_COUNTER),
    "evaluation": is_number_or_none,
    "total": lambda value: value is not None and is_number_or_none(value),
    "evaluations": is_count,
}
