"""Several starts: trainings from scratch that share the first part of the budget, of which the best goes on."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import MAX_COUNTER, Kinds, check_arrays, check_record, is_count, is_number_or_none
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.es.perturbations import draw_eval_seeds
from fastes.policies.choose_policy import AnySpec
from fastes.policies.custom_policy import CustomSpec
from fastes.rollout.episode import STEP_GUARD
from fastes.settings.settings import Settings
from fastes.training.episode_cap import EpisodeCap

_OLDER = {"begun_generation": 0, "stride": None}  # what files of earlier versions do not say
_UNKNOWN_LENGTH = 1000  # of an episode of an environment that has no limit
_MOST_GENERATIONS = 100_000  # that a start is thought to have
_FURTHER = 2**30  # from here on numbers of generations that came unexpected
EPISODES = 10  # noise-free ones that judge a start
_JUDGES = 2**31  # in the place of a generation, which no training gets to: the same environment seeds for every start
_STRIDE = 0x9E3779B97F4A7C15  # golden ratio of 2^64: seeds of initial parameters that lie far from those of other runs
_GIVEN = "given_theta"


class Start(NamedTuple):
    """What a start had learned when its part of the budget was spent. arrays: of strategy and normaliser."""

    score: float
    episode_cap: int
    first_blocks: int
    arrays: Arrays


class Stride(NamedTuple):
    """Generations and timesteps that a start takes where no episode ends early. So far lie the draws of starts apart."""

    generations: int
    timesteps: int


def usual_start(settings: Settings, budget: int, episode_limit: int | None) -> Stride:
    """Of a training with this budget. episode_limit: the environment's, None where it has none."""
    cap, generations, timesteps = EpisodeCap(settings), 0, 0
    episodes = settings.population_size * settings.episodes_per_candidate
    limit = min(settings.max_episode_steps or STEP_GUARD, episode_limit or STEP_GUARD)
    limit = limit if limit < STEP_GUARD else _UNKNOWN_LENGTH
    while timesteps < settings.starts_share * budget / settings.starts and generations < _MOST_GENERATIONS:
        steps = min(cap.steps, limit)
        warm_up = not generations and settings.obs_warmup and settings.normalize_obs
        timesteps += max(episodes * steps, settings.generation_timesteps) * (2 if warm_up else 1)
        cap.update(np.full(1, steps, dtype=np.int64))
        generations += 1
    return Stride(generations, timesteps)


class Starts:
    """Counts the starts that were judged, and keeps the best of them until all were.

    Each start trains for starts_share * budget / number timesteps, with its own noise, and from its own initial parameters
    where the policy draws them. It is judged by its mean noise-free return over EPISODES episodes, the same ones for
    all. What is decided depends on timesteps and returns alone, and checkpoints hold it: no number of workers changes it. They
    hold a custom policy's first parameters, too: the one that is passed on loading may have other ones.
    """

    def __init__(self, settings: Settings, spec: AnySpec, seed: int, episode_limit: int | None = None) -> None:
        self.episode_limit = episode_limit  # of the environment
        self.stride: Stride | None = None  # of this training, once its budget is known
        self.number, self.share = settings.starts, settings.starts_share
        self.seed = seed  # of the episodes that judge: the model's first one, whatever it draws from later
        self.given = {_GIVEN: spec.theta0} if isinstance(spec, CustomSpec) else {}
        self.judged = 0
        self.begun_generation = 0  # the first one of the present start
        self.begun_at = 0  # num_timesteps when the present one began; negative where these were counted anew since
        self.best: Start | None = None

    @property
    def has_unjudged_starts(self) -> bool:
        """Whether there are starts to be judged."""
        return self.best is not None or self.judged < self.number > 1

    def due(self, num_timesteps: int, budget: int) -> bool:
        """Whether the present start has spent its part, or all that is left, or is one more than the settings have by now."""
        spent = num_timesteps - self.begun_at >= self.share * budget / self.number or num_timesteps >= budget
        return self.has_unjudged_starts and (self.judged >= self.number or spent)

    def reached(self, num_timesteps: int) -> int:
        """The timesteps that schedules go by: what a start begins with depends on no episode of those before."""
        if self.stride is None or not self.has_unjudged_starts:
            return num_timesteps
        return self.judged * self.stride.timesteps + num_timesteps - self.begun_at

    def drawn_as(self, generation: int) -> int:
        """The number that a generation is drawn with: the start and how many it has played decide, and not those before.

        Those that a start usually has are numbered one start after the other, and further ones apart from all others.
        """
        if self.stride is None or not self.has_unjudged_starts:
            return generation
        own, usual = generation - self.begun_generation, self.stride.generations
        return self.judged * usual + own if own < usual else _FURTHER + self.judged * _MOST_GENERATIONS + own - usual

    def judges(self) -> npt.NDArray[np.int64]:
        """Environment seeds int64 (EPISODES,) of the episodes that judge a start."""
        return draw_eval_seeds(self.seed, _JUDGES, EPISODES)

    def initial_theta(self, spec: AnySpec, seed: int) -> npt.NDArray[np.float32]:
        """The first parameters of the next start of a training with this seed."""
        given = self.given.get(_GIVEN)
        return spec.initial_theta((seed + self.judged * _STRIDE) % 2**63) if given is None else given

    def end(self) -> None:
        """What the model has is trained on: all were judged, its parameters were given, or it is solved."""
        self.judged, self.best = self.number, None

    def state(self) -> tuple[dict[str, Any] | None, Arrays]:
        """JSON values and arrays for a checkpoint; nothing once all were judged."""
        if not self.has_unjudged_starts:
            return None, {}
        unknown = dict.fromkeys(("score", "episode_cap", "first_blocks"))
        data: dict[str, Any] = {"seed": self.seed, "judged": self.judged, "begun_at": self.begun_at, **unknown}
        data |= {"begun_generation": self.begun_generation, "stride": None if self.stride is None else list(self.stride)}
        given = {name: theta.copy() for name, theta in self.given.items()}
        if self.best is None:
            return data, given
        data |= self.best._asdict()
        data["score"] = self.best.score if math.isfinite(self.best.score) else None
        return data, {**given, **{name: array.copy() for name, array in data.pop("arrays").items()}}

    def load_state(
        self,
        data: object,
        arrays: Mapping[str, npt.NDArray[Any]],
        like: Mapping[str, npt.NDArray[Any]],
        begins: bool,
    ) -> None:
        """Go on from `state()`; None where all were judged, or a file is older.

        like: arrays as the model has them.
        begins: whether starts begin where there is no state: not in a model that was trained, nor where its own are over.

        Raises CheckpointError for what it cannot be.
        """
        if data is None and not arrays:
            if not begins:
                self.end()
            return
        data = check_record("starts", {**_OLDER, **data} if isinstance(data, dict) else data, _KINDS)
        known = data["episode_cap"] is not None
        given = {name: arrays[name] for name in self.given if name in arrays}
        learned = {name: array for name, array in arrays.items() if name not in given}
        if (data["first_blocks"] is not None) != known or bool(learned) != known or known != (data["judged"] > 0):
            raise CheckpointError(f"the checkpoint's starts are {reprlib.repr(data)} with the arrays {sorted(arrays)}")
        check_arrays(given, self.given)
        self.given = given
        if known:
            check_arrays(learned, like)
            score = -math.inf if data["score"] is None else data["score"]
            self.best = Start(score, data["episode_cap"], data["first_blocks"], learned)
        self.seed, self.judged, self.begun_at = data["seed"], data["judged"], data["begun_at"]
        self.begun_generation = data["begun_generation"]
        self.stride = None if data["stride"] is None else Stride(*data["stride"])


def _is_count_or_none(value: object) -> bool:
    return value is None or is_count(value, low=1)


def _is_stride(value: object) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(is_count(each, low=1) for each in value))


_KINDS: Kinds = {
    "begun_generation": is_count,
    "stride": _is_stride,
    "seed": lambda value: type(value) is int and 0 <= value < 2**63,
    "judged": is_count,
    "begun_at": lambda value: is_count(value, low=-MAX_COUNTER),
    "score": is_number_or_none,
    "episode_cap": _is_count_or_none,
    "first_blocks": _is_count_or_none,
}
