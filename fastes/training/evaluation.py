"""Noise-free episodes of theta: their results, and those that play while training continues."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import Kinds, check_arrays, check_record, damaged, is_count, is_generation
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.es.portable_math import mean_and_std
from fastes.number_array import Float32, Float64
from fastes.rollout.obs_normalizer import PREFIX, ObsNormalizer
from fastes.system.digits import in_digits
from fastes.system.html_tables import html_table

_MOST = 1000  # that a checkpoint may hold


class _Episodes(NamedTuple):
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    env_seeds: npt.NDArray[np.int64]


class Evaluation(_Episodes):
    """Noise-free episodes: returns float64 (episodes,), lengths int64 (episodes,), env_seeds int64 (episodes,)."""

    @property
    def timesteps(self) -> int:
        """Environment steps of all of them."""
        return int(self.lengths.sum())

    @property
    def mean(self) -> float:
        """Mean return; -inf if one is not finite."""
        return self._mean_and_std[0]

    @property
    def std(self) -> float:
        """Population standard deviation of the returns; NaN if one is not finite."""
        return self._mean_and_std[1]

    @cached_property
    def _mean_and_std(self) -> tuple[float, float]:
        values = self.returns.tolist()
        return mean_and_std(values) if all(map(math.isfinite, values)) else (-math.inf, math.nan)

    @property
    def worst(self) -> float:
        """Lowest return; NaN if one is NaN."""
        return float(self.returns.min())

    def in_words(self) -> str:
        """Mean, standard deviation and worst return, for people."""
        mean, std, worst = in_digits(self.mean, self.std, self.worst)
        return f"return {mean} +- {std}, worst {worst}"

    def __repr__(self) -> str:
        low, high = (self.returns.min(), self.returns.max()) if len(self.returns) else (math.nan, math.nan)
        return (
            f"Evaluation(mean={self.mean:.2f}, std={self.std:.2f}, min={low:.2f}, max={high:.2f}, episodes={len(self.returns)})"
        )

    def _repr_html_(self) -> str:
        """Return a table, which a notebook shows."""
        if not len(self.returns):
            return html_table("Evaluation", [("episodes", 0)])
        low, high = int(self.lengths.min()), int(self.lengths.max())
        lengths = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        return html_table(
            "Evaluation",
            [
                ("mean return", f"{self.mean:.2f}"),
                ("standard deviation", f"{self.std:.2f}"),
                ("worst", f"{self.worst:.2f}"),
                ("best", f"{self.returns.max():.2f}"),
                ("episodes", f"{len(self.returns)} of {lengths} steps"),
            ],
        )


class PendingEvaluation(NamedTuple):
    """A theta whose noise-free episodes play, or have played, and are not yet part of a generation's statistics.

    Attributes:
        generation: The one whose candidates perturbed it, as the strategy counts, from 0.
        timesteps: num_timesteps that it had been trained with.
        theta: float32 (num_params,), read-only.
        normalizer: The statistics of its observations.
        returns: Finite returns of that generation's candidates, float64 (n,).
        already_reported: Whether callbacks know its result: a training had ended before its turn.
        calls: How many of the training's calls its environments are given.
    """

    generation: int
    timesteps: int
    theta: Float32
    normalizer: ObsNormalizer
    returns: Float64
    already_reported: bool = False
    calls: int = 0


class FinishedEvaluation(NamedTuple):
    """An evaluation's results, beside the theta that they are of."""

    pending: PendingEvaluation
    evaluation: Evaluation

    @property
    def rank(self) -> int:
        """Theta's place among the candidates of its generation; 1 is above all."""
        return 1 + int(np.count_nonzero(self.pending.returns > self.evaluation.mean))


def pending_to_fields(pending: Sequence[PendingEvaluation]) -> tuple[list[dict[str, Any]], Arrays]:
    """JSON values and arrays for a checkpoint, the oldest first."""
    fields = [{name: value for name, value in each._asdict().items() if name in _KINDS} for each in pending]
    arrays: Arrays = {}
    for number, each in enumerate(pending):
        arrays |= policy_to_fields(number, each.theta, each.normalizer) | {f"{number}.returns": each.returns.copy()}
    return fields, arrays


def pending_from_fields(
    place: str, fields: object, arrays: Mapping[str, npt.NDArray[Any]], normalizer: ObsNormalizer, theta: Float32
) -> tuple[PendingEvaluation, ...]:
    """The evaluations of `pending_to_fields`.

    Args:
        place: The fields' place in the checkpoint, for messages.
        fields: JSON values.
        arrays: The arrays beside them.
        normalizer: The training's statistics; those of an evaluation have to be like them.
        theta: The training's parameters, float32 (num_params,); those of an evaluation have to be like them.

    Raises:
        CheckpointError: If a field or an array does not fit.
    """
    if not isinstance(fields, list) or len(fields) > _MOST:
        raise damaged(place, fields)
    found, left = [], dict(arrays)
    for number, each in enumerate(fields):
        values = check_record(f"{place}.{number}", each, _KINDS)
        its_theta, its_normalizer = policy_from_fields(place, number, left, normalizer, theta)
        returns = left.pop(f"{number}.returns", np.zeros((1, 1)))
        if returns.ndim != 1 or returns.dtype != np.float64 or not np.isfinite(returns).all():
            raise CheckpointError(
                f"the checkpoint's array '{place}.{number}.returns' has shape {returns.shape} and dtype {returns.dtype}, or "
                "values that are not finite: expected finite float64 (n,)"
            )
        found.append(PendingEvaluation(**values, theta=its_theta, normalizer=its_normalizer, returns=returns.copy()))
    if left:
        raise CheckpointError(
            f"the checkpoint's {place!r} has the arrays {reprlib.repr(sorted(left))} of no pending evaluation"
        )
    return tuple(found)


def policy_to_fields(number: int, theta: Float32, normalizer: ObsNormalizer) -> Arrays:
    """Copies of theta and its statistics, under names that begin with their number in a list."""
    own: Arrays = {"theta": theta.copy(), **normalizer.named_state()}
    return {f"{number}.{name}": array for name, array in own.items()}


def policy_from_fields(
    place: str, number: int, arrays: dict[str, npt.NDArray[Any]], normalizer: ObsNormalizer, theta: Float32
) -> tuple[Float32, ObsNormalizer]:
    """Take the arrays of `policy_to_fields` out of these. Raises CheckpointError if they are not like the training's.

    place: of these arrays in the checkpoint, for messages.
    """
    like: Arrays = {"theta": theta, **normalizer.named_state()}
    own = {name: arrays.pop(key) for name in like if (key := f"{number}.{name}") in arrays}
    check_arrays(f"{place}.{number}", own, like)
    its_theta = own["theta"].copy()
    its_theta.flags.writeable = False
    return its_theta, normalizer.like({name.removeprefix(PREFIX): array for name, array in own.items()})


_KINDS: Kinds = {
    "generation": is_generation,
    "timesteps": is_count,
    "already_reported": lambda value: isinstance(value, bool),
    "calls": is_count,
}
