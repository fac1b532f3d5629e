"""The rungs of trials that have ended, and a race of recipes, as the sessions in config.toml note them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastes.runs.run_config import as_table, number_or, sessions_in, text_in


class NotedRung(NamedTuple):
    """The end of a rung.

    Attributes:
        at: Timesteps of all trials.
        kept: Number of trials that continue.
        trials: Their numbers, from 1, the best first.
        scores: Their mean noise-free returns, in the same order; NaN for one that is not finite.
        recipes: The names of their settings, in the same order; '' if all have the same.
    """

    at: float
    kept: int
    trials: tuple[int, ...]
    scores: tuple[float, ...]
    recipes: tuple[str, ...]

    @property
    def winner(self) -> int:
        """The trial that is left; 0 if several are."""
        return self.trials[0] if self.kept == 1 and self.trials else 0


class Race(NamedTuple):
    """A race of recipes.

    Attributes:
        recipes: The number of each trial -> its recipe.
        rungs: Those that have ended.
        winner: The recipe that is left; '' while several race.
        leader: The best one of the last rung, or the winner; '' if neither is known.
    """

    recipes: dict[int, str]
    rungs: tuple[NotedRung, ...]
    winner: str
    leader: str


def race_in(config: Mapping[str, Any]) -> Race | None:
    """Return the race that a config.toml tells of; None if it tells of none."""
    sessions = sessions_in(config)
    rungs, winner = rungs_in(sessions), text_in(as_table(config.get("run")), "recipe")
    recipes = recipes_in(sessions, rungs)
    leader = winner or (rungs[-1].recipes[0] if rungs and rungs[-1].recipes else "")
    return Race(recipes, rungs, winner, leader) if recipes else None


def rungs_in(sessions: Sequence[Mapping[str, Any]]) -> tuple[NotedRung, ...]:
    """Return the rungs that have ended, in their order, from the notes of `RunFolder.on_rung` in each session.

    Args:
        sessions: The tables of config.toml, those of earlier sessions first. Their content may be damaged.
    """
    runs = [as_table(session.get("run")) for session in sessions]
    until = [*(number_or(run.get("at_timesteps"), 0.0) for run in runs[1:]), math.inf]  # rungs after that were played again
    found = dict[float, NotedRung]()
    for run, end in zip(runs, until, strict=True):
        noted = run.get("rungs")
        for fields in noted if isinstance(noted, list) else ():
            rung = _rung(as_table(fields))
            if rung.at <= end and math.isfinite(rung.at):
                found[rung.at] = rung
    return tuple(found[at] for at in sorted(found))


def recipes_in(sessions: Sequence[Mapping[str, Any]], rungs: Sequence[NotedRung]) -> dict[int, str]:
    """Return the recipes that race or have raced, by the number of their trial."""
    noted = [as_table(as_table(session.get("run")).get("racing")) for session in sessions]
    found = {number: str(name) for racing in noted for text, name in racing.items() if (number := _trial_number(text))}
    return found | {trial: name for rung in rungs for trial, name in zip(rung.trials, rung.recipes, strict=True) if name}


def _rung(fields: Mapping[str, Any]) -> NotedRung:
    scores, names = as_table(fields.get("scores")), as_table(fields.get("recipes"))
    trials = {number: text for text in scores if (number := _trial_number(text))}
    kept = number_or(fields.get("kept"), 0.0)
    return NotedRung(
        number_or(fields.get("at_timesteps"), math.inf),
        int(kept) if math.isfinite(kept) else 0,
        tuple(trials),
        tuple(number_or(scores[text], math.nan) for text in trials.values()),
        tuple(str(names.get(text, "")) for text in trials.values()),
    )


def _trial_number(text: str) -> int:
    """Return the number of a trial, 0 for another text."""
    return int(text) if text.isdecimal() and len(text) < 10 else 0
