"""Several starts: trainings from scratch that share the first part of the budget, of which the best goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastes.checkpoints.field_checks import check_arrays
from fastes.checkpoints.file_format import Arrays
from fastes.errors import CheckpointError
from fastes.es.perturbations import draw_eval_seeds
from fastes.policies.choose_policy import AnySpec
from fastes.policies.custom_policy import CustomSpec
from fastes.settings.settings import Settings
from fastes.training.evaluation import Evaluation
from fastes.training.starts.parts import MOST_GENERATIONS, Start, Stride, Verdict, round_sizes
from fastes.training.starts.saved import COUNTS, GIVEN, checked, described, start_from

_FURTHER = 2**30  # from here on numbers of generations that came unexpected
_JUDGES = 2**31  # in the place of a generation, and those below for later rounds: one set of environment seeds for a round
_STRIDE = 0x9E3779B97F4A7C15  # golden ratio of 2^64: seeds of initial parameters that lie far from those of other runs


class Starts:
    """Says when a start is judged and what follows, and keeps the starts that may go on until one is left.

    Rounds have equal parts of starts_share * budget, which the starts that are left in each share evenly: successive halving
    (Jamieson and Talwalkar 2016, arXiv 1502.07943). In the first one each trains with its own noise, and from its own initial
    parameters where the policy draws them; in a later one it goes on as it was. It is judged by noise-free episodes, the same
    ones for all starts of a round: by their mean where there is one round, else by their median. What is decided depends on
    timesteps and returns alone, and checkpoints hold it: no number of workers changes it. They hold a custom policy's first
    parameters, too: the one that is passed on loading may have other ones.

    running: number of the present start, from 0. round: from 0. judged: starts that were judged in it.
    kept: the best of those, the best first. waiting: those of the round before whose turn is to come, in the same order.
    verdict: of the start that was judged last, since the training was loaded; of start 0 before that.
    """

    def __init__(self, settings: Settings, spec: AnySpec, seed: int, episode_limit: int | None = None) -> None:
        self.episode_limit = episode_limit  # of the environment
        self.strides: tuple[Stride, ...] = ()  # of this training's rounds, once its budget is known
        self.number, self.share, self.episodes = settings.starts, settings.starts_share, settings.starts_episodes
        self.sizes = round_sizes(settings.starts, settings.starts_rounds)
        self.seed = seed  # of the episodes that judge: the model's first one, whatever it draws from later
        self.given = {GIVEN: spec.theta0} if isinstance(spec, CustomSpec) else {}
        self.running = self.round = self.judged = 0
        self.begun_generation = 0  # the first one of the present part
        self.begun_at = 0  # num_timesteps when the present part began; negative where these were counted anew since
        self.kept: tuple[Start, ...] = ()
        self.waiting: tuple[Start, ...] = ()
        self.verdict = Verdict(0, 0, -math.inf, (), 0)

    @property
    def has_unjudged_starts(self) -> bool:
        """Whether there are starts to be judged."""
        return bool(self.kept or self.waiting) or self.judged < self.number > 1

    @property
    def rounds(self) -> int:
        return len(self.sizes)

    @property
    def size(self) -> int:
        """Starts in the present round."""
        return self.judged + 1 + len(self.waiting) if self.round else self.number

    def due(self, num_timesteps: int, budget: int) -> bool:
        """Whether the present start has spent its part, or all that is left, or is one more than the settings have by now."""
        part = self.share * budget / (self.rounds * self.size)
        spent = budget > 0 and (num_timesteps - self.begun_at >= part or num_timesteps >= budget)
        return self.has_unjudged_starts and (self.judged >= self.size or spent)

    def episodes_to_come(self) -> int:
        """Noise-free ones, that are to judge the starts of this round and of later ones."""
        if not self.has_unjudged_starts:
            return 0
        return self.episodes * (self.size - self.judged + sum(self.sizes[self.round + 1 :]))

    # --- draws ------------------------------------------------------------------------------------------------------

    def reached(self, num_timesteps: int) -> int:
        """The timesteps that schedules go by: what a part begins with depends on no episode of those before."""
        if not self.strides or not self.has_unjudged_starts:
            return num_timesteps
        return sum(parts * stride.timesteps for parts, stride in self._usual_before()) + num_timesteps - self.begun_at

    def drawn_as(self, generation: int) -> int:
        """The number that a generation is drawn with: the part and how many it has played decide, and not those before.

        Those that a part usually has are numbered one part after the other, and further ones apart from all others.
        """
        if not self.strides or not self.has_unjudged_starts:
            return generation
        before = self._usual_before()
        own, usual = generation - self.begun_generation, before[-1][1].generations
        if own < usual:
            return self.drawn(generation)
        return _FURTHER + sum(parts for parts, _ in before) * MOST_GENERATIONS + own - usual

    def drawn(self, generation: int) -> int:
        """How many numbers have gone to generations before this one of the present part that parts usually have."""
        if not self.strides or not self.has_unjudged_starts:
            return 0
        before = self._usual_before()
        own, usual = generation - self.begun_generation, before[-1][1].generations
        return sum(parts * stride.generations for parts, stride in before) + min(own, usual)

    def follow(self, before: int, budget: int) -> None:
        """The budget is another one: parts usually take the same share of it."""
        if before and before != budget:
            self.strides = tuple(
                each._replace(timesteps=max(1, math.ceil(each.timesteps * budget / before))) for each in self.strides
            )

    def _usual_before(self) -> list[tuple[int, Stride]]:
        """How many parts of each round were before the present one, its own round last."""
        whole = zip(self.sizes[: self.round], self.strides, strict=False)
        return [*whole, (self.judged, self.strides[min(self.round, len(self.strides) - 1)])]

    def judges(self) -> npt.NDArray[np.int64]:
        """Environment seeds int64 (starts_episodes,) of the episodes that judge the present round's starts."""
        return draw_eval_seeds(self.seed, _JUDGES - self.round, self.episodes)

    def initial_theta(self, spec: AnySpec, seed: int) -> npt.NDArray[np.float32]:
        """The first parameters of the present start of a training with this seed."""
        given = self.given.get(GIVEN)
        return spec.initial_theta((seed + self.running * _STRIDE) % 2**63) if given is None else given

    # --- judging ----------------------------------------------------------------------------------------------------

    def score(self, evaluation: Evaluation) -> float:
        """What a start is worth; -inf when a return is not finite."""
        if self.rounds == 1 or evaluation.mean == -math.inf:
            return evaluation.mean
        ordered: list[float] = sorted(evaluation.returns.tolist())
        return 0.5 * ordered[(len(ordered) - 1) // 2] + 0.5 * ordered[len(ordered) // 2]

    def judge(self, start: Start, has_budget: bool) -> Start | None:
        """Judge the present start, and move on.

        has_budget: whether there are timesteps left; else the best that is known goes on, whatever its round.

        Returns what goes on now: None is start number `running` from scratch. Where no start is left to be judged, it is alone.
        """
        size, at = self.size, self.round + 1
        places = 1 if at >= self.rounds else -(-size // 2)
        ranked = sorted((*self.kept, start), key=lambda each: -each.score)  # of equal ones the first stays first
        self.kept, dropped, chosen = tuple(ranked[:places]), ranked[places:], 0
        if has_budget and self.judged + 1 < size:
            following = self.advance(1)
        elif has_budget and len(self.kept) > 1:
            self.round, self.judged, self.waiting, self.kept = at, -1, self.kept, ()
            following = self.advance(1)
        else:
            following = max((*self.kept, *self.waiting), key=lambda each: each.score)
            self.running, chosen = following.number, following.number + 1
            self.end()
        self.verdict = Verdict(start.number + 1, at, start.score, tuple(each.number + 1 for each in dropped), chosen)
        return following

    def advance(self, parts: int) -> Start | None:
        """Go so many parts further within the round. Returns the start whose turn it is, None where it begins from scratch."""
        self.judged += parts
        if not self.round:
            self.running = self.judged
            return None
        following, self.waiting = self.waiting[parts - 1], self.waiting[parts:]
        self.running = following.number
        return following

    def end(self) -> None:
        """What the model has is trained on: all were judged, its parameters were given, or it is solved."""
        self.judged, self.round, self.kept, self.waiting = self.number, 0, (), ()

    def cap_anew(self, steps: int) -> None:
        """Starts that wait or are kept had no cap on their episodes: it begins at so many steps."""
        self.kept = tuple(start._replace(episode_cap=steps) for start in self.kept)
        self.waiting = tuple(start._replace(episode_cap=steps) for start in self.waiting)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any] | None, Arrays]:
        """JSON values and arrays for a checkpoint; nothing once all were judged."""
        if not self.has_unjudged_starts:
            return None, {}
        data: dict[str, Any] = {name: getattr(self, name) for name in COUNTS}
        arrays = {name: theta.copy() for name, theta in self.given.items()}
        data["strides"] = [list(stride) for stride in self.strides]
        for group, starts in (("kept", self.kept), ("waiting", self.waiting)):
            data[group] = [described(start) for start in starts]
            for place, start in enumerate(starts):
                arrays.update({f"{group}.{place}.{name}": array.copy() for name, array in start.arrays.items()})
        return data, arrays

    def load_state(
        self,
        data: object,
        arrays: Mapping[str, npt.NDArray[Any]],
        like: Mapping[str, npt.NDArray[Any]],
        settings: Settings,
        begins: bool,
    ) -> None:
        """Go on from `state()`; None where all were judged, or a file is older.

        like: arrays as the model has them.
        settings: the training's, as the present start has them.
        begins: whether starts begin where there is no state: not in a model that was trained, nor where its own are over.

        Raises CheckpointError for what it cannot be.
        """
        if data is None and not arrays:
            if not begins:
                self.end()
            return
        data, left = checked(data, arrays)
        given = {name: left.pop(name) for name in self.given if name in left}
        check_arrays(given, self.given)
        starts: dict[str, list[Start]] = {"kept": [], "waiting": []}
        for group, found in starts.items():
            for place, start in enumerate(data[group]):
                prefix = f"{group}.{place}."
                own = {name.removeprefix(prefix): left.pop(name) for name in list(left) if name.startswith(prefix)}
                found.append(start_from(f"starts.{group}.{place}", start, own, like, settings))
        if left:
            raise CheckpointError(f"the checkpoint's starts have the arrays {sorted(left)} of no start")
        for name in COUNTS:
            setattr(self, name, data[name])
        self.given, self.kept, self.waiting = given, tuple(starts["kept"]), tuple(starts["waiting"])
        self.strides = tuple(Stride(*stride) for stride in data["strides"])
