"""The final selection at the end of a training: an archive's snapshots and the present parameters play the same episodes."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastes.training.archive import FINAL_EPISODES, SCREENING_EPISODES, Snapshot
from fastes.training.evaluation import Evaluation
from fastes.training.player import Player
from fastes.training.training import Training

_LEAST_FINALISTS = 3


class Finalist(NamedTuple):
    """One of those that take part. The present parameters are a snapshot, too, without an evaluation.

    Attributes:
        snapshot: The parameters.
        screening: Their SCREENING_EPISODES episodes.
        final: Their FINAL_EPISODES further ones; None if the screening left them out.
    """

    snapshot: Snapshot
    screening: Evaluation
    final: Evaluation | None = None

    @property
    def last(self) -> Evaluation:
        """The evaluation that placed it."""
        return self.screening if self.final is None else self.final


class FinalSelection(NamedTuple):
    """The result. finalists: the winner first; those with final episodes come before the others."""

    finalists: tuple[Finalist, ...]

    @property
    def winner(self) -> Finalist:
        return self.finalists[0]

    @property
    def timesteps(self) -> int:
        """Environment steps of all episodes."""
        return sum(each.screening.timesteps + (each.final.timesteps if each.final else 0) for each in self.finalists)


def episodes_of_selection(finalists: int) -> int:
    """Return the number of noise-free episodes that a final selection among this many finalists plays."""
    return finalists * SCREENING_EPISODES + min(_with_final(finalists), finalists) * FINAL_EPISODES


def _with_final(finalists: int) -> int:
    """The better half, or a few more if that is too few."""
    return max(_LEAST_FINALISTS, math.ceil(finalists / 2))


async def select(training: Training, player: Player) -> FinalSelection:
    """Play SCREENING_EPISODES noise-free episodes of all, and FINAL_EPISODES further ones of the better half; the best wins.

    The environment seeds are the same for all, and no other episode has them. Of equal ones the better in the screening comes
    first, then the present parameters, then the latest: if nothing is to be gained, nothing changes.
    """
    assert training.archive is not None
    seeds = training.final_seeds(SCREENING_EPISODES + FINAL_EPISODES)
    screened: list[Finalist] = []
    for each in (training.present(), *reversed(training.archive.best())):
        screened.append(Finalist(each, await player.evaluate(training, seeds[:SCREENING_EPISODES], each)))
    screened.sort(key=lambda finalist: -finalist.screening.mean)
    count, finals = _with_final(len(screened)), list[Finalist]()
    for finalist in screened[:count]:
        final = await player.evaluate(training, seeds[SCREENING_EPISODES:], finalist.snapshot)
        finals.append(finalist._replace(final=final))
    finals.sort(key=lambda finalist: -finalist.last.mean)
    return FinalSelection((*finals, *screened[count:]))
