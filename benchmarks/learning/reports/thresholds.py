"""Scores worth reaching, taken from the peers, and which contestant was first: by wall time, CPU time and steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.learning.runs.results import MEASURES, Run, machines_of

OURS = "fastes"
SHARES = (0.25, 0.5, 0.75, 1.0)
Contest = Mapping[str, Sequence[Run]]  # contestant -> runs of one environment, a seed each


class Threshold(NamedTuple):
    name: str
    score: float


class Reached(NamedTuple):
    """Median over a contestant's seeds of when an evaluation was first at a threshold or above; infinity for never."""

    wall: float
    cpu: float
    steps: float


def initial_score(runs: Sequence[Run]) -> float:
    """Median over seeds of the untrained policy's score."""
    return float(np.median([run.scores[0] for run in runs]))


def final_score(runs: Sequence[Run]) -> float:
    """Median over seeds."""
    return float(np.median([run.final.score for run in runs]))


def best_peer(contest: Contest) -> str | None:
    """The peer with the best final score; None if there is no peer."""
    peers = [algo for algo in contest if algo != OURS]
    return max(peers, key=lambda algo: final_score(contest[algo])) if peers else None


def progress_thresholds(name: str, initial: float, final: float, shares: Sequence[float] = SHARES) -> list[Threshold]:
    """initial + share * (final - initial); none without progress."""
    if not final > initial:
        return []
    return [Threshold(f"{share:.0%} of {name}'s progress", initial + share * (final - initial)) for share in shares]


def thresholds(contest: Contest) -> list[Threshold]:
    """Shares of the best peer's progress, then the final scores of the other peers; none of a peer that did not improve."""
    best = best_peer(contest)
    if best is None:
        return []
    runs = contest[best]
    found = progress_thresholds(best.upper(), initial_score(runs), final_score(runs))
    others = [
        algo for algo in contest if algo not in (OURS, best) and final_score(contest[algo]) > initial_score(contest[algo])
    ]
    return found + [Threshold(f"{algo.upper()}'s final score", final_score(contest[algo])) for algo in others]


def first_reached(run: Run, score: float, measure: str) -> float:
    """When an evaluation was first at score or above; infinity for never. The untrained policy's luck does not count."""
    at = 1 + np.flatnonzero(run.scores[1:] >= score)
    return float(run.along(measure)[at[0]]) if at.size else math.inf


def reached(runs: Sequence[Run], score: float) -> Reached:
    return Reached(*(float(np.median([first_reached(run, score, measure) for run in runs])) for measure in MEASURES))


def comparable_measures(contest: Contest) -> tuple[str, ...]:
    """The measures by which a contestant can be first: times of different machines do not compare."""
    machines = machines_of(run for runs in contest.values() for run in runs)
    return MEASURES if len(machines) == 1 else ("steps",)


def winners(reached_by: Mapping[str, Reached], measures: Sequence[str]) -> dict[str, list[str]]:
    """Measure -> the first contestants: several for a tie, none if no contestant reached it."""
    found = {}
    for measure in measures:
        least = min(getattr(times, measure) for times in reached_by.values())
        equal = [algo for algo, times in reached_by.items() if getattr(times, measure) == least]
        found[measure] = equal if math.isfinite(least) else []
    return found
