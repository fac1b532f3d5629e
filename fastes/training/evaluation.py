"""Noise-free episodes of theta: what they gave, whose they are, and which play while training goes on."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import (
    Kinds,
    check_alternatives,
    check_arrays,
    check_record,
    is_count,
    with_alternatives,
)
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.es.fitness_shaping import mean_and_std
from fastes.rollout.obs_normalizer import PREFIX, ObsNormalizer
from fastes.settings.settings import Settings

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
_NONE: dict[str, Any] = {}
_MOST = 1000  # that a checkpoint may hold


class Evaluation(NamedTuple):
    """Noise-free episodes: returns float64 (episodes,), lengths int64 (episodes,), env_seeds int64 (episodes,)."""

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    env_seeds: npt.NDArray[np.int64]

    @property
    def timesteps(self) -> int:
        """Environment steps of all of them."""
        return int(self.lengths.sum())

    @property
    def mean(self) -> float:
        """Mean return; -inf when one is not finite."""
        values = self.returns.tolist()
        return mean_and_std(values)[0] if all(map(math.isfinite, values)) else -math.inf

    @property
    def std(self) -> float:
        """Population standard deviation of the returns; NaN when one is not finite."""
        values = self.returns.tolist()
        return mean_and_std(values)[1] if all(map(math.isfinite, values)) else math.nan

    @property
    def worst(self) -> float:
        """Lowest return; NaN when one is NaN."""
        return float(self.returns.min())

    def in_words(self) -> str:
        """Mean, standard deviation and worst: what somebody may rely on."""
        return f"return {self.mean:.1f} +- {self.std:.1f}, worst {self.worst:.1f}"

    def __repr__(self) -> str:
        low, high = (self.returns.min(), self.returns.max()) if len(self.returns) else (math.nan, math.nan)
        return (
            f"Evaluation(mean={self.mean:.2f}, std={self.std:.2f}, min={low:.2f}, max={high:.2f}, episodes={len(self.returns)})"
        )


class Pending(NamedTuple):
    """A theta whose noise-free episodes are played, or were, and are not yet part of a generation's statistics.

    generation: it was perturbed in, as the strategy counts, from 0.
    drawn_as: the number that its environment seeds are drawn with.
    timesteps: that it had been trained with.
    theta: float32 (num_params,), read-only.
    normalizer: of its observations.
    returns: of that generation's candidates that were finite, float64 (n,).
    is_told: whether it was told already, when a training had ended.
    alternatives: of its start, where that is not the present one: see Settings.alternatives.
    calls: how many of the training's calls its environments are given.
    """

    generation: int
    drawn_as: int
    timesteps: int
    theta: Float32
    normalizer: ObsNormalizer
    returns: Float64
    is_told: bool = False
    alternatives: dict[str, Any] = _NONE
    calls: int = 0


class Told(NamedTuple):
    """An evaluation that is finished, and whose it is."""

    pending: Pending
    evaluation: Evaluation

    @property
    def rank(self) -> int:
        """Theta's place among the candidates of its generation, 1 is above all."""
        return 1 + int(np.count_nonzero(self.pending.returns > self.evaluation.mean))


def state_of(pending: Sequence[Pending]) -> tuple[list[dict[str, Any]] | None, Arrays]:
    """JSON values and arrays for a checkpoint, the oldest first; nothing where there are none."""
    if not pending:
        return None, {}
    data = [{name: value for name, value in each._asdict().items() if name in _KINDS} for each in pending]
    for record in data:
        if not record["calls"]:
            del record["calls"]
    arrays: Arrays = {}
    for number, each in enumerate(pending):
        arrays |= numbered_policy(number, each.theta, each.normalizer) | {f"{number}.returns": each.returns.copy()}
    return data, arrays


def numbered_policy(number: int, theta: Float32, normalizer: ObsNormalizer) -> Arrays:
    """Copies of theta and its statistics, under names that tell them from those of others."""
    own: Arrays = {"theta": theta.copy(), **normalizer.named_state()}
    return {f"{number}.{name}": array for name, array in own.items()}


def take_policy(
    number: int, arrays: dict[str, npt.NDArray[Any]], normalizer: ObsNormalizer, theta: Float32, settings: Settings
) -> tuple[Float32, ObsNormalizer]:
    """What `numbered_policy` gave, out of these arrays.

    normalizer, theta: of the model. settings: that the policy was evaluated with.

    Raises CheckpointError.
    """
    like: Arrays = {"theta": theta, **normalizer.named_state()}
    own = {name: arrays.pop(key) for name in like if (key := f"{number}.{name}") in arrays}
    check_arrays(own, like)
    its_theta = own["theta"].copy()
    its_theta.flags.writeable = False
    its_normalizer = normalizer.like({name.removeprefix(PREFIX): array for name, array in own.items()})
    its_normalizer.clip, its_normalizer.std_floor = settings.obs_clip, settings.obs_std_floor
    return its_theta, its_normalizer


def load_pending(
    data: object, arrays: Mapping[str, npt.NDArray[Any]], normalizer: ObsNormalizer, theta: Float32, settings: Settings
) -> tuple[Pending, ...]:
    """What `state_of` gave. normalizer, theta, settings: of the model, which say what fits. Raises CheckpointError."""
    if data is None and not arrays:
        return ()
    if not isinstance(data, list) or not 0 < len(data) <= _MOST:
        raise CheckpointError(f"the checkpoint's 'pending' is {reprlib.repr(data)}: the file is damaged or was edited")
    found, left = [], dict(arrays)
    for number, each in enumerate(data):
        values = check_record(f"pending.{number}", _with_calls(with_alternatives(each)), _KINDS)
        its_settings = check_alternatives(values["alternatives"], settings)
        its_theta, its_normalizer = take_policy(number, left, normalizer, theta, its_settings)
        returns = left.pop(f"{number}.returns", np.zeros((1, 1)))
        if returns.ndim != 1 or returns.dtype != np.float64 or not np.isfinite(returns).all():
            raise CheckpointError(
                f"the checkpoint's returns of {number} of 'pending' have shape {returns.shape} and dtype {returns.dtype}, or "
                "values that are not finite: expected finite float64 (n,)"
            )
        found.append(Pending(**values, theta=its_theta, normalizer=its_normalizer, returns=returns.copy()))
    if left:
        raise CheckpointError(f"the checkpoint has the arrays {sorted(left)} of no pending evaluation")
    return tuple(found)


def _with_calls(record: object) -> object:
    """A record that names none, with none."""
    return {"calls": 0, **record} if isinstance(record, dict) else record


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


_KINDS: Kinds = {
    "generation": lambda value: is_count(value) and value < 2**32,
    "drawn_as": lambda value: is_count(value) and value < 2**32,
    "timesteps": is_count,
    "is_told": _is_flag,
    "alternatives": lambda value: isinstance(value, dict),
    "calls": is_count,
}
