"""The race at the end of a training: an archive's snapshots and the present parameters, over the same fresh episodes."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastes.training.archive.snapshots import FINAL, HEAT, Snapshot
from fastes.training.evaluation import Evaluation
from fastes.training.evaluator import Evaluator
from fastes.training.state import TrainingState

_LEAST_FINALISTS = 3


class Entrant(NamedTuple):
    """One that has taken part. The present parameters are a snapshot, too, of no evaluation.

    heat: its HEAT episodes.
    final: its FINAL further ones; None where the heat was not enough for them.
    """

    snapshot: Snapshot
    heat: Evaluation
    final: Evaluation | None = None

    @property
    def last(self) -> Evaluation:
        """The evaluation that it was placed by."""
        return self.heat if self.final is None else self.final

    @property
    def score(self) -> float:
        """What it was placed by: the mean return of its final, or else of its heat."""
        return self.last.mean


class Race(NamedTuple):
    """How a race has ended. entrants: the winner first; those of the final come before the others."""

    entrants: tuple[Entrant, ...]

    @property
    def winner(self) -> Entrant:
        return self.entrants[0]

    @property
    def timesteps(self) -> int:
        """Environment steps of all episodes."""
        return sum(each.heat.timesteps + (each.final.timesteps if each.final else 0) for each in self.entrants)


def episodes_of_race(entrants: int) -> int:
    """How many noise-free episodes so many play."""
    return entrants * HEAT + min(_finalists(entrants), entrants) * FINAL


def _finalists(entrants: int) -> int:
    """The better half, where that is not too few."""
    return max(_LEAST_FINALISTS, math.ceil(entrants / 2))


async def run_race(state: TrainingState, evaluator: Evaluator) -> Race:
    """Let all play HEAT noise-free episodes, and the better half FINAL further ones, whose best one wins.

    The environment seeds are the same for all, and those of no other episode. Of equal ones the better in the heat comes first,
    then the present parameters, then the latest: where nothing is to be gained, nothing changes.
    """
    seeds, episodes = state.race_seeds(), state.episode_settings()[1]
    heats: list[Entrant] = []
    finals: list[Entrant] = []
    for each in (state.present(), *reversed(state.archive.best())):
        heat = await evaluator.evaluate(each.theta, each.normalizer, seeds[:HEAT], episodes)
        heats.append(Entrant(each, heat))
    heats.sort(key=lambda entrant: -entrant.score)
    finalists = _finalists(len(heats))
    for entrant in heats[:finalists]:
        its_theta, its_normalizer = entrant.snapshot.theta, entrant.snapshot.normalizer
        final = await evaluator.evaluate(its_theta, its_normalizer, seeds[HEAT:], episodes)
        finals.append(entrant._replace(final=final))
    finals.sort(key=lambda entrant: -entrant.score)
    return Race((*finals, *heats[finalists:]))
