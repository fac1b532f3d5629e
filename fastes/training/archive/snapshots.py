"""An archive: the parameters with the best evaluations, of which a race takes the best when a training ends."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import (
    MAX_COUNTER,
    Kinds,
    check_alternatives,
    check_record,
    is_count,
    is_number_or_none,
    with_alternatives,
)
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.rollout.obs_normalizer import ObsNormalizer
from fastes.settings.settings import MOST_SNAPSHOTS, Settings
from fastes.training.evaluation import Told, numbered_policy, take_policy

Float32 = npt.NDArray[np.float32]

HEAT, FINAL = 10, 50  # noise-free episodes of a race: of all that take part, and of the better half
_PARTS = 4  # of the budget, for each snapshot


class Snapshot(NamedTuple):
    """The parameters that stand for a part of the budget, with the statistics of their observations.

    generation: they were perturbed in, as the strategy counts, from 0.
    timesteps: that they had been trained with; negative where these were counted anew since.
    evaluation: their mean noise-free return, the best of the part; NaN for the winner of a race.
    total, evaluations: sum and number of all evaluations of the part; 0 for the winner of a race.
    alternatives: values of the settings in which several starts differ, that it was trained with.
    theta: float32 (num_params,), read-only.
    normalizer: of their observations.
    """

    generation: int
    timesteps: int
    evaluation: float
    total: float
    evaluations: int
    alternatives: dict[str, Any]
    theta: Float32
    normalizer: ObsNormalizer

    @property
    def score(self) -> float:
        """What it is kept for: the mean of its part's evaluations. The winner of a race stays until the next one."""
        return self.total / self.evaluations if self.evaluations else math.inf


class Archive:
    """Keeps a snapshot of each of the best parts of the budget.

    There are 4 parts for each snapshot, and where another start begins, or training goes on after a race, another part does.
    Neighbouring generations have nearly the same theta: one of them is enough, and all their evaluations together say what it
    is worth. A single one says little where returns vary: the best of many is an easy start. The rest is left to the race.
    What is kept depends on evaluations and timesteps alone, and checkpoints hold it.
    """

    def __init__(self, settings: Settings) -> None:
        self.size = settings.archive_size
        self.snapshots: tuple[Snapshot, ...] = ()  # the oldest first; one more than `size`, as the last one's part may go on
        self.raced = 0  # generations that there had been at the last race
        self.begun = 0  # the first generation of what trains now: generations before are of another start

    def note(self, told: Told, budget: int) -> None:
        """Meet an evaluation, in the order of the generations. budget: of the training, in timesteps."""
        pending, mean = told.pending, told.evaluation.mean
        if mean == -math.inf:
            return
        timesteps, policy = pending.timesteps, (pending.alternatives, pending.theta, pending.normalizer)
        own = Snapshot(pending.generation, timesteps, mean, mean, 1, *policy)
        length, last = max(budget, 1) / (_PARTS * self.size), self.snapshots[-1] if self.snapshots else None
        if last is None or not last.evaluations or self._is_of_another_part(last, own, length):
            self.snapshots = (*self.best(), own)
        elif math.isfinite(total := last.total + mean):
            better = own if mean >= last.evaluation else last
            self.snapshots = (*self.snapshots[:-1], better._replace(total=total, evaluations=last.evaluations + 1))

    def _is_of_another_part(self, last: Snapshot, own: Snapshot, length: float) -> bool:
        return last.generation < self.begun <= own.generation or last.timesteps // length != own.timesteps // length

    def best(self) -> tuple[Snapshot, ...]:
        """As many of the best as there is room for, the oldest first; of equal ones the latest."""
        kept = list(self.snapshots)
        while len(kept) > self.size:
            del kept[min(range(len(kept)), key=lambda n: self._place(kept[n]))]
        return tuple(kept)

    def _place(self, snapshot: Snapshot) -> float:
        """An earlier winner stays, unless nothing new would have a place then."""
        return snapshot.score if snapshot.evaluations or self.size > 1 else -math.inf

    def is_due(self, generation: int) -> bool:
        """Whether there is something to race, which no race has met. generation: those that there have been."""
        return bool(self.snapshots) and generation > self.raced

    def is_raced(self, generation: int) -> bool:
        """Whether the present parameters have won a race, and are trained no further."""
        return 0 < generation == self.raced

    def end_race(self, winner: Snapshot) -> None:
        """Training goes on from the winner, if at all: the others have lost, and it takes part in the next race."""
        self.snapshots, self.raced = (winner,), winner.generation

    def count_anew(self, num_timesteps: int) -> None:
        """So many timesteps are none from now on."""
        self.snapshots = tuple(each._replace(timesteps=each.timesteps - num_timesteps) for each in self.snapshots)

    def forget(self) -> None:
        """What is known is of other parameters or of another environment."""
        self.snapshots, self.raced = (), 0

    def state(self) -> tuple[dict[str, Any] | None, Arrays]:
        """JSON values and arrays for a checkpoint; nothing where the setting is off."""
        if not self.size:
            return None, {}
        snapshots: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for number, each in enumerate(self.snapshots):
            values = {name: value for name, value in each._asdict().items() if name in _KINDS_OF_ONE}
            snapshots.append({**values, "evaluation": each.evaluation if each.evaluations else None})
            arrays |= numbered_policy(number, each.theta, each.normalizer)
        return {"raced": self.raced, "begun": self.begun, "snapshots": snapshots}, arrays

    def load_state(
        self,
        data: object,
        arrays: Mapping[str, npt.NDArray[Any]],
        normalizer: ObsNormalizer,
        theta: Float32,
        settings: Settings,
    ) -> None:
        """Go on from `state()`; None and no arrays where there was none. With less room the best stay.

        normalizer, theta, settings: of the model, which say what fits. Raises CheckpointError for what it cannot be.
        """
        if data is None and not arrays:
            return
        if isinstance(data, dict):  # a file of an older version does not say where its start began
            data = {"begun": 0, **data}
        data, found, left = check_record("archive", data, _KINDS), [], dict(arrays)
        for number, each in enumerate(data["snapshots"]):
            values = check_record(f"archive.snapshots.{number}", with_alternatives(each), _KINDS_OF_ONE)
            if (values["evaluation"] is None) != (values["evaluations"] == 0):
                raise CheckpointError(f"the checkpoint's snapshot {number} is {reprlib.repr(values)}: the file was edited")
            values = values if values["evaluations"] else {**values, "evaluation": math.nan}
            its_settings = check_alternatives(values["alternatives"], settings)
            its_theta, its_normalizer = take_policy(number, left, normalizer, theta, its_settings)
            found.append(Snapshot(**values, theta=its_theta, normalizer=its_normalizer))
        if left:
            raise CheckpointError(f"the checkpoint has the arrays {reprlib.repr(sorted(left))} of no snapshot")
        self.snapshots, self.raced, self.begun = tuple(found), data["raced"], data["begun"]
        if len(found) > (self.size and self.size + 1):
            self.snapshots = self.best()


def _is_generation(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**32


_KINDS: Kinds = {
    "raced": _is_generation,
    "begun": _is_generation,
    "snapshots": lambda value: isinstance(value, list) and len(value) <= MOST_SNAPSHOTS + 1,
}
_KINDS_OF_ONE: Kinds = {
    "generation": _is_generation,
    "timesteps": lambda value: is_count(value, low=-MAX_COUNTER),
    "evaluation": is_number_or_none,
    "total": lambda value: value is not None and is_number_or_none(value),
    "evaluations": is_count,
    "alternatives": lambda value: isinstance(value, dict),
}
