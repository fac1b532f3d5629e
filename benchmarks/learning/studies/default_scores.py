"""What the study of defaults compares, what a return is worth on each task, and which alternative is best over all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tables import markdown_table
from fastes.settings.preset_loader import tomllib

PRESET = "preset"  # what a task has of its own
MOST = 1.1  # a score that counts
LEAST_TASKS = 12  # over which a default may be chosen
Scores = Mapping[str, Mapping[str, Sequence[float]]]  # alternative -> task -> scores, one a seed


class Task(NamedTuple):
    """An environment of the study.

    timesteps: of candidates, in a training.
    nothing, full: the returns that score 0 and 1.
    """

    timesteps: int
    nothing: float
    full: float

    def score(self, mean_return: float) -> float:
        """Between 0 and MOST; 0 for what is not finite."""
        if not math.isfinite(mean_return):
            return 0.0
        return min(max((mean_return - self.nothing) / (self.full - self.nothing), 0.0), MOST)


class Table(NamedTuple):
    """defaults.toml: alternative -> settings on top of each setting's own default, those that may not be chosen, and tasks by
    environment id.
    """

    alternatives: dict[str, dict[str, Any]]
    compared_only: frozenset[str]
    choose: dict[str, Task]
    test: dict[str, Task]


@cache
def read_table() -> Table:
    found = tomllib.loads(Path(__file__).with_name("defaults.toml").read_text(encoding="utf-8"))
    tasks = ({env: Task(**values) for env, values in found[part].items()} for part in ("choose", "test"))
    return Table(found["alternatives"], frozenset(found["compared_only"]), *tasks)


def overall(by_task: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Means over tasks, each of which counts the same: of the medians over seeds, and of the worst seeds."""
    found = by_task.values()
    return statistics.fmean(map(statistics.median, found)), statistics.fmean(map(min, found))


def best_of(scores: Scores) -> str:
    """The alternative with the best median over seeds, averaged over tasks; of equal ones that with the better worst seeds."""
    return max(scores, key=lambda name: overall(scores[name]))


def section(title: str, tasks: Mapping[str, Task], scores: Scores, returns: Scores | None = None) -> str:
    """A line a task, a column an alternative: median and, in brackets, worst score; then the median return where given.

    An alternative that lacks tasks has no figure for all of them.
    """
    header = ("task", "steps", *scores)
    lines = [
        (env, f"{task.timesteps:,}", *(_cell(scores[name].get(env), (returns or {}).get(name, {}).get(env)) for name in scores))
        for env, task in tasks.items()
    ]
    whole = [by_task if len(by_task) == len(tasks) else None for by_task in scores.values()]
    lines.append(
        (f"all {len(tasks)}", "", *("" if each is None else "{:.3f} ({:.3f})".format(*overall(each)) for each in whole))
    )
    return f"## {title}\n\n{markdown_table(header, lines)}"


def _cell(scores: Sequence[float] | None, returns: Sequence[float] | None) -> str:
    """'0.93 (0.90)', or '0.93 (0.90): 4200.1'; '' for no training."""
    if not scores:
        return ""
    text = f"{statistics.median(scores):.2f} ({min(scores):.2f})"
    return f"{text}: {statistics.median(returns):.1f}" if returns else text
